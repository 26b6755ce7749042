"""The read of a task, from ranges to Arrow batches, over real connections to an in-memory cluster."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.driver.loss_collector import LossCollector
from pyspark_rocketmq.driver.task_settings import task_settings
from pyspark_rocketmq.errors import DataLoss, RecordDamaged
from pyspark_rocketmq.offsets import QueueKey
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks import task_reading
from pyspark_rocketmq.tasks.connection_pool import ConnectionPool, connection_pool
from pyspark_rocketmq.tasks.loss_reports import LossReport
from pyspark_rocketmq.tasks.partitions import ReportAddress, TaskPartition, TaskSettings
from pyspark_rocketmq.tasks.ranges import QueueRange, ReadTask
from pyspark_rocketmq.tasks.task_reading import read_task
from rmq_remoting.codes import RequestCode
from rmq_remoting.compression import CompressionType
from tests.support.fake_cluster import FakeCluster
from tests.unit.spark.decoding.stored_records import compressed

Row = tuple[int, int, bytes]


@pytest.fixture(autouse=True)
def no_connection_stays() -> Iterator[None]:
    yield
    connection_pool().close()


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    async with FakeCluster({"broker-a": {"T": 3}}) as cluster:
        for number in range(500):
            cluster.broker.put("T", b"%d" % number, number % 3, tags="even" if number % 2 == 0 else "odd")
        yield cluster


def settings(fake: FakeCluster, **given: str) -> TaskSettings:
    options = ReadOptions.for_batch({"rocketmq.namesrv.addr": fake.address, "subscribe": "T", **given})
    return task_settings(options, arrow_schema(["queueId", "queueOffset", "body"]))


def task(*ranges: tuple[int, int, int]) -> ReadTask:
    return ReadTask(
        tuple(QueueRange(QueueKey("T", "broker-a", number), begin, end) for number, begin, end in ranges)
    )


async def read(wanted: ReadTask, how: TaskSettings) -> list[pa.RecordBatch]:
    return await asyncio.to_thread(lambda: list(read_task(wanted, how)))


def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


async def test_ranges_are_read_in_order_and_small_ones_in_one_batch(fake: FakeCluster) -> None:
    wanted = task((2, 10, 40), (0, 0, 5), (1, 160, 167))
    batches = await read(wanted, settings(fake))
    assert len(batches) == 1
    assert batches[0].schema.equals(arrow_schema(["queueId", "queueOffset", "body"]))
    expected = [(2, n, b"%d" % (3 * n + 2)) for n in range(10, 40)]
    expected += [(0, n, b"%d" % (3 * n)) for n in range(5)]
    expected += [(1, n, b"%d" % (3 * n + 1)) for n in range(160, 167)]
    assert rows(batches) == expected


async def test_tasks_share_a_connection(fake: FakeCluster) -> None:
    how = settings(fake)
    await read(task((0, 0, 5)), how)
    await read(task((1, 0, 5)), pickle.loads(pickle.dumps(how)))
    assert fake.broker.connections_opened == 1
    assert len(connection_pool()) == 1


async def test_closing_a_reader_cancels_pulls_in_flight(fake: FakeCluster) -> None:
    def first() -> int:
        reading = read_task(task((0, 0, 160), (1, 0, 160)), settings(fake, batchMessages="10"))
        batch = next(reading)
        reading.close()
        return int(batch.num_rows)

    assert await asyncio.to_thread(first) > 0
    asked = len(fake.broker.requests(RequestCode.PULL_MESSAGE))
    await read(task((2, 0, 5)), settings(fake))
    assert len(fake.broker.requests(RequestCode.PULL_MESSAGE)) == asked + 1


async def test_messages_missing_in_an_answer_are_data_loss(fake: FakeCluster) -> None:
    del fake.broker.queues["T", 0].records[7]  # the others keep their offsets, and a pull skips the gap
    fake.broker.queues["T", 0].records.append(fake.broker.queues["T", 1].records[0])
    with pytest.raises(DataLoss, match=r"T/broker-a/0: 1 of the offsets 0 to 31 had no message"):
        await read(task((0, 0, 32)), settings(fake, pullBatchSize="32"))
    lenient = settings(fake, pullBatchSize="32", failOnDataLoss="false")
    assert len(rows(await read(task((0, 0, 32)), lenient))) == 31


async def test_task_reports_what_it_read_and_what_was_missing(fake: FakeCluster) -> None:
    records = fake.broker.queues["T", 0].records
    del records[7], records[19:22]  # the others keep their offsets, and pulls skip the gaps
    records += fake.broker.queues["T", 1].records[:4]
    collector = await asyncio.to_thread(LossCollector.open, "auto", fake.address)
    assert collector is not None
    try:
        wanted = task((0, 0, 32), (1, 0, 5))
        how = settings(fake, pullBatchSize="32", failOnDataLoss="false")
        reading = read_task(wanted, how, collector.address)
        assert len(rows(await asyncio.to_thread(list, reading))) == 33
        key = QueueKey("T", "broker-a", 0)
        lost = [QueueRange(key, 7, 8), QueueRange(key, 20, 23)]
        assert collector.take() == LossReport(list(wanted.ranges), lost)
    finally:
        await asyncio.to_thread(collector.close)


async def test_driver_that_is_away_does_not_fail_a_task(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    reading = read_task(task((0, 0, 5)), settings(fake), ReportAddress("127.0.0.1", 1, "t"))
    assert len(rows(await asyncio.to_thread(list, reading))) == 5
    assert "losses not reported to the driver" in caplog.text


def test_each_stream_has_a_group_of_its_own() -> None:
    options = ReadOptions.for_stream({"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T"})
    plain = task_settings(options, arrow_schema(["body"]))
    streaming = replace(plain, group_by_query=True)
    first, other = "0b0d5a3c-f21e-4c5e-a6a6-1f0c7d0e4b52", "ffffffff-f21e-4c5e-a6a6-1f0c7d0e4b52"
    group = streaming.of_query(first).connection.group
    assert group == f"{options.group}-0b0d5a3c"
    assert streaming.of_query(first) == streaming.of_query(first) != streaming.of_query(other)
    # Outside of a query, and for batches and a given group, the group is that of the options.
    assert streaming.of_query(None).connection.group == options.group
    assert plain.of_query(first) is plain


def test_partition_survives_pickling() -> None:
    partition = TaskPartition(task((0, 3, 9), (1, 0, 2)), ReportAddress("h", 1, "t"))
    copy = pickle.loads(pickle.dumps(partition))
    assert (copy.task, copy.report_to) == (partition.task, partition.report_to)


async def test_idle_connections_are_closed(fake: FakeCluster) -> None:
    key = settings(fake).connection

    def use() -> tuple[int, int]:
        kept = ConnectionPool(idle_seconds=3600)
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
        timer.function(*timer.args)  # as if the idle time had passed
        return used, len(kept)

    assert await asyncio.to_thread(use) == (1, 0)


async def test_large_bodies_are_concatenated_up_to_the_byte_limit() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        for number in range(100):
            cluster.broker.put("T", b"%03d" % number * 2000, 0)
        batches = await read(task((0, 0, 100)), settings(cluster, batchBytes="65536", pullBatchSize="2"))
    assert [offset for _, offset, _ in rows(batches)] == list(range(100))
    assert len(batches) > 5
    assert max(batch.nbytes for batch in batches) < 100_000


async def test_all_chunks_of_concatenated_batches_are_yielded(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binary column of more than 2 GiB becomes several chunks; here every column does."""

    class Chunked:
        def __init__(self, batches: list[pa.RecordBatch]) -> None:
            self.to_batches = lambda: batches

        from_batches = classmethod(lambda cls, batches: cls(batches))

        def combine_chunks(self) -> Chunked:
            return self

    monkeypatch.setattr(task_reading, "pa", SimpleNamespace(Table=Chunked))
    found = rows(await read(task((0, 0, 40), (1, 0, 40)), settings(fake, batchMessages="10")))
    assert [(queue, offset) for queue, offset, _ in found] == [(q, n) for q in (0, 1) for n in range(40)]


async def test_tags_with_equal_hash_codes_are_distinguished() -> None:
    async with FakeCluster({"broker-a": {"T": 1}}) as cluster:
        for tag in ("Aa", "BB", "C", None, "Aa"):
            cluster.broker.put("T", str(tag).encode(), 0, tags=tag)
        chosen = settings(cluster, subExpression="Aa ||C")
        found = rows(await read(task((0, 0, 5)), chosen))
        assert found == [(0, 0, b"Aa"), (0, 2, b"C"), (0, 4, b"Aa")]


async def test_body_above_the_decompression_limit_is_an_error(fake: FakeCluster) -> None:
    kept = fake.broker.queues["T", 0].records
    kept[3] = compressed(replace(kept[3], body=b"x" * 5000), CompressionType.ZLIB)
    wanted = task((0, 0, 10))
    assert len(rows(await read(wanted, settings(fake, **{"rocketmq.maxUnpackedBodyBytes": "5000"})))) == 10
    with pytest.raises(RecordDamaged, match=r"offset 3.*decompresses to more than the limit of 4999"):
        await read(wanted, settings(fake, **{"rocketmq.maxUnpackedBodyBytes": "4999"}))
