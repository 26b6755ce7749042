"""Checks of arguments, where the application gives them.

Each function returns the checked value, in the form that the SDK goes on with: durations are seconds. It
raises InvalidArgumentError with the name of the parameter, its value, the rule and the cure.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from rmq_remoting.message import Message, MessageExt
from rmq_remoting.message_queue import MessageQueue

from .errors import InvalidArgumentError

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a `datetime.timedelta`."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# A year: longer durations are mistakes, and event loops refuse some of them.
_LONGEST_SECONDS: Final = 366 * 86_400.0
_SHOWN_CHARACTERS: Final = 80


def refuse(name: str, value: object, rule: str) -> InvalidArgumentError:
    """Return the error for an argument. `rule` follows the value: `must be ...`."""
    return InvalidArgumentError(f"{name}={shown(value)}: {rule}")


def shown(value: object) -> str:
    """Return a value for an error message, shortened."""
    try:
        text = repr(value)
    except Exception:  # the application's own class
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def check_instance(name: str, value: object, kind: type[T], cure: str) -> T:
    """Check the type of a value. `cure` says what to give: `pass FlowControl(...)`."""
    if not isinstance(value, kind):
        raise refuse(name, value, f"must be {_article(kind.__name__)}, not {_kind(value)}; {cure}")
    return value


def check_optional(name: str, value: object, kind: type[T], cure: str) -> T | None:
    """Check the type of a value, or None."""
    return None if value is None else check_instance(name, value, kind, cure)


def check_flag(name: str, value: object) -> bool:
    """Check that a value is True or False. (A text such as "false" would count as true.)"""
    if not isinstance(value, bool):
        raise refuse(name, value, f"must be True or False, not {_kind(value)}")
    return value


def check_int(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Check a whole number and its bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(name, value, f"must be a whole number, not {_kind(value)}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise refuse(name, value, f"must be {bounds}")
    return value


def check_optional_int(name: str, value: object, *, least: int) -> int | None:
    """Check a whole number, or None."""
    return None if value is None else check_int(name, value, least=least)


def check_seconds(name: str, value: object, *, least: float = 0.0, above: float | None = None) -> float:
    """Return a duration in seconds. It must be at least `least`, or greater than `above`."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(name, value, f"must be a number of seconds or a timedelta, not {_kind(value)}")
    else:
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    if above is not None:
        if not above < seconds <= _LONGEST_SECONDS:
            raise refuse(name, value, f"must be above {above:g} s, and at most 366 days")
    elif not least <= seconds <= _LONGEST_SECONDS:
        raise refuse(name, value, f"must be at least {least:g} s, and at most 366 days")
    return seconds


def check_timeout(name: str, value: object, default: float) -> float:
    """Return a time-out in seconds; None is the default."""
    return default if value is None else check_seconds(name, value, above=0)


def check_time(name: str, value: object) -> datetime:
    """Check a time. It has a time zone, so that it is the same time on every machine."""
    if not isinstance(value, datetime):
        raise refuse(name, value, f"must be a datetime with a time zone, not {_kind(value)}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise refuse(
            name, value, "has no time zone: use datetime.now(timezone.utc), or .astimezone() for a local time"
        )
    return value


def check_time_ms(name: str, value: object) -> int:
    """Return a time in milliseconds since 1970 UTC, not before 1970."""
    elapsed = check_time(name, value) - _EPOCH
    if elapsed < timedelta(0):
        raise refuse(name, value, "must not be before 1970")
    return elapsed // timedelta(milliseconds=1)


def check_text(name: str, value: object) -> str:
    """Check a text that must not be empty."""
    if not isinstance(value, str):
        raise refuse(name, value, f"must be a str, not {_kind(value)}")
    if not value:
        raise refuse(name, value, "must not be empty")
    return value


def check_choice(name: str, value: T, choices: Collection[T]) -> T:
    """Check that a value is one of a few."""
    if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        allowed = ", ".join(str(choice) if isinstance(choice, Enum) else repr(choice) for choice in choices)
        raise refuse(name, value, f"must be one of {allowed}")
    return value


def check_callable(name: str, value: F, arguments: int, called_with: str) -> F:
    """Check a function that the SDK will call with this number of positional arguments.

    `called_with` describes them in the error. Functions without a known signature pass.
    """
    if not callable(value):
        raise refuse(name, value, f"must be a function of {called_with}, not {_kind(value)}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some built-in functions
        return value
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        text = f"is called with {called_with}, which its parameters {signature} do not take ({error})"
        raise refuse(name, value, text) from None
    return value


def check_optional_callable(name: str, value: F | None, arguments: int, called_with: str) -> F | None:
    """Check a function, or None."""
    return None if value is None else check_callable(name, value, arguments, called_with)


def check_each(name: str, values: object, kind: type[T], cure: str) -> list[T]:
    """Return the items of an iterable, each of which must be of one type."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise refuse(name, values, f"must be a list of {kind.__name__}, not {_kind(values)}; {cure}")
    items = list(values)
    for number, item in enumerate(items):
        check_instance(f"{name}[{number}]", item, kind, cure)
    return items


def check_message(name: str, value: object) -> Message:
    """Check a message to send. (A message that was received can be sent, too.)"""
    message = check_instance(name, value, Message, "build one with Message(topic, body)")
    if not isinstance(message.body, bytes):
        raise refuse(f"{name}.body", message.body, f"must be bytes, not {_kind(message.body)}; encode texts")
    if not isinstance(message.flag, int):
        raise refuse(f"{name}.flag", message.flag, f"must be a whole number, not {_kind(message.flag)}")
    if not isinstance(message.properties, dict):
        raise refuse(f"{name}.properties", message.properties, "must be a dict of names and values")
    return message


def check_received(name: str, value: object) -> MessageExt:
    """Check a message that was received."""
    return check_instance(name, value, MessageExt, "pass a message that this consumer has received")


def check_queue(name: str, value: object) -> MessageQueue:
    """Check a queue with the types of its attributes, which MessageQueue itself does not check."""
    queue = check_instance(name, value, MessageQueue, "queues() returns those of a topic")
    if not (
        isinstance(queue.topic, str)
        and isinstance(queue.broker_name, str)
        and isinstance(queue.queue_id, int)
        and not isinstance(queue.queue_id, bool)
    ):
        raise refuse(name, value, "must have a topic and a broker_name of type str, and an int as queue_id")
    return queue


def check_queues(name: str, values: object) -> list[MessageQueue]:
    """Return the queues of an iterable."""
    queues = check_each(name, values, MessageQueue, "queues() returns those of a topic")
    for number, queue in enumerate(queues):
        check_queue(f"{name}[{number}]", queue)
    return queues


def check_offset(name: str, value: object) -> int:
    """Check an offset in a queue."""
    return check_int(name, value, least=0)


def set_fields(target: object, **values: object) -> None:
    """Set attributes of a frozen dataclass, in its constructor."""
    for name, value in values.items():
        object.__setattr__(target, name, value)


def short_repr(settings: object) -> str:
    """Return the text of a settings dataclass with the values that differ from their defaults only.

    `help()` and error messages show settings as defaults of parameters.
    """
    kind = type(settings)
    defaults = inspect.signature(kind).parameters
    changed = [
        f"{one.name}={getattr(settings, one.name)!r}"
        for one in fields(settings)  # type: ignore[arg-type]  # any dataclass
        if one.repr and getattr(settings, one.name) != defaults[one.name].default
    ]
    return f"{kind.__name__}({', '.join(changed)})"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _kind(value: object) -> str:
    return "None" if value is None else _article(type(value).__name__)


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"
