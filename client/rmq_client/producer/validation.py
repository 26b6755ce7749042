"""What no broker would take, found out before it is sent: errors name the field, its value and the limit."""

from __future__ import annotations

from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import PROPERTY_DELAY_TIME_LEVEL

from ..errors import UsageError

_FLAG_BITS: Final = 32


def check_size(message: Message, max_message_bytes: int) -> int:
    """The body's size. Raises UsageError."""
    size = len(message.body)
    if not size:
        raise UsageError(f"a message to {message.topic} has an empty body: brokers do not take that")
    if size > max_message_bytes:
        raise UsageError(
            f"a message to {message.topic} has {size} bytes, {max_message_bytes} are allowed: "
            "raise max_message_bytes here and maxMessageSize at the broker, or send a reference"
        )
    return size


def check_extras(message: Message) -> None:
    """What a message may have besides topic and body. Raises UsageError.

    The properties' names and values are checked where they are set and encoded.
    """
    if not -(1 << (_FLAG_BITS - 1)) <= message.flag < 1 << (_FLAG_BITS - 1):
        raise UsageError(
            f"flag of a message to {message.topic} is {message.flag}: it must fit {_FLAG_BITS} bits with sign"
        )
    level = message.properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if level is not None and not (level.isascii() and level.isdigit()):
        raise UsageError(
            f"delay_level of a message to {message.topic} is {level!r}: it must be a number from 0 (none). "
            "Brokers have 18 levels unless configured otherwise, and take higher ones for the last"
        )
