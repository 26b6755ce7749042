"""The cache of routes and configurations: shared loads, refreshes in the background, expiry."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client.errors import TopicNotFound
from rmq_proxy.refreshing_cache import RefreshingCache


class Loads:
    """Counts loads; `value` is returned, or raised if it is an error."""

    def __init__(self) -> None:
        self.count = 0
        self.value: int | Exception = 1
        self.now = 0.0

    async def load(self, name: str) -> int:
        self.count += 1
        await asyncio.sleep(0)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def cache(self, most: int = 10) -> RefreshingCache[int]:
        return RefreshingCache(
            "value", self.load, refresh_seconds=20, expire_seconds=300, most=most, clock=lambda: self.now
        )


async def _background() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_concurrent_requests_share_a_load() -> None:
    loads = Loads()
    cache = loads.cache()
    assert await asyncio.gather(*(cache.get("a") for _ in range(5))) == [1] * 5
    assert loads.count == 1


async def test_an_old_value_is_returned_and_loaded_again() -> None:
    loads = Loads()
    cache = loads.cache()
    await cache.get("a")
    loads.value, loads.now = 2, 20.0
    assert await cache.get("a") == 1
    await _background()
    assert await cache.get("a") == 2
    assert loads.count == 2


async def test_a_failed_refresh_keeps_the_value_and_a_failed_load_keeps_nothing() -> None:
    loads = Loads()
    cache = loads.cache()
    await cache.get("a")
    loads.value, loads.now = TopicNotFound("gone"), 20.0
    await cache.get("a")
    await _background()
    assert await cache.get("a") == 1
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            await cache.get("b")
    assert loads.count == 4


async def test_values_expire_after_their_last_use() -> None:
    loads = Loads()
    cache = loads.cache()
    await cache.get("a")
    loads.now, loads.value = 299.0, 2
    assert await cache.get("a") == 1
    await _background()
    loads.now, loads.value = 299.0 + 300.0, 3
    assert await cache.get("a") == 3


async def test_the_least_recently_used_value_is_dropped() -> None:
    loads = Loads()
    cache = loads.cache(most=2)
    for name in ("a", "b", "a", "c", "a"):
        await cache.get(name)
    assert loads.count == 3
    await cache.get("b")
    assert loads.count == 4


async def test_an_outdated_value_is_loaded_at_its_next_use() -> None:
    loads = Loads()
    cache = loads.cache()
    await cache.get("a")
    cache.outdate(lambda value: value == 1)
    loads.value = 2
    assert await cache.get("a") == 1
    await _background()
    assert await cache.get("a") == 2
