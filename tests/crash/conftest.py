"""Fixtures of the crash tests: the seed and the flush modes."""

from __future__ import annotations

import os
import random

import pytest

from tests.crash.brokers import FLUSH_MODES


@pytest.fixture
def seed() -> int:
    """A new random seed; RMQ_CRASH_SEED repeats the random choices of a run. Failing tests print it."""
    seed = int(os.environ.get("RMQ_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"RMQ_CRASH_SEED={seed}")
    return seed


@pytest.fixture(params=FLUSH_MODES)
def flush_mode(request: pytest.FixtureRequest) -> str:
    """Each value of flushDiskType."""
    mode: str = request.param
    return mode
