"""A cache with a name, a bound in entries and a bound in bytes, for values that are cheap to compute again.

Eviction: a new entry that does not fit empties the whole cache first. Two alternatives were rejected.

- Least recently used needs bookkeeping at each hit. Here a hit is one dictionary lookup in C, because the
  caches stand on the way of every message.
- Evicting the oldest entries one by one does not save misses. Either way a key that is in use is computed
  again once per `max_entries` insertions. It also leaves holes at the front of the dictionary, and each
  search for the oldest entry walks over all of them.

The bounds are meant to be out of reach of normal load. Evictions show that keys vary without end (a client
that never repeats a name, for example) or that a bound is too low. `rmq_cache_evictions_total` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

# Estimate of what CPython needs for a dictionary slot, the objects' heads and a small value.
ENTRY_OVERHEAD_BYTES: Final = 256


def size_by_key(key: Sized, value: object) -> int:
    """Return the estimated size of an entry, in bytes, from the length of its key; the value is small."""
    return ENTRY_OVERHEAD_BYTES + len(key)


def size_of_small(key: object, value: object) -> int:
    """Return the estimated size, in bytes, of an entry whose key and value are small."""
    return ENTRY_OVERHEAD_BYTES


class BoundedCache(Generic[Key, Value]):
    """Values by key, at most `max_entries` of them and `max_bytes` in all.

    `get` and `entries` are the inner dictionary's own: bound once, they stay valid for the cache's life, and
    a hit costs what a dictionary's does. Hits are therefore not counted; each miss that was worth keeping
    shows as an insertion. None cannot be a value, since `get` returns it for an absent key.

    One thread puts; others may read, and may see an entry that is about to be evicted.
    """

    __slots__ = (
        "_entries",
        "_max_entry_bytes",
        "_size_of",
        "entries",
        "evictions",
        "get",
        "insertions",
        "max_bytes",
        "max_entries",
        "name",
        "size_bytes",
    )

    def __init__(
        self,
        name: str,
        *,
        max_entries: int,
        max_bytes: int,
        size_of: Callable[[Key, Value], int],
        max_entry_bytes: int | None = None,
    ) -> None:
        """`name` is the label of the metrics: lower case, words joined by underscores.

        `size_of` returns the bytes that an entry takes; ENTRY_OVERHEAD_BYTES and the lengths of its texts are
        precise enough. It must give the same size for an entry at any time, so it may not look at a part of
        the value that changes. An entry of more than `max_entry_bytes` (by default `max_bytes`) is not kept.
        """
        self.name = name
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self._max_entry_bytes = max_bytes if max_entry_bytes is None else max_entry_bytes
        self._size_of = size_of
        self._entries: dict[Key, Value] = {}
        self.entries: Mapping[Key, Value] = self._entries
        self.get: Callable[[Key], Value | None] = self._entries.get
        self.size_bytes = 0
        self.insertions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def put(self, key: Key, value: Value) -> Value:
        """Keep `value` under `key` in place of a value before it, and return `value`."""
        size_bytes = self._size_of(key, value)
        self.discard(key)
        if size_bytes > self._max_entry_bytes:
            return value
        if len(self._entries) >= self.max_entries or self.size_bytes + size_bytes > self.max_bytes:
            self.evictions += len(self._entries)
            self.clear()
        self._entries[key] = value
        self.size_bytes += size_bytes
        self.insertions += 1
        return value

    def discard(self, key: Key) -> None:
        """Drop the entry of `key`, if there is one."""
        value = self._entries.pop(key, None)
        if value is not None:
            self.size_bytes -= self._size_of(key, value)

    def clear(self) -> None:
        """Drop all entries, because what they were computed from has changed. Not counted as eviction."""
        self._entries.clear()
        self.size_bytes = 0
