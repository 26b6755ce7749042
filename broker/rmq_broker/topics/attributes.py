"""Attributes of topics and groups: texts by name, changed by requests such as `+message.type=FIFO,-other`.

Source: Apache RocketMQ 5.3.3, AttributeParser, AttributeUtil, TopicAttributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MESSAGE_TYPE: Final = "message.type"
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"
RESERVE_TIME: Final = "reserve.time"

_ADD: Final = "+"
_DELETE: Final = "-"


class AttributeProblem(ValueError):
    """An invalid change of attributes; the message is the remark for the client."""


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """The values of one attribute, and whether it is `changeable` after the topic was created.

    `unsupported` maps each of Apache's values that are refused here to the reason and a remedy.
    """

    values: frozenset[str]
    changeable: bool
    unsupported: Mapping[str, str] = field(default_factory=dict)


TOPIC_ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {
    "queue.type": AttributeRule(frozenset({"SimpleCQ", "BatchCQ"}), changeable=False),
    CLEANUP_POLICY: AttributeRule(
        frozenset({"DELETE"}),
        changeable=False,
        unsupported={
            COMPACTION: "compaction is not supported by this version, so the newest message of a key would "
            "be deleted with the others after fileReservedTime; use DELETE and send each key again in time"
        },
    ),
    MESSAGE_TYPE: AttributeRule(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}), changeable=True
    ),
}
GROUP_ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {}


def parse_attribute_changes(text: str | None) -> dict[str, str]:
    """Parse attributes of CreateTopicRequestHeader into changes by signed name; raises AttributeProblem."""
    changes: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        name, separator, value = part.partition("=")
        if separator and not name.startswith(_ADD):
            raise AttributeProblem(f"attribute {name!r}: setting one is written +name=value")
        if not separator and not name.startswith(_DELETE):
            raise AttributeProblem(f"attribute {name!r}: removing one is written -name")
        if name in changes:
            raise AttributeProblem(f"attribute {name!r} is given twice")
        changes[name] = value
    return changes


def altered_attributes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    rules: Mapping[str, AttributeRule],
) -> dict[str, str]:
    """Return the attributes after the changes (by signed name); `current` is None for a new owner.

    Raises AttributeProblem for an unknown name, a value that is not allowed, an attribute that can only be
    set when its owner is created, and one to be removed that is not there.
    """
    result = dict(current or {})
    seen: set[str] = set()
    for signed_name, value in changes.items():
        sign, name = signed_name[:1], signed_name[1:]
        if sign not in (_ADD, _DELETE) or not name:
            raise AttributeProblem(f"attribute {signed_name!r} must be written with + or - before its name")
        if name in seen:
            raise AttributeProblem(f"attribute {name!r} is changed twice")
        seen.add(name)
        _check(name, value if sign == _ADD else None, rules, is_new=current is None)
        if sign == _ADD:
            result[name] = value
        elif result.pop(name, None) is None:
            raise AttributeProblem(f"attribute {name!r} cannot be removed: it is not set")
    return result


def _check(name: str, value: str | None, rules: Mapping[str, AttributeRule], *, is_new: bool) -> None:
    rule = rules.get(name)
    if rule is None:
        # As Apache without a tiered store: the attribute is known, but would have no effect.
        reason = "needs a tiered store" if name == RESERVE_TIME else "is not known"
        raise AttributeProblem(f"attribute {name!r} {reason}; known are {sorted(rules) or 'none'}")
    if not is_new and not rule.changeable:
        raise AttributeProblem(f"attribute {name!r} can only be set when the topic is created")
    if value is not None and value in rule.unsupported:
        raise AttributeProblem(f"attribute {name}={value}: {rule.unsupported[value]}")
    if value is not None and value not in rule.values:
        raise AttributeProblem(f"attribute {name!r} must be one of {sorted(rule.values)}, not {value!r}")
