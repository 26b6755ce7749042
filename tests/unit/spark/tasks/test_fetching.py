"""Prefetching with several pulls in flight reads every offset once, whatever the broker answers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.errors import ConnectorError, DataLoss, SourceUnavailable
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.tasks.fetching import Fetched, RangeFetch
from pyspark_rocketmq.tasks.partitions import FetchSettings
from pyspark_rocketmq.tasks.pull_size import PullSize
from pyspark_rocketmq.tasks.ranges import QueueRange
from rmq_client import (
    BrokerUnreachable,
    ClientError,
    MessageQueue,
    PullStatus,
    PullWish,
    RawPull,
    SubscriptionError,
)
from rmq_remoting.codes import ResponseCode
from tests.support.loops import new_loop
from tests.unit.spark.fake_queue import FakeQueue, offsets_in

KEY = QueueKey("T", "broker-a", 0)


async def fetch(
    queue: FakeQueue, begin: int, end: int, size: PullSize | None = None, **settings: object
) -> list[Fetched]:
    """Read all batches of a range."""
    loop = asyncio.get_running_loop()
    settings = {"pulls_in_flight": 4, "pull_max_messages": 64, "batch_messages": 100} | settings
    pull_size = size or PullSize(64)
    wanted = QueueRange(KEY, begin, end)
    fetching = RangeFetch(queue, wanted, FetchSettings(**settings), pull_size, loop.time)  # type: ignore[arg-type]
    fetching.start()
    batches: list[Fetched] = []
    try:
        while (batch := await fetching.next()) is not None:
            batches.append(batch)
    finally:
        await fetching.stop()
    return batches


def counted(batches: list[Fetched]) -> list[int]:
    """Return the offsets within the batches' bounds, in order of arrival."""
    return [
        offset
        for batch in batches
        for offset in offsets_in(batch.bodies)
        if batch.begin <= offset < batch.end
    ]


def check_bounds(batches: list[Fetched], begin: int, end: int) -> None:
    """Check that batches follow each other without a gap."""
    assert [batch.begin for batch in batches] == [begin, *(batch.end for batch in batches[:-1])]
    assert batches[-1].end == end


async def test_range_is_read_completely_and_in_order() -> None:
    queue = FakeQueue(highest=1000)
    batches = await fetch(queue, 17, 903)
    check_bounds(batches, 17, 903)
    assert counted(batches) == list(range(17, 903))
    assert all(100 <= batch.end - batch.begin < 164 for batch in batches[:-1])


async def test_concurrent_pulls_without_duplicates() -> None:
    queue = FakeQueue(highest=10_000, max_count=32)
    batches = await fetch(queue, 0, 3200)
    assert counted(batches) == list(range(3200))
    assert queue.max_in_flight == 4
    offsets = [offset for offset, _ in queue.asked]
    assert len(offsets) == len(set(offsets)) == 100


async def test_filtered_read_keeps_two_pulls_in_flight() -> None:
    queue = FakeQueue(highest=10_000, max_count=32, wanted=frozenset(range(0, 10_000, 10)), look_through=5000)
    batches = await fetch(queue, 0, 10_000, expression="tag")
    assert counted(batches) == list(range(0, 10_000, 10))
    assert queue.max_in_flight == 2
    # 1000 messages of 32 per answer need 32 pulls; a few more are the price of guessed offsets.
    assert len(queue.asked) <= 42


async def test_pull_size_is_kept_for_the_next_range() -> None:
    queue = FakeQueue(highest=1000, max_count=8)
    size = PullSize(64)
    await fetch(queue, 0, 100, size)
    assert size.current == 8
    queue.asked.clear()
    await fetch(queue, 100, 164, size)
    assert [offset for offset, _ in queue.asked] == list(range(100, 164, 8))


