"""Checks of messages before a send. Errors name the field, its value and the limit."""

from __future__ import annotations

from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import PROPERTY_DELAY_TIME_LEVEL

from ..errors import UsageError

_FLAG_BITS: Final = 32


def check_size(message: Message, max_message_bytes: int) -> int:
    """Return the size of the body. Raises UsageError."""
    size = len(message.body)
    if not size:
        raise UsageError(f"a message to {message.topic} has an empty body: brokers refuse that")
    if size > max_message_bytes:
        raise UsageError(
            f"a message to {message.topic} has {size} bytes, {max_message_bytes} are allowed: "
            "raise max_message_bytes here and maxMessageSize at the broker, or send a reference"
        )
    return size


def check_extras(message: Message) -> None:
    """Check what a message has besides topic and body. Raises UsageError.

    Names and values of properties are checked where they are set and encoded.
    """
    if not -(1 << (_FLAG_BITS - 1)) <= message.flag < 1 << (_FLAG_BITS - 1):
        raise UsageError(
            f"flag of a message to {message.topic} is {message.flag}: it must fit into {_FLAG_BITS} bits "
            "with sign"
        )
    level = message.properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if level is not None and not (level.isascii() and level.isdigit()):
        raise UsageError(
            f"delay_level of a message to {message.topic} is {level!r}: it must be a number from 0 (none). "
            "Brokers have 18 levels unless configured otherwise, and treat higher ones as the last"
        )
