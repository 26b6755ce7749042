"""Metrics of the bounded caches of a daemon's parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..bounded_cache import BoundedCache
from .exposition import Family, Field

_FIELDS: Final = {
    "entries": Field("rmq_cache_entries", "gauge", "Entries in a cache now."),
    "size_bytes": Field("rmq_cache_bytes", "gauge", "Bytes that the entries of a cache take, estimated."),
    "max_entries": Field("rmq_cache_max_entries", "gauge", "Bound of a cache in entries."),
    "max_bytes": Field("rmq_cache_max_bytes", "gauge", "Bound of a cache in bytes."),
    "insertions": Field(
        "rmq_cache_insertions_total", "counter", "Entries put into a cache: misses that were kept."
    ),
    "evictions": Field(
        "rmq_cache_evictions_total", "counter", "Entries evicted because a bound of the cache was reached."
    ),
}


class CacheCollector:
    """The caches of one daemon, by name. Caches of the same name are summed.

    Each part that owns caches has them in an attribute `caches`; the daemon hands those of all its parts to
    this collector. There is no registry of all caches of the process, because a process may hold a name
    server, a broker and clients, each with metrics of its own.
    """

    def __init__(self, caches: Iterable[BoundedCache[Any, Any]]) -> None:
        self._caches = list(caches)

    def collect(self) -> Iterable[Family]:
        """Entries, bytes, bounds, insertions and evictions by cache."""
        for attribute, field in _FIELDS.items():
            sums: dict[tuple[str, ...], int] = {}
            for cache in self._caches:
                value = len(cache) if attribute == "entries" else getattr(cache, attribute)
                labels = (cache.name,)
                sums[labels] = sums.get(labels, 0) + value
            yield Family(field.name, field.kind, field.meaning, list(sums.items()), ("cache",))
