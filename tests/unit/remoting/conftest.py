"""Thread pools that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rmq_remoting.tiers import PoolTier


@pytest.fixture
def pools() -> Iterator[Callable[..., PoolTier]]:
    """Create pools, and stop them after the test."""
    made: list[PoolTier] = []

    def make(name: str = "pool", threads: int = 1, capacity: int = 100, max_wait_ms: int = 5000) -> PoolTier:
        made.append(PoolTier(name, threads=threads, capacity=capacity, max_wait_ms=max_wait_ms))
        return made[-1]

    yield make
    for pool in made:
        pool.stop()
