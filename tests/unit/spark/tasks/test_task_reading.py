"""A task's way from ranges to Arrow batches, over real connections to a cluster in memory."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa
import pytest

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.planning import QueueRange, ReadTask
from pyspark_rocketmq.errors import DataLoss
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks.connections import Connections, connections
from pyspark_rocketmq.tasks.task_reading import TaskPartition, TaskSettings, read_task
from rmq_remoting.codes import RequestCode
from tests.unit.client.fake_cluster import FakeCluster

Row = tuple[int, int, bytes]


@pytest.fixture(autouse=True)
def no_connection_stays() -> Iterator[None]:
    yield
    connections().close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with FakeCluster({"broker-a": {"T": 3}}) as cluster:
        for number in range(500):
            cluster.broker.put("T", b"%d" % number, number % 3, tags="even" if number % 2 == 0 else "odd")
        yield cluster


def settings(fake: FakeCluster, **given: str) -> TaskSettings:
    options = ReadOptions.for_batch({"rocketmq.namesrv.addr": fake.address, "subscribe": "T", **given})
    return TaskSettings.of(options, arrow_schema(["queueId", "queueOffset", "body"]))


def task(*ranges: tuple[int, int, int]) -> ReadTask:
    return ReadTask(
        tuple(QueueRange(QueueKey("T", "broker-a", number), begin, end) for number, begin, end in ranges)
    )


async def read(wanted: ReadTask, how: TaskSettings) -> list[pa.RecordBatch]:
    return await asyncio.to_thread(lambda: list(read_task(wanted, how)))


def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


async def test_ranges_come_in_order_and_small_ones_in_one_batch(fake: FakeCluster) -> None:
    wanted = task((2, 10, 40), (0, 0, 5), (1, 160, 167))
    batches = await read(wanted, settings(fake))
    assert len(batches) == 1
    assert batches[0].schema.equals(arrow_schema(["queueId", "queueOffset", "body"]))
    expected = [(2, n, b"%d" % (3 * n + 2)) for n in range(10, 40)]
    expected += [(0, n, b"%d" % (3 * n)) for n in range(5)]
    expected += [(1, n, b"%d" % (3 * n + 1)) for n in range(160, 167)]
    assert rows(batches) == expected


async def test_a_connection_serves_many_tasks(fake: FakeCluster) -> None:
    how = settings(fake)
    await read(task((0, 0, 5)), how)
    await read(task((1, 0, 5)), pickle.loads(pickle.dumps(how)))
    assert fake.broker.connections_opened == 1
    assert len(connections()) == 1


async def test_a_reader_that_stops_early_leaves_nothing_under_way(fake: FakeCluster) -> None:
    def first() -> int:
        reading = read_task(task((0, 0, 160), (1, 0, 160)), settings(fake, batchMessages="10"))
        batch = next(reading)
        reading.close()
        return int(batch.num_rows)

    assert await asyncio.to_thread(first) > 0
    asked = len(fake.broker.requests(RequestCode.PULL_MESSAGE))
    await read(task((2, 0, 5)), settings(fake))
    assert len(fake.broker.requests(RequestCode.PULL_MESSAGE)) == asked + 1


async def test_messages_that_a_broker_leaves_out_are_lost(fake: FakeCluster) -> None:
    del fake.broker.queues["T", 0].records[7]  # the others keep their offsets, a pull goes over the place
    fake.broker.queues["T", 0].records.append(fake.broker.queues["T", 1].records[0])
    with pytest.raises(DataLoss, match=r"T/broker-a/0: of the offsets 0 to 31, 1 had no message"):
        await read(task((0, 0, 32)), settings(fake, pullBatchSize="32"))
    lenient = settings(fake, pullBatchSize="32", failOnDataLoss="false")
    assert len(rows(await read(task((0, 0, 32)), lenient))) == 31


def test_a_partition_can_travel() -> None:
    partition = TaskPartition(task((0, 3, 9), (1, 0, 2)))
    copy = pickle.loads(pickle.dumps(partition))
    assert copy.task == partition.task


async def test_connections_end_when_nobody_uses_them(fake: FakeCluster) -> None:
    key = settings(fake).connection

    def use() -> tuple[int, int]:
        kept = Connections(idle_seconds=3600)
        with kept.lease(key) as connection, kept.lease(key) as same:
            assert connection is same
            kept.close()
            used = len(kept)
        timer = connection.timer
        assert timer is not None
        with kept.lease(key):
            assert timer.finished.is_set()
        timer = connection.timer
        assert timer is not None
        timer.cancel()
        timer.function(*timer.args)  # as if the time were over
        return used, len(kept)

    assert await asyncio.to_thread(use) == (1, 0)
