"""When a replica takes over which part, and what it does if its master is away or refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_broker.replication.metadata.log_barrier import LogBarrier
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.metrics import MetadataCollector
from rmq_broker.replication.metadata.sync import MetadataSync
from tests.support.fake_master import FakeMaster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_time
_HELD = "offsets"


class _Part:
    """A part that counts, and fails if it is told to."""

    def __init__(self, name: str, *, is_versioned: bool = False, barrier: LogBarrier | None = None) -> None:
        self.name = name
        self.period_seconds = 10.0
        self.is_versioned = is_versioned
        self.synced_from: list[str] = []
        self.applied = 0
        self.changes = 0
        self.error: Exception | None = None
        self._barrier = barrier

    async def sync(self, master: Master) -> None:
        self.synced_from.append(master.address)
        if self.error is not None:
            raise self.error
        if self._barrier is not None:
            self._barrier.hold(self.name, self._apply)

    async def _apply(self) -> None:
        self.applied += 1

    def master_changed(self) -> None:
        self.changes += 1


class _Replica:
    """Three parts: one whose changes the master tells of, one that waits for the log, and a plain one."""

    def __init__(self) -> None:
        self.client = FakeMaster()
        self.address: str | None = "m:1"
        self.flushed = 0
        self.looks = 0
        self.look_error: OSError | None = None
        barrier = LogBarrier(lambda: self.flushed)
        self.topics = _Part("topics", is_versioned=True)
        self.offsets = _Part(_HELD, barrier=barrier)
        self.modes = _Part("modes")
        loop = asyncio.get_running_loop()
        self.sync = MetadataSync(
            self.client,
            lambda: self.address,
            (self.topics, self.offsets, self.modes),
            barrier,
            lambda: int(loop.time() * 1000),
            self._look,
        )

    def _look(self) -> None:
        self.looks += 1
        if self.look_error is not None:
            raise self.look_error

    @property
    def counts(self) -> tuple[int, int, int]:
        parts = (self.topics, self.offsets, self.modes)
        topics, offsets, modes = (len(part.synced_from) for part in parts)
        return topics, offsets, modes


@asynccontextmanager
async def _running() -> AsyncIterator[_Replica]:
    replica = _Replica()
    task = asyncio.get_running_loop().create_task(replica.sync.run())
    try:
        yield replica
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_everything_is_taken_over_at_once_and_then_every_10_s() -> None:
    async with _running() as replica:
        await asyncio.sleep(0.5)
        assert replica.counts == (1, 1, 1)
        assert replica.offsets.applied == 1
        await asyncio.sleep(9)
        assert replica.counts == (1, 1, 1)
        await asyncio.sleep(2)
        assert replica.counts == (2, 2, 2)


async def test_a_wake_takes_over_everything() -> None:
    async with _running() as replica:
        await asyncio.sleep(0.5)
        replica.sync.wake()
        await asyncio.sleep(0.1)
        assert replica.counts == (2, 2, 2)


async def test_a_change_on_a_master_of_this_version_is_taken_over_within_a_second() -> None:
    async with _running() as replica:
        replica.client.metadata_version = "1.1.0"
        await asyncio.sleep(3.5)
        # Twice, because something may have changed before the version was known.
        assert replica.counts == (2, 1, 1)
        replica.client.metadata_version = "2.1.0"
        await asyncio.sleep(1.1)
        assert replica.counts == (3, 1, 1)
        await asyncio.sleep(2)
        assert replica.counts == (3, 1, 1)


async def test_apaches_master_is_not_asked_for_its_state_without_need() -> None:
    async with _running() as replica:
        await asyncio.sleep(5)
        assert replica.client.asked == [28]  # for the answer that waits for the log


async def test_an_answer_is_applied_when_the_log_has_arrived() -> None:
    async with _running() as replica:
        replica.client.log_end = 100
        await asyncio.sleep(3)
        assert replica.offsets.applied == 0
        replica.flushed = 100
        await asyncio.sleep(1.1)
        assert replica.offsets.applied == 1


@pytest.mark.parametrize("error", [MetadataError("code 16: no"), OSError("no space"), KeyError("a fault")])
async def test_a_part_that_fails_stops_no_other_and_is_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with _running() as replica:
        replica.topics.error = error
        await asyncio.sleep(25)
        assert replica.counts == (3, 3, 3)
        assert caplog.text.count("metadata not taken from the master, retrying part=topics") == 1
        assert "Traceback" in caplog.text if isinstance(error, KeyError) else "Traceback" not in caplog.text
        replica.topics.error = None
        await asyncio.sleep(10)
        assert caplog.text.count("metadata taken from the master again part=topics") == 1
    state = replica.sync.states["topics"]
    assert (state.failures, state.is_failing) == (3, False)


async def test_a_master_that_is_away_is_logged_once_and_taken_over_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with _running() as replica:
        await asyncio.sleep(0.5)
        replica.client.is_away = True
        await asyncio.sleep(60)
        assert replica.counts == (1, 1, 1)
        assert caplog.text.count("retrying part=") == 1
        replica.client.is_away = False
        await asyncio.sleep(1.1)
        assert replica.counts == (2, 2, 2)


async def test_another_master_is_taken_over_from_the_beginning() -> None:
    async with _running() as replica:
        replica.client.log_end = 100
        await asyncio.sleep(0.5)
        replica.address = None
        await asyncio.sleep(2)
        replica.flushed = 100
        await asyncio.sleep(2)
        assert replica.offsets.applied == 0  # the answer of the master before
        replica.address = "n:2"
        await until(lambda: replica.offsets.applied)
        assert replica.topics.synced_from == ["m:1", "n:2"]
        assert replica.topics.changes == 3


async def test_metrics_show_each_part() -> None:
    replica = _Replica()
    replica.topics.error = MetadataError("no")
    replica.client.log_end = 100
    await replica.sync.sync_all()
    now_ms = int(asyncio.get_running_loop().time() * 1000) + 5000
    collector = MetadataCollector(replica.sync, lambda: now_ms)
    families = {family.name: family for family in collector.collect()}
    failing = dict(families["rmq_replica_metadata_failing"].series)
    assert (failing["topics",], failing["modes",]) == (1, 0)
    ages = dict(families["rmq_replica_metadata_age_seconds"].series)
    assert ("topics",) not in ages and ages["modes",] == pytest.approx(5, abs=0.1)
    assert dict(families["rmq_replica_metadata_failures_total"].series)["topics",] == 1
    assert families["rmq_replica_metadata_waiting"].series == [((), 1)]


async def test_all_parts_can_be_taken_over_without_the_task() -> None:
    replica = _Replica()
    await replica.sync.sync_all()
    await replica.sync.sync_all()
    assert replica.counts == (2, 2, 2)
    assert replica.offsets.applied == 2


async def test_new_topics_are_looked_for_while_the_master_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async with _running() as replica:
        await asyncio.sleep(3)
        assert replica.looks == 0
        replica.client.is_away = True
        replica.look_error = OSError("no queues")
        await asyncio.sleep(1.1)
        assert "topics that are new to this replica stay unknown cause=no queues" in caplog.text
        replica.look_error = None
        await asyncio.sleep(3)
        assert replica.looks in (4, 5)
        replica.client.is_away = False
        await asyncio.sleep(1.1)
        before = replica.looks
        await asyncio.sleep(5)
        assert replica.looks == before
