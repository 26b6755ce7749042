"""Bytes that a message's properties contain if a condition is true.

The store searches many records for them at once, and tests only those that contain one. That takes a
fraction of the time that testing each message takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmq_remoting.message_properties import NAME_VALUE_SEPARATOR

from .sql_tree import Comparison, Condition, Constant, Logic, Membership, Property, TextTest

# The records are searched for each of them.
_MOST: Final = 8


def needles_of(condition: Condition) -> tuple[bytes, ...]:
    """Return bytes of which each match contains at least one; none if the condition requires no text."""
    match condition:
        case Logic("AND", operands):
            return min(filter(None, map(needles_of, operands)), key=len, default=())
        case Logic(_, operands):
            parts = [needles_of(operand) for operand in operands]
            return _limited(needle for part in parts for needle in part) if all(parts) else ()
        case Comparison("=", Property(name), Constant(_, str(text))):
            return (_needle(name, text),)
        case Comparison("=", Constant(_, str(text)), Property(name)):
            return (_needle(name, text),)
        case Membership(False, Property(name), texts):
            return _limited(_needle(name, text) for text in texts)
        case TextTest("STARTSWITH", False, Property(name), text):
            return (_needle(name, text),)
    return ()


def _limited(needles: Iterable[bytes]) -> tuple[bytes, ...]:
    distinct = tuple(dict.fromkeys(needles))
    return distinct if len(distinct) <= _MOST else ()


def _needle(name: str, text: str) -> bytes:
    return f"{name}{NAME_VALUE_SEPARATOR}{text}".encode("utf-8", "surrogatepass")
