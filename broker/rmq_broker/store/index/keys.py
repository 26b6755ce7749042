"""Hashes of index keys: what a message is found by in the index files.

Apache RocketMQ 5.3.3, IndexService.buildKey and IndexFile.indexKeyHashMethod: the key is `topic#key`, its
hash the absolute value of Java's String.hashCode, and 0 for the one value that has none.
"""

from __future__ import annotations

from typing import Final, TypeVar

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
_TIME_WEIGHT: Final = 31**_TIME_DIGITS
_COUNTER_WEIGHT: Final = 31**_COUNTER_DIGITS
_DIGITS: Final = b"0123456789ABCDEFabcdef"
_PAIRS: Final = {bytes((first, second)): first * 31 + second for first in _DIGITS for second in _DIGITS}
_PAIR_WEIGHT: Final = 31**2

_MAX_COUNTERS: Final = 65536
_MAX_HEADS: Final = 16384
_MAX_TOPICS: Final = 65536

Key = TypeVar("Key")
Value = TypeVar("Value")

# What the topics add to the hashes of keys of one length.
Seeds = dict[str, int]


class KeyHasher:
    """Hashes keys; remembers the parts that unique keys have in common. Bounded; for one thread.

    A loop over the characters costs more than all the rest of an index entry. The hash of a text is the sum
    of its parts' hashes, each times a power of 31: so three parts are looked up: topic, the counter of the
    unique key, and everything before that, which stays the same for a millisecond of one client.
    """

    __slots__ = ("_counters", "_heads", "_seeds")

    def __init__(self) -> None:
        # Unique key without its counter -> its hash, and where the topics' parts are for keys of its length.
        self._heads: dict[bytes, tuple[int, Seeds]] = {}
        self._counters: dict[bytes, int] = {}
        self._seeds: dict[int, Seeds] = {length: {} for length in _UNIQUE_KEY_LENGTHS}

    def unique_key(self, topic: str, key: bytes) -> int:
        """The hash of a unique key (UTF-8), 0 to 2^31 - 1."""
        try:
            of_head, seeds = self._heads[key[:-4]]
            value = (seeds[topic] + of_head + self._counters[key[-4:]]) & _MASK
        except KeyError:
            value = self._learn(topic, key)
        if value < _SIGN_BIT:
            return value
        return _TWO_TO_32 - value if value != _SIGN_BIT else 0

    def any_key(self, topic: str, key: bytes) -> int:
        """The hash of a key of any form (UTF-8), 0 to 2^31 - 1."""
        if key[:-_COUNTER_DIGITS] in self._heads:  # the unique key of another message: traces have many
            return self.unique_key(topic, key)
        return _positive(utf8_hash_code(key, prefix_hash_code(topic + "#")))

    def all_keys(self, topic: str, unique_key: bytes, keys: bytes) -> list[int]:
        """The hashes of all that a message is found by: its unique key, and its keys, split by spaces."""
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
            found = _remember(self._heads, head, (of_head, seeds), _MAX_HEADS)
        of_topic = seeds.get(topic)
        if of_topic is None:
            of_topic = prefix_hash_code(topic + "#") * pow(31, len(key), _TWO_TO_32) & _MASK
            _remember(seeds, topic, of_topic, _MAX_TOPICS)
        of_counter = self._counters.get(counter)
        if of_counter is None:
            # All counters of clients fit; texts of the same length that are none may come as well.
            of_counter = _remember(self._counters, counter, _of_digits(counter), _MAX_COUNTERS)
        return (of_topic + found[0] + of_counter) & _MASK


def _remember(memory: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    if len(memory) >= most:
        memory.clear()
    memory[key] = value
    return value


def _of_digits(text: bytes) -> int:
    """The hash of four or eight characters, ASCII; not cut to 32 bits.

    A client's keys change every millisecond, and its counter with each message: by pairs of digits this
    takes a third of what a loop over the characters does.
    """
    try:
        value = _PAIRS[text[:2]] * _PAIR_WEIGHT + _PAIRS[text[2:4]]
        if len(text) == _TIME_DIGITS:
            value = (value * _PAIR_WEIGHT + _PAIRS[text[4:6]]) * _PAIR_WEIGHT + _PAIRS[text[6:]]
    except KeyError:
        return utf8_hash_code(text) & _MASK
    return value


def index_hash(topic: str, key: str) -> int:
    """The hash that `key` is looked up by, 0 to 2^31 - 1."""
    return _positive(utf8_hash_code(key.encode("utf-8", "replace"), prefix_hash_code(topic + "#")))


def _positive(hash_code: int) -> int:
    """`Math.abs`, which knows no positive form of the smallest integer: 0 stands for that one."""
    value = abs(hash_code)
    return 0 if value == _SIGN_BIT else value
