"""Hashes of index keys: what a message is found by in the index files.

Apache RocketMQ 5.3.3, IndexService.buildKey and IndexFile.indexKeyHashMethod: the key is `topic#key`, its
hash the absolute value of Java's String.hashCode, and 0 for the one value that has none.
"""

from __future__ import annotations

from typing import Final

from rmq_remoting.java_hash import prefix_hash_code, utf8_hash_code

_MASK: Final = 0xFFFFFFFF
_SIGN_BIT: Final = 0x80000000
_TWO_TO_32: Final = 1 << 32

# The unique keys of clients: address (4 or 16 bytes), process, class loader: 20 or 44 digits that one
# client's keys share; 8 digits of milliseconds; 4 digits of a counter (Apache RocketMQ 5.3.3,
# MessageClientIDSetter).
_UNIQUE_KEY_LENGTHS: Final = frozenset((32, 56))
_TIME_DIGITS: Final = 8
_COUNTER_DIGITS: Final = 4
_TIME_WEIGHT: Final = 31**_TIME_DIGITS
_COUNTER_WEIGHT: Final = 31**_COUNTER_DIGITS
_DIGITS: Final = b"0123456789ABCDEFabcdef"
_PAIRS: Final = {bytes((first, second)): first * 31 + second for first in _DIGITS for second in _DIGITS}
_PAIR_WEIGHT: Final = 31**2
_NOTHING: Final[dict[bytes, int]] = {}

_MAX_COUNTERS: Final = 65536
_MAX_HEADS: Final = 16384


class KeyHasher:
    """Hashes keys; remembers the parts that unique keys have in common. Bounded; for one thread.

    A loop over the characters costs more than all the rest of an index entry. The hash of a text is the sum
    of its parts' hashes, each times a power of 31: so the counter of a unique key is looked up, and
    everything before it, which stays the same for a millisecond of one client.
    """

    __slots__ = ("_counters", "_head_count", "_heads")

    def __init__(self) -> None:
        self._heads: dict[str, dict[bytes, int]] = {}  # topic -> unique key without its counter
        self._head_count = 0
        self._counters: dict[bytes, int] = {}

    def unique_key(self, topic: str, key: bytes) -> int:
        """The hash of a unique key (UTF-8), 0 to 2^31 - 1."""
        try:
            value = (self._heads[topic][key[:-4]] + self._counters[key[-4:]]) & _MASK
        except KeyError:
            value = self._learn(topic, key)
        if value < _SIGN_BIT:
            return value
        return _TWO_TO_32 - value if value != _SIGN_BIT else 0

    def any_key(self, topic: str, key: bytes) -> int:
        """The hash of a key of any form (UTF-8), 0 to 2^31 - 1."""
        return _positive(utf8_hash_code(key, prefix_hash_code(topic + "#")))

    def all_keys(self, topic: str, unique_key: bytes, keys: bytes) -> list[int]:
        """The hashes of all that a message is found by: its unique key, and its keys, split by spaces."""
        hashes = [self.unique_key(topic, unique_key)] if unique_key else []
        if keys:
            hashes += [self.any_key(topic, key) for key in keys.split(b" ") if key]
        return hashes

    def _learn(self, topic: str, key: bytes) -> int:
        if len(key) not in _UNIQUE_KEY_LENGTHS or not key.isascii():
            return utf8_hash_code(key, prefix_hash_code(topic + "#")) & _MASK
        head, counter = key[:-_COUNTER_DIGITS], key[-_COUNTER_DIGITS:]
        of_head = self._heads.get(topic, _NOTHING).get(head)
        if of_head is None:
            client = head[:-_TIME_DIGITS].decode("ascii")
            seed = prefix_hash_code(client, prefix_hash_code(topic + "#"))
            of_head = (seed * _TIME_WEIGHT + _of_digits(head[-_TIME_DIGITS:])) * _COUNTER_WEIGHT & _MASK
            self._remember_head(topic, head, of_head)
        of_counter = self._counters.get(counter)
        if of_counter is None:
            # All counters of clients fit; texts of the same length that are none may come as well.
            if len(self._counters) >= _MAX_COUNTERS:
                self._counters.clear()
            of_counter = self._counters[counter] = _of_digits(counter)
        return (of_head + of_counter) & _MASK

    def _remember_head(self, topic: str, head: bytes, of_head: int) -> None:
        if self._head_count >= _MAX_HEADS:
            self._heads.clear()
            self._head_count = 0
        self._heads.setdefault(topic, {})[head] = of_head
        self._head_count += 1


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
