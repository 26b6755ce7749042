"""Keys of messages: two messages with the same key are duplicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import PROPERTY_KEYS

from ...checks import check_callable, refuse
from ...errors import UsageError

DeduplicationKey: TypeAlias = Literal["id", "keys"] | Callable[[MessageExt], str]
"""By what messages are duplicates of each other: `id`, `keys`, or a function that returns a text.

`id`: the id that the producer's client gave the message. Redeliveries have it, and so have the retries of one
`send`. `keys`: the topic and the keys that the application gave the message; without keys, its id.
"""


def key_function(by: DeduplicationKey) -> Callable[[MessageExt], str]:
    """Return the function for a choice. Raises InvalidArgumentError."""
    if isinstance(by, str):
        if by == "id":
            return by_id
        if by == "keys":
            return by_keys
        raise refuse("by", by, "must be 'id', 'keys' or a function of a message")
    return check_callable("by", by, 1, "a message")


def by_id(message: MessageExt) -> str:
    """Return the message id."""
    return message.msg_id


def by_keys(message: MessageExt) -> str:
    """Return topic and keys, or the id of a message without keys."""
    keys = message.properties.get(PROPERTY_KEYS)
    return f"{message.topic} {keys}" if keys else by_id(message)


def checked_key(key: object) -> str:
    """Return what the application's function returned. Raises UsageError for anything but a text."""
    if not isinstance(key, str) or not key:
        raise UsageError(f"by=... returned {key!r}: must return a text that is not empty")
    return key