async def test_prefetching_is_bounded_by_messages() -> None:
    queue = FakeQueue(highest=10_000, max_count=10)
    fetching = RangeFetch(
        queue, QueueRange(KEY, 0, 10_000), FetchSettings(batch_messages=100), PullSize(10), lambda: 0.0
    )
    fetching.start()
    assert await fetching.next() is not None
    for _ in range(100):
        await asyncio.sleep(0)
    assert 150 <= max(offset for offset, _ in queue.asked) <= 210
    await fetching.stop()


async def test_prefetching_is_bounded_by_bytes() -> None:
    queue = FakeQueue(highest=10_000, max_count=10, message_bytes=1000)
    settings = FetchSettings(batch_bytes=50_000, pulls_in_flight=3)
    fetching = RangeFetch(queue, QueueRange(KEY, 0, 10_000), settings, PullSize(10), lambda: 0.0)
    fetching.start()
    batch = await fetching.next()
    assert batch is not None
    assert 50_000 <= sum(map(len, batch.bodies)) <= 62_000
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(queue.asked) - len(batch.bodies) <= 5 + 3
    await fetching.stop()


@given(data=st.data())
def test_every_offset_is_read_once_whatever_the_broker_answers(data: st.DataObject) -> None:
    draw = data.draw
    highest = draw(st.integers(1, 400))
    begin = draw(st.integers(0, highest - 1))
    end = draw(st.integers(begin + 1, highest))
    filtered = draw(st.booleans())
    queue = FakeQueue(
        highest=highest,
        max_count=draw(st.integers(1, 70)),
        units=1 if filtered else draw(st.integers(1, 9)),
        wanted=frozenset(draw(st.sets(st.integers(0, highest)))) if filtered else None,
        look_through=draw(st.integers(1, 50)),
        seed=draw(st.integers(0, 1000)),
        faults=deque(BrokerUnreachable("away") for _ in range(draw(st.integers(0, 3)))),
    )
    settings = {
        "expression": "tag" if filtered else "*",
        "pulls_in_flight": draw(st.integers(1, 6)),
        "pull_max_messages": draw(st.integers(1, 80)),
        "batch_messages": draw(st.integers(1, 150)),
    }
    size = PullSize(draw(st.integers(1, 80)))
    errors: list[dict[str, object]] = []
    loop = new_loop("virtual-time", errors)
    try:
        batches = loop.run_until_complete(fetch(queue, begin, end, size, **settings))
    finally:
        loop.close()
    assert not errors
    check_bounds(batches, begin, end)
    wanted = [offset for offset in range(begin, end) if queue.wanted is None or offset in queue.wanted]
    assert counted(batches) == wanted


@pytest.mark.virtual_time
async def test_unreachable_broker_is_retried_until_the_timeout() -> None:
    loop = asyncio.get_running_loop()
    queue = FakeQueue(faults=deque(BrokerUnreachable("away") for _ in range(8)))
    assert counted(await fetch(queue, 0, 200)) == list(range(200))
    queue.faults.extend(BrokerUnreachable("away") for _ in range(1000))
    before = loop.time()
    with pytest.raises(SourceUnavailable, match="away"):
        await fetch(queue, 0, 200, unavailable_timeout_seconds=30.0)
    assert loop.time() - before == pytest.approx(30)


@pytest.mark.virtual_time
async def test_permanent_errors_are_not_retried() -> None:
    refusal: ClientError = SubscriptionError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no", "address")
    queue = FakeQueue(faults=deque([refusal]))
    with pytest.raises(SubscriptionError):
        await fetch(queue, 0, 200)
    assert len(queue.asked) == 1


async def test_expired_messages_are_an_error() -> None:
    with pytest.raises(DataLoss, match=r"offset 10 to 49 no longer exist.*holds 50 to 999"):
        await fetch(FakeQueue(lowest=50), 10, 200)


async def test_expired_messages_are_a_warning_without_fail_on_data_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "pyspark_rocketmq.tasks.fetching"):
        batches = await fetch(FakeQueue(lowest=550), 10, 700, PullSize(20), fail_on_data_loss=False)
    check_bounds(batches, 10, 700)
    assert counted(batches) == list(range(550, 700))
    assert sum(batch.lost for batch in batches) == 540
    assert "offset 10 to 549 no longer exist" in caplog.text


