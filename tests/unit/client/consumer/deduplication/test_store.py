"""The store in memory: claims, confirmations, bounds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from rmq_client import ClaimResult, MemoryDeduplicationStore

NEW, DONE, BUSY = ClaimResult.NEW, ClaimResult.DONE, ClaimResult.BUSY


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_key_is_new_then_busy_then_done() -> None:
    store = MemoryDeduplicationStore()
    assert await store.claim("k", "a", 10) is NEW
    assert await store.claim("k", "b", 10) is BUSY
    assert await store.claim("k", "a", 10) is BUSY
    await store.confirm("k", "a")
    assert await store.claim("k", "b", 10) is DONE
    assert await store.claim("other", "b", 10) is NEW


async def test_a_released_key_is_new_again() -> None:
    store = MemoryDeduplicationStore()
    await store.claim("k", "a", 10)
    await store.release("k", "a")
    assert await store.claim("k", "b", 10) is NEW


async def test_a_claim_ends_with_its_lease_and_its_owner_cannot_release_the_next_one() -> None:
    clock = _Clock()
    store = MemoryDeduplicationStore(now=clock)
    await store.claim("k", "a", 10)
    clock.now = 9.9
    assert await store.claim("k", "b", 10) is BUSY
    clock.now = 10
    assert await store.claim("k", "b", 10) is NEW
    await store.release("k", "a")
    assert await store.claim("k", "c", 10) is BUSY
    await store.confirm("k", "a")
    assert await store.claim("k", "c", 10) is DONE, "the message was processed, if late"


async def test_keys_are_forgotten_by_age() -> None:
    clock = _Clock()
    store = MemoryDeduplicationStore(max_age_seconds=60, now=clock)
    await store.confirm("k", "a")
    clock.now = 59.9
    assert await store.claim("k", "b", 10) is DONE
    clock.now = 60
    assert await store.claim("k", "b", 10) is NEW
    await store.confirm("other", "a")
    assert len(store) == 1


async def test_the_least_recently_used_key_is_forgotten_first() -> None:
    store = MemoryDeduplicationStore(max_keys=2)
    for key in ("a", "b"):
        await store.confirm(key, "t")
    assert await store.claim("a", "t", 10) is DONE
    await store.confirm("c", "t")
    assert len(store) == 2
    assert await store.claim("a", "t", 10) is DONE
    assert await store.claim("b", "t", 10) is NEW


def test_of_many_threads_one_gets_a_key() -> None:
    store = MemoryDeduplicationStore()

    def claim(token: int) -> ClaimResult:
        return asyncio.run(store.claim("k", str(token), 10))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(claim, range(40)))
    assert sorted(one.value for one in found) == ["BUSY"] * 39 + ["NEW"]
