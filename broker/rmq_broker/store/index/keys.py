"""Hashes of index keys, by which the index files find messages.

Apache RocketMQ 5.3.3, IndexService.buildKey and IndexFile.indexKeyHashMethod: the key is `topic#key`, its
hash the absolute value of Java's String.hashCode, and 0 for the one value that has no absolute value.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache, size_by_key, size_of_small
from rmq_remoting.java_hash import prefix_hash_code, utf8_hash_code

_MASK: Final = 0xFFFFFFFF
_SIGN_BIT: Final = 0x80000000
_TWO_TO_32: Final = 1 << 32

# The unique keys of clients: address (4 or 16 bytes), process, class loader: 20 or 44 digits that one
# client's keys share; 8 digits of milliseconds; 4 digits of a counter (Apache RocketMQ 5.3.3,
# MessageClientIDSetter).
_UNIQUE_KEY_LENGTHS: Final = (32, 56)
_TIME_DIGITS: Final = 8
_COUNTER_DIGITS: Final = 4
_ASCII_END: Final = 0x80
_TIME_WEIGHT: Final = 31**_TIME_DIGITS
_COUNTER_WEIGHT: Final = 31**_COUNTER_DIGITS
_DIGITS: Final = b"0123456789ABCDEFabcdef"
_PAIRS: Final = {bytes((first, second)): first * 31 + second for first in _DIGITS for second in _DIGITS}
_PAIR_WEIGHT: Final = 31**2
_WORD_BYTES: Final = 8
_LOW_BYTE, _NEXT_COLUMN = (0, 2) if sys.byteorder == "little" else (_WORD_BYTES - 1, -2)
# A hash of 32 bits, extended by this number of characters, fits into 64 bits.
_COLUMNS_IN_A_WORD: Final = 4

_MAX_COUNTERS: Final = 65536
_MAX_HEADS: Final = 16384
_MAX_TOPICS: Final = 65536

# By topic, its part of the hashes of keys of one length.
Seeds = BoundedCache[str, int]


class KeyHasher:
    """Hashes keys, with bounded caches of the parts that unique keys have in common; for one thread.

    A loop over the characters costs more than all the rest of an index entry. The hash of a text is the sum
    of its parts' hashes, each times a power of 31. So three parts are looked up: the topic, the counter of
    the unique key, and the head before the counter, which is the same for a millisecond of one client.
    """

    __slots__ = ("_counter_of", "_counters", "_head_of", "_heads", "_seeds", "caches")

    def __init__(self) -> None:
        self._heads: BoundedCache[bytes, tuple[int, Mapping[str, int]]] = BoundedCache(
            "index_key_heads",
            max_entries=_MAX_HEADS,
            max_bytes=_MAX_HEADS * (ENTRY_OVERHEAD_BYTES + max(_UNIQUE_KEY_LENGTHS)),
            size_of=size_by_key,
        )
        self._counters: BoundedCache[bytes, int] = BoundedCache(
            "index_key_counters",
            max_entries=_MAX_COUNTERS,
            max_bytes=_MAX_COUNTERS * ENTRY_OVERHEAD_BYTES,
            size_of=size_of_small,
        )
        self._seeds: dict[int, Seeds] = {length: _new_seeds() for length in _UNIQUE_KEY_LENGTHS}
        # The caches' dictionaries: a look-up costs no call.
        self._head_of = self._heads.entries
        self._counter_of = self._counters.entries
        self.caches: tuple[BoundedCache[Any, Any], ...] = (
            self._heads,
            self._counters,
            *self._seeds.values(),
        )

    def unique_key(self, topic: str, key: bytes) -> int:
        """Return the hash of a unique key (UTF-8), 0 to 2^31 - 1."""
        try:
            of_head, seeds = self._head_of[key[:-4]]
            value = (seeds[topic] + of_head + self._counter_of[key[-4:]]) & _MASK
        except KeyError:
            value = self._learn(topic, key)
        if value < _SIGN_BIT:
            return value
        return _TWO_TO_32 - value if value != _SIGN_BIT else 0

    def unique_keys(self, topic: str, key: bytes) -> int:
        """As `unique_key`, for many keys in a row: the hash of the counter is computed, not looked up."""
        try:
            of_head, seeds = self._head_of[key[:-4]]
            value = seeds[topic] + of_head
        except KeyError:
            return self.unique_key(topic, key)
        first, second, third, fourth = key[-4], key[-3], key[-2], key[-1]
        if first | second | third | fourth >= _ASCII_END:
            return self.unique_key(topic, key)
        value = (value + ((first * 31 + second) * 31 + third) * 31 + fourth) & _MASK
        if value < _SIGN_BIT:
            return value
        return _TWO_TO_32 - value if value != _SIGN_BIT else 0

    def any_key(self, topic: str, key: bytes) -> int:
        """Return the hash of a key of any form (UTF-8), 0 to 2^31 - 1."""
        if key[:-_COUNTER_DIGITS] in self._heads:  # the unique key of another message: traces have many
            return self.unique_key(topic, key)
        return _positive(utf8_hash_code(key, prefix_hash_code(topic + "#")))

    def all_keys(self, topic: str, unique_key: bytes, keys: bytes) -> list[int]:
        """Return the hashes of all keys of a message: its unique key, and its keys, which spaces separate."""
        hashes = [self.unique_key(topic, unique_key)] if unique_key else []
        if keys:
            hashes += [self.any_key(topic, key) for key in keys.split(b" ") if key]
        return hashes

    def _learn(self, topic: str, key: bytes) -> int:
        seeds = self._seeds.get(len(key))
        if seeds is None or not key.isascii():
            return utf8_hash_code(key, prefix_hash_code(topic + "#")) & _MASK
        head, counter = key[:-_COUNTER_DIGITS], key[-_COUNTER_DIGITS:]
        found = self._heads.get(head)
        if found is None:
            client = prefix_hash_code(head[:-_TIME_DIGITS].decode("ascii"))
            of_head = (client * _TIME_WEIGHT + _of_digits(head[-_TIME_DIGITS:])) * _COUNTER_WEIGHT & _MASK
            found = self._heads.put(head, (of_head, seeds.entries))
        of_topic = seeds.get(topic)
        if of_topic is None:
            of_topic = prefix_hash_code(topic + "#") * pow(31, len(key), _TWO_TO_32) & _MASK
            seeds.put(topic, of_topic)
        of_counter = self._counters.get(counter)
        if of_counter is None:
            # All counters of clients fit. Other texts of the same length may come, too.
            of_counter = self._counters.put(counter, _of_digits(counter))
        return (of_topic + found[0] + of_counter) & _MASK


def _new_seeds() -> Seeds:
    return BoundedCache(
        "index_key_topics",
        max_entries=_MAX_TOPICS,
        max_bytes=_MAX_TOPICS * 2 * ENTRY_OVERHEAD_BYTES,
        size_of=size_by_key,
    )


def _of_digits(text: bytes) -> int:
    """Return the hash of four or eight ASCII characters, not limited to 32 bits.

    A client's keys change every millisecond, and its counter with each message. Looking pairs of digits up
    takes a third of the time of a loop over the characters.
    """
    try:
        value = _PAIRS[text[:2]] * _PAIR_WEIGHT + _PAIRS[text[2:4]]
        if len(text) == _TIME_DIGITS:
            value = (value * _PAIR_WEIGHT + _PAIRS[text[4:6]]) * _PAIR_WEIGHT + _PAIRS[text[6:]]
    except KeyError:
        return utf8_hash_code(text) & _MASK
    return value


def index_hash(topic: str, key: str) -> int:
    """Return the hash that `key` is looked up by, 0 to 2^31 - 1."""
    return _positive(utf8_hash_code(key.encode("utf-8", "replace"), prefix_hash_code(topic + "#")))


def hashes_by_columns(topic: str, columns: Sequence[bytes]) -> list[int]:
    """Return the hashes of many keys of one length, each 0 to 2^31 - 1.

    `columns` has a byte of each key in every item, and all keys are ASCII. One number holds all hashes, each
    in 64 bits: its arithmetic takes a tenth of the time of a loop over the keys.
    """
    count = len(columns[0])
    common = bytearray()  # what all keys begin with
    for column in columns:
        if column.count(column[0]) != count:
            break
        common.append(column[0])
    hash_of_common = utf8_hash_code(bytes(common), prefix_hash_code(topic + "#"))
    if len(common) == len(columns):
        return [_positive(hash_of_common)] * count
    ones = _in_words([b"\1" * count])
    masks, low_bytes = ones * _MASK, ones * 0xFF
    words = ones * (hash_of_common & _MASK)
    for begin in range(len(common), len(columns), _COLUMNS_IN_A_WORD):
        packed = columns[begin : begin + _COLUMNS_IN_A_WORD]
        characters = _in_words(packed)
        for _ in packed:
            words = words * 31 + (characters & low_bytes)
            characters >>= 16
        words &= masks
    hashes = array("Q", words.to_bytes(count * _WORD_BYTES, sys.byteorder))
    if _SIGN_BIT in hashes:
        return [0 if value == _SIGN_BIT else min(value, _TWO_TO_32 - value) for value in hashes]
    return [value if value < _SIGN_BIT else _TWO_TO_32 - value for value in hashes]


def _in_words(columns: Sequence[bytes]) -> int:
    """Return a number of 64 bits for each key, in the machine's byte order, with up to four columns in it.

    The first column is in the lowest 16 bits, the next one in the 16 bits above, and so on.
    """
    words = bytearray(len(columns[0]) * _WORD_BYTES)
    for number, column in enumerate(columns):
        words[_LOW_BYTE + _NEXT_COLUMN * number :: _WORD_BYTES] = column
    return int.from_bytes(words, sys.byteorder)


def _positive(hash_code: int) -> int:
    """`Math.abs`, but 0 for the smallest integer, which has no positive form."""
    value = abs(hash_code)
    return 0 if value == _SIGN_BIT else value
