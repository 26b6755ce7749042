"""Workers, drivers and brokers killed while Spark reads: every message is in the output once.

The sink overwrites the result of a repeated batch (foreachBatch to Parquet by batch id). RMQ_SPARK_KILLS sets
the number of kills (`make test-spark-kill`: 20 of each kind).
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.spark.kill.kill_scenario import BatchPhase, KillScenario, kill_scenario
from tests.spark.kill.spark_job import Victim

_KILLS = int(os.environ.get("RMQ_SPARK_KILLS", "0"))
_WORKER_KILLS = _KILLS or 3
_BROKER_KILLS = _KILLS or 3
_DRIVER_KILLS = _KILLS or 2  # each restarts Spark
_MESSAGES = 6000

pytestmark = [
    pytest.mark.timeout(1200 + 60 * _KILLS),
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="finds Spark's processes by Linux's /proc"
    ),
]


@pytest.fixture
def rng() -> random.Random:
    """Random numbers. RMQ_CRASH_SEED repeats a run as far as possible; failing tests print it."""
    seed = int(os.environ.get("RMQ_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"RMQ_CRASH_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
async def stream(java: None, tmp_path: Path, rng: random.Random) -> AsyncIterator[KillScenario]:
    """A running query."""
    async with kill_scenario("stream", tmp_path, rng) as scenario:
        scenario.start_load()
        scenario.job.start()
        yield scenario


@pytest.mark.long
async def test_killed_workers(stream: KillScenario) -> None:
    for _ in range(_WORKER_KILLS):
        await stream.kill_worker()
    print(await stream.check_stream())


@pytest.mark.long
async def test_killed_drivers(stream: KillScenario) -> None:
    phases, victims = list(BatchPhase), list(Victim)
    for number in range(_DRIVER_KILLS):  # nine of them cover all pairs
        phase, victim = phases[number % 3], victims[(number + number // 3) % 3]
        await stream.kill_driver(victim, phase)
    print(await stream.check_stream())


@pytest.mark.long
async def test_killed_brokers(stream: KillScenario) -> None:
    for _ in range(_BROKER_KILLS):
        await stream.kill_broker_of_stream()
    print(await stream.check_stream())


@pytest.mark.long
async def test_killed_broker_in_a_batch_read(java: None, tmp_path: Path, rng: random.Random) -> None:
    async with kill_scenario("batch", tmp_path, rng) as scenario:
        for producer in scenario.producers.values():
            await producer.send(_MESSAGES)
        scenario.job.start()
        await scenario.kill_broker_of_batch()
        await scenario.job.wait()
        print(await scenario.check_output())
