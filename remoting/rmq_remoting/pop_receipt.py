"""Receipts of popped messages, and the retry topics that such messages come back in.

    start offset, pop time, invisible time, revive queue, kind of topic, broker, queue, queue offset

with blanks in between is what a consumer acknowledges with. The revive queue 999 says that the message was
popped in order. A topic and a group have one retry topic, in one of two forms: with `_` (version 1) or `+`
(version 2). (Apache RocketMQ 5.3.3, ExtraInfoUtil and KeyBuilder.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .errors import shown
from .integers import INT32_MAX, INT64_MAX

ORDER_REVIVE_QUEUE: Final = 999

# How receipts and answers name the kind of topic that a message was popped from.
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"

_RETRY_PREFIX: Final = "%RETRY%"
_V2_SEPARATOR: Final = "+"
_SEPARATOR: Final = " "
_MIN_PARTS: Final = 6
_MOST_DIGITS: Final = 19
_NUMBERS_DIGITS: Final = 4 * _MOST_DIGITS
_KINDS: Final = frozenset({NORMAL, RETRY_V1, RETRY_V2})
_NUMBERS: Final = ("start offset", "pop time", "invisible time", "revive queue")


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The retry topics of POP consumers, in the form of today and that of old brokers."""
    return f"{_RETRY_PREFIX}{group}+{topic}", f"{_RETRY_PREFIX}{group}_{topic}"


def kind_of(topic: str) -> str:
    """What kind of topic this is."""
    if not topic.startswith(_RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if _V2_SEPARATOR in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str) -> str:
    """The topic that a message of this kind was popped from. Raises ValueError for an unknown kind."""
    if kind == NORMAL:
        return topic
    newer, older = pop_retry_topics(topic, group)
    if kind == RETRY_V2:
        return newer
    if kind == RETRY_V1:
        return older
    raise ValueError(f"{kind!r} is no kind of topic: 0, 1 (retry) or 2 (retry, version 2)")


class ReceiptError(ValueError):
    """A receipt that no broker has made; the message is a remark for who sent it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says; times in ms."""

    start_offset: int
    pop_time: int
    invisible_time_ms: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int | None = None
    queue_offset: int | None = None

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Read a receipt. Raises ReceiptError."""
        parts = text.split(_SEPARATOR)
        if len(parts) < _MIN_PARTS:
            raise ReceiptError(
                f"the receipt {shown(text)} has {len(parts)} parts, {_MIN_PARTS} are needed: start offset, "
                "pop time, invisible time, revive queue, kind of topic, broker"
            )
        # A broker's name may have blanks in it; what follows it are numbers.
        queue_id, queue_offset, name_end = None, None, len(parts)
        if name_end >= _MIN_PARTS + 2 and _is_number(parts[-1]) and _is_number(parts[-2]):
            queue_id, queue_offset, name_end = int(parts[-2]), int(parts[-1]), name_end - 2
        elif name_end >= _MIN_PARTS + 1 and _is_number(parts[-1]):
            queue_id, name_end = int(parts[-1]), name_end - 1
        kind = parts[4]
        digits = parts[0] + parts[1] + parts[2] + parts[3]
        if len(digits) > _NUMBERS_DIGITS or not (
            digits.isdecimal() and digits.isascii() and kind in _KINDS and all(parts[:4])
        ):
            raise ReceiptError(_problem(text, parts))
        start_offset, pop_time, invisible, revive_queue = map(int, parts[:4])
        if max(start_offset, pop_time, invisible) > INT64_MAX or revive_queue > INT32_MAX:
            raise ReceiptError(_problem(text, parts))
        broker_name = parts[5] if name_end == _MIN_PARTS else _SEPARATOR.join(parts[5:name_end])
        return cls(start_offset, pop_time, invisible, revive_queue, kind, broker_name, queue_id, queue_offset)

    def __str__(self) -> str:
        parts = [
            self.start_offset,
            self.pop_time,
            self.invisible_time_ms,
            self.revive_queue_id,
            self.kind,
            self.broker_name,
        ]
        parts += [part for part in (self.queue_id, self.queue_offset) if part is not None]
        return _SEPARATOR.join(map(str, parts))

    @property
    def is_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    @property
    def revive_time(self) -> int:
        """When the message comes back if nobody acknowledges it."""
        return self.pop_time + self.invisible_time_ms


def _is_number(part: str) -> bool:
    return part.isdecimal() and len(part) <= _MOST_DIGITS


def _problem(text: str, parts: list[str]) -> str:
    """What is wrong with a receipt."""
    for name, part in zip(_NUMBERS, parts, strict=False):
        limit = INT32_MAX if name == "revive queue" else INT64_MAX
        if not (part.isdecimal() and part.isascii()) or len(part) > _MOST_DIGITS or int(part) > limit:
            return f"the receipt {shown(text)} has the {name} {shown(part)}, which is none"
    return f"the receipt {shown(text)} has the kind of topic {shown(parts[4])}: not 0, 1 or 2"
