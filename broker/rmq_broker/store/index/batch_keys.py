"""Hashes of the index keys of a client batch's messages.

Looking for the properties of each message costs more than all the rest of its index entry. Most batches have
one layout: their messages have properties of equal lengths, and unique keys at one place that differ in the
counter only. Such a batch is read column by column.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmq_remoting.message_properties import find_value

from .keys import COUNTER_DIGITS, UNIQUE_KEY_LENGTHS, KeyHasher
from .plain_entries import KEYS, UNIQUE_KEY

# For fewer messages, reading by columns costs more than it saves.
_COLUMNS_FROM: Final = 16
_END: Final = b"\x02"  # of a property


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


def hashes_by_columns(hasher: KeyHasher, topic: str, batch: BatchKeys) -> array[int] | None:
    """Return the hash of each message's only key; None unless the batch has one layout."""
    own, count = batch.own_properties, len(batch.own_properties)
    if batch.has_keys or batch.unique_key or count < _COLUMNS_FROM:
        return None
    first = own[0]
    at, length = first.rfind(UNIQUE_KEY), len(first)
    key_at = at + len(UNIQUE_KEY)
    end = first.find(_END, key_at)
    if at < 0 or end - key_at not in UNIQUE_KEY_LENGTHS or find_value(batch.shared_properties, UNIQUE_KEY):
        return None
    if [*map(len, own)].count(length) != count:
        return None
    together = b"".join(own)
    # All messages have the same bytes from the separator before the property to the key's counter, and the
    # separator behind the key.
    counter_at = end - COUNTER_DIGITS
    for place in (*range(max(0, at - 1), counter_at), end):
        if together[place::length].count(first[place]) != count:
            return None
    if at and first[at - 1] != _END[0]:
        return None
    if end + 1 < length and together.count(UNIQUE_KEY) != count:
        return None  # another unique key behind that one, which would count
    digits = [together[place::length] for place in range(counter_at, end)]
    if _END in b"".join(digits):
        return None
    return hasher.of_one_head(topic, first[key_at:end], digits)


def hashes_of_message(hasher: KeyHasher, topic: str, batch: BatchKeys, number: int) -> list[int]:
    """Return the hashes of all keys of one message of a batch."""
    properties = batch.own_properties[number] + batch.shared_properties
    unique_key = batch.unique_key or find_value(properties, UNIQUE_KEY) or b""
    keys = find_value(properties, KEYS) if batch.has_keys else None
    return hasher.all_keys(topic, unique_key, keys or b"")