async def test_whole_range_has_expired() -> None:
    batches = await fetch(FakeQueue(lowest=550), 10, 30, fail_on_data_loss=False)
    assert [(batch.begin, batch.end, batch.lost, batch.bodies) for batch in batches] == [(10, 30, 20, [])]


@pytest.mark.virtual_time
async def test_queue_shorter_than_planned_gets_a_grace_period() -> None:
    queue = FakeQueue(highest=100)
    loop = asyncio.get_running_loop()
    loop.call_later(3, setattr, queue, "highest", 200)
    assert counted(await fetch(queue, 0, 200)) == list(range(200))
    assert any(wish.from_master for _, wish in queue.asked)
    with pytest.raises(DataLoss, match="offset 200 to 249"):
        await fetch(queue, 0, 250)
    lossy = await fetch(queue, 150, 250, fail_on_data_loss=False)
    assert counted(lossy) == list(range(150, 200))
    assert sum(batch.lost for batch in lossy) == 50


@pytest.mark.virtual_time
async def test_grace_period_applies_after_an_outage() -> None:
    queue = FakeQueue(highest=100, faults=deque(BrokerUnreachable("away") for _ in range(9)))
    asyncio.get_running_loop().call_later(12, setattr, queue, "highest", 200)
    assert counted(await fetch(queue, 100, 200)) == list(range(100, 200))


class LaggingReplica(FakeQueue):
    """Answers for the master, with fewer messages, until loop time `master_at`."""

    master_at = 0.0

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish) -> RawPull:
        if asyncio.get_running_loop().time() >= self.master_at:
            return await super().pull(queue, offset, wish)
        known = FakeQueue(highest=100, max_count=self.max_count)
        return replace(await known.pull(queue, offset, wish), from_master=False)


@pytest.mark.virtual_time
@pytest.mark.parametrize("fails", [True, False])
async def test_lagging_replica_is_retried_until_the_timeout(fails: bool) -> None:
    loop = asyncio.get_running_loop()
    queue = LaggingReplica(highest=200)
    queue.master_at = loop.time() + 20
    batches = await fetch(queue, 0, 200, fail_on_data_loss=fails)
    assert counted(batches) == list(range(200))
    assert sum(batch.lost for batch in batches) == 0
    queue.master_at = loop.time() + 1000
    before = loop.time()
    with pytest.raises(SourceUnavailable, match="offset 100 is part of the plan, but a replica answers"):
        await fetch(queue, 100, 200, unavailable_timeout_seconds=30.0, fail_on_data_loss=fails)
    assert loop.time() - before == pytest.approx(30)


@pytest.mark.virtual_time
async def test_master_gets_a_grace_period_after_a_lagging_replica() -> None:
    loop = asyncio.get_running_loop()
    queue = LaggingReplica(highest=100)
    queue.master_at = loop.time() + 20
    loop.call_later(23, setattr, queue, "highest", 200)
    assert counted(await fetch(queue, 100, 200)) == list(range(100, 200))


@pytest.mark.virtual_time
async def test_group_reset_does_not_move_the_query() -> None:
    queue = FakeQueue(answers=deque([RawPull(PullStatus.OFFSET_ILLEGAL, 700, 0, 1000, b"")]))
    assert counted(await fetch(queue, 0, 100)) == list(range(100))


async def test_messages_deleted_during_the_read_are_reported() -> None:
    removed = RawPull(PullStatus.NO_MATCHED_MESSAGE, 40, 40, 1000, b"")
    with pytest.raises(DataLoss, match="offset 0 to 39"):
        await fetch(FakeQueue(answers=deque([removed])), 0, 100)


async def test_static_topic_is_rejected() -> None:
    answer = RawPull(PullStatus.FOUND, 10, 0, 1000, b"", offset_delta=5)
    with pytest.raises(ConnectorError, match="static topic"):
        await fetch(FakeQueue(answers=deque([answer])), 0, 100)
