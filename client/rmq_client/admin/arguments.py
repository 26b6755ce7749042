"""Checks of the arguments of `Admin`: one rule for each name of a parameter, applied before any request.

A name means the same in all methods. `checked` refuses a method with a parameter that has no rule, so a new
parameter gets one. Each rule returns the value in the form that the method goes on with.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from rmq_remoting.bodies.constants import SQL92_EXPRESSION, TAG_EXPRESSION
from rmq_remoting.message import MessageExt

from ..checks import (
    check_choice,
    check_each,
    check_flag,
    check_instance,
    check_int,
    check_offset,
    check_queue,
    check_seconds,
    check_text,
    check_time,
    refuse,
)
from .results import AccessRule

Rule = Callable[[str, object], Any]
"""Takes the name of a parameter and its value. Raises InvalidArgumentError."""

_S = TypeVar("_S")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method = Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]

# To write, to read, both (Apache RocketMQ 5.3.3, PermName).
_PERMISSIONS: Final = (2, 4, 6)


def checked_with(**rules: Rule) -> Callable[[_Method[_S, _P, _T]], _Method[_S, _P, _T]]:
    """Check the arguments of a method, some of them by rules of its own.

    Raises LookupError, where the class is defined, for a parameter without a rule.
    """

    def decorate(method: _Method[_S, _P, _T]) -> _Method[_S, _P, _T]:
        signature = inspect.signature(method)
        _, *parameters = signature.parameters.values()
        applied: list[tuple[str, Rule, bool]] = []
        for parameter in parameters:
            rule = rules.get(parameter.name) or _RULES.get(parameter.name)
            if rule is None:
                raise LookupError(f"{method.__qualname__}: no rule for the parameter {parameter.name}")
            applied.append((parameter.name, rule, parameter.default is None))

        @functools.wraps(method)
        async def check_and_call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError as error:  # which does not name the method
                raise TypeError(f"{method.__qualname__}(): {error}") from None
            values = bound.arguments
            for name, rule, is_optional in applied:
                if name in values and not (is_optional and values[name] is None):
                    values[name] = rule(name, values[name])
            return await method(*bound.args, **bound.kwargs)

        return check_and_call

    return decorate


def checked(method: _Method[_S, _P, _T]) -> _Method[_S, _P, _T]:
    """Check the arguments of a method by the rules of their names."""
    return checked_with()(method)


# --- rules ---


def any_text(name: str, value: object) -> str:
    """Take a text, which may be empty."""
    return value if value == "" else check_text(name, value)


def at_least(least: int) -> Rule:
    """Take a whole number, not below `least`."""

    def rule(name: str, value: object) -> int:
        return check_int(name, value, least=least)

    return rule


def one_of(*choices: object) -> Rule:
    """Take one of a few values."""

    def rule(name: str, value: object) -> object:
        return check_choice(name, value, choices)

    return rule


def _texts(name: str, value: object) -> dict[str, str]:
    """Take texts by name."""
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise refuse(name, value, f"must be a dict of names and values, not {kind}")
    for key, text in value.items():
        check_text(f"a name in {name}", key)
        if not isinstance(text, str):
            raise refuse(f"{name}[{key!r}]", text, f"must be a str, not {type(text).__name__}")
    return dict(value)


def list_of_texts(name: str, value: object) -> list[str]:
    """Take a list of texts, at least one."""
    texts = check_each(name, value, str, "name each by a str")
    if not texts:
        raise refuse(name, value, "must not be empty")
    for number, text in enumerate(texts):
        check_text(f"{name}[{number}]", text)
    return texts


def _broker_ids(name: str, value: object) -> list[int]:
    ids = check_each(name, value, int, "name each by the id that in_sync_sets shows")
    if not ids:
        raise refuse(name, value, "must not be empty")
    return [check_int(f"{name}[{number}]", one, least=1) for number, one in enumerate(ids)]


def _address(name: str, value: object) -> str:
    host, _, port = check_text(name, value).rpartition(":")
    if not host or not port.isdigit():
        raise refuse(name, value, "must be host:port, such as 127.0.0.1:9878")
    return f"{host}:{port}"


def _seconds(name: str, value: object) -> float:
    return check_seconds(name, value)


def _message(name: str, value: object) -> MessageExt:
    return check_instance(name, value, MessageExt, "pass a message that view_message or another query found")


def _rules(name: str, value: object) -> list[AccessRule]:
    rules = check_each(name, value, AccessRule, "build each with AccessRule(resource, actions)")
    for number, rule in enumerate(rules):
        about = f"{name}[{number}]"
        check_text(f"{about}.resource", rule.resource)
        list_of_texts(f"{about}.actions", rule.actions)
        for place, address in enumerate(check_each(f"{about}.source_ips", rule.source_ips, str, "list them")):
            check_text(f"{about}.source_ips[{place}]", address)
        check_flag(f"{about}.allow", rule.allow)
        check_text(f"{about}.policy", rule.policy)
    return rules


_RULES: Final[Mapping[str, Rule]] = {
    # names
    "topic": check_text,
    "trace_topic": check_text,
    "to_topic": check_text,
    "group": check_text,
    "source": check_text,
    "target": check_text,
    "cluster": check_text,
    "broker_name": check_text,
    "broker_names": list_of_texts,
    "broker_ids": _broker_ids,
    "names": list_of_texts,
    "controller": _address,
    "client_id": check_text,
    "user": check_text,
    "name": check_text,
    "password": check_text,
    "table": check_text,
    "key": check_text,
    "value": any_text,
    "message_id": check_text,
    "statistic": check_text,
    "resource": check_text,
    "filter": any_text,
    "user_filter": any_text,
    "resource_filter": any_text,
    # numbers
    "broker_id": at_least(0),
    "queues": at_least(1),
    "read_queues": at_least(1),
    "write_queues": at_least(1),
    "retry_queues": at_least(0),
    "share_queues": at_least(0),
    "max_retries": at_least(0),
    "max_messages": at_least(1),
    "max_entries": at_least(1),
    "threshold_bytes": at_least(0),
    "offset": check_offset,
    "permission": one_of(*_PERMISSIONS),
    # durations and times
    "timeout_seconds": _seconds,
    "wait_seconds": _seconds,
    "begin": check_time,
    "end": check_time,
    "to_time": check_time,
    "time": check_time,
    # filters and kinds
    "expression": check_text,
    "expression_type": one_of(TAG_EXPRESSION, SQL92_EXPRESSION),
    # objects
    "attributes": _texts,
    "settings": _texts,
    "queue": check_queue,
    "message": _message,
    "rules": _rules,
    # flags
    **dict.fromkeys(
        (
            "alive",
            "broadcast_enabled",
            "consume_enabled",
            "dry_run",
            "enabled",
            "exists_ok",
            "is_super",
            "keep_offsets",
            "keep_topics",
            "missing_ok",
            "ordered",
            "pop",
            "readable",
            "stacks",
            "system",
            "to_earliest",
            "to_latest",
            "unique",
        ),
        check_flag,
    ),
}
