"""Hashes of the index keys of a client batch's messages.

Looking for the properties of each message costs more than all the rest of its index entry. Many batches have
one layout: their messages have properties of equal lengths, with the unique key and the key at the same
place. Such a batch is read column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmq_remoting.message_properties import find_value

from .keys import KeyHasher, hashes_by_columns
from .plain_entries import KEYS, UNIQUE_KEY

# For fewer messages, reading by columns costs more than it saves.
_COLUMNS_FROM: Final = 16
_MAX_KEY_BYTES: Final = 64
_END: Final = b"\x02"  # of a property
_SPACE: Final = b" "  # separates keys
_NO_COLUMNS: Final[list[bytes]] = []


class BatchKeys(NamedTuple):
    """Where the keys of a batch's messages are.

    `own_properties` are those of each message, empty or ended by `\\x02`. `shared_properties` follow in every
    message. `unique_key`: that of the batch, which all messages have then; empty if each has its own.
    `has_keys`: whether a message may have KEYS.
    """

    own_properties: Sequence[bytes]
    shared_properties: bytes
    unique_key: bytes
    has_keys: bool


class KeyHashes(NamedTuple):
    """The hashes of all keys of some messages, in order, and how many each message has."""

    hashes: list[int]
    for_each_message: list[int] | int


def hashes_of_batch(hasher: KeyHasher, topic: str, batch: BatchKeys) -> KeyHashes:
    """Return the hashes of all keys of all messages."""
    found = _by_columns(hasher, topic, batch)
    if found is not None:
        return found
    hashes: list[int] = []
    for_each_message: list[int] = []
    for own in batch.own_properties:
        of_message = _of_message(hasher, topic, batch, own)
        hashes += of_message
        for_each_message.append(len(of_message))
    return KeyHashes(hashes, for_each_message)


def _of_message(hasher: KeyHasher, topic: str, batch: BatchKeys, own: bytes) -> list[int]:
    properties = own + batch.shared_properties
    unique_key = batch.unique_key or find_value(properties, UNIQUE_KEY) or b""
    keys = find_value(properties, KEYS) if batch.has_keys else None
    return hasher.all_keys(topic, unique_key, keys or b"")


def _by_columns(hasher: KeyHasher, topic: str, batch: BatchKeys) -> KeyHashes | None:
    """Return the hashes of a batch of one layout; None for any other batch."""
    own, count = batch.own_properties, len(batch.own_properties)
    if count < _COLUMNS_FROM or [*map(len, own)].count(len(own[0])) != count:
        return None
    shared, first, together = batch.shared_properties, own[0], b"".join(own)
    keys: list[bytes] | None = _NO_COLUMNS
    if batch.has_keys:
        keys = None if find_value(shared, KEYS) else _columns_of(KEYS, first, together, count)
        if keys is None or _SPACE in b"".join(keys):
            return None
    of_keys = hashes_by_columns(topic, keys) if keys else []
    if batch.unique_key:
        of_unique_keys = [hasher.unique_key(topic, batch.unique_key)] * count
    else:
        columns = None if find_value(shared, UNIQUE_KEY) else _columns_of(UNIQUE_KEY, first, together, count)
        if columns is None:
            return None
        of_unique_keys = hashes_by_columns(topic, columns) if columns else []
    if of_keys and of_unique_keys:
        both = of_unique_keys * 2
        both[0::2], both[1::2] = of_unique_keys, of_keys
        return KeyHashes(both, 2)
    return KeyHashes(of_unique_keys or of_keys, 1 if of_unique_keys or of_keys else 0)


def _columns_of(prefix: bytes, first: bytes, together: bytes, count: int) -> list[bytes] | None:
    """Return a property's values as columns: each has one byte of every message.

    `prefix`: the property's name and the separator behind it. `first`: the first message's properties.
    `together`: those of all messages, which have one length. No columns if no message has the property. None
    unless all messages have it at the same place, in ASCII.
    """
    at, length = first.rfind(prefix), len(first)
    if at < 0:
        return None if prefix in together else _NO_COLUMNS
    value_at = at + len(prefix)
    end = first.find(_END, value_at)
    if not 0 < end - value_at <= _MAX_KEY_BYTES or (at and first[at - 1] != _END[0]):
        return None
    # All messages have the separator before the property, its name, and the separator behind it.
    for place in (*range(max(0, at - 1), value_at), end):
        if together[place::length].count(first[place]) != count:
            return None
    if end + 1 < length and together.count(prefix) != count:
        return None  # a later occurrence of the property would count
    columns = [together[place::length] for place in range(value_at, end)]
    values = b"".join(columns)
    return columns if values.isascii() and _END not in values else None
