"""Metrics of bounded caches."""

from __future__ import annotations

from rmq_remoting.bounded_cache import BoundedCache
from rmq_remoting.daemon.cache_metrics import CacheCollector
from rmq_remoting.daemon.exposition import render


def cache_named(name: str, max_entries: int = 2) -> BoundedCache[int, int]:
    return BoundedCache(name, max_entries=max_entries, max_bytes=1000, size_of=lambda *_: 100)


def test_caches_are_reported_by_name_and_those_of_one_name_are_summed() -> None:
    routes, first, second = cache_named("routes"), cache_named("headers"), cache_named("headers", 5)
    for cache in (routes, first, second):
        for number in range(3):
            cache.put(number, number)
    lines = set("".join(render(CacheCollector([routes, first, second]).collect(), {})).splitlines())
    assert lines >= {
        'rmq_cache_entries{cache="routes"} 1',
        'rmq_cache_bytes{cache="routes"} 100',
        'rmq_cache_max_entries{cache="routes"} 2',
        'rmq_cache_max_bytes{cache="routes"} 1000',
        'rmq_cache_insertions_total{cache="routes"} 3',
        'rmq_cache_evictions_total{cache="routes"} 2',
        'rmq_cache_entries{cache="headers"} 4',
        'rmq_cache_evictions_total{cache="headers"} 2',
        "# TYPE rmq_cache_evictions_total counter",
        "# TYPE rmq_cache_bytes gauge",
    }


def test_without_caches_there_are_no_series() -> None:
    text = "".join(render(CacheCollector([]).collect(), {}))
    assert all(line.startswith("#") for line in text.splitlines())
