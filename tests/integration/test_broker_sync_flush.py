"""Synchronous flushing over the wire: when sends are answered, and when messages become visible."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rmq_broker.store.log.commit_log import CommitLog
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import Message
from tests.support.broker_requests import create_topic, pull, pulled, send, send_batch, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import loop_passes, until

TIMEOUT_MS = 60_000


class Disk:
    """Counts the log's flushes; a gate delays them, an error makes them fail."""

    def __init__(self) -> None:
        self.flushes = 0
        self.waiting = 0
        self.error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()

    def flushed(self) -> None:
        self.waiting += 1
        assert self.gate.wait(60)
        self.waiting -= 1
        if self.error is not None:
            raise self.error
        self.flushes += 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    flush = CommitLog.flush

    def slow_flush(commit_log: CommitLog) -> int:
        reached = flush(commit_log)
        disk.flushed()
        return reached

    monkeypatch.setattr(CommitLog, "flush", slow_flush)
    yield disk
    disk.gate.set()


@pytest.fixture
async def broker(tmp_path: Path, disk: Disk) -> AsyncIterator[RunningBroker]:
    async with running_broker(
        tmp_path,
        flushDiskType="SYNC_FLUSH",
        syncFlushTimeout=TIMEOUT_MS,
        flushIntervalCommitLog=3_600_000,
        flushIntervalConsumeQueue=3_600_000,
    ) as running:
        yield running
        disk.gate.set()


@pytest.fixture
async def client(broker: RunningBroker) -> AsyncIterator[RawClient]:
    async with broker.client() as connected:
        await connected.ask(create_topic("Orders", queues=1))
        yield connected


def visible(broker: RunningBroker) -> int:
    """Return the number of messages that are visible to consumers."""
    return broker.store.max_offset("Orders", 0)


def claimed(broker: RunningBroker) -> int:
    """Return the number of messages that have an offset."""
    queue = broker.store.queues.get("Orders", 0)
    return 0 if queue is None else queue.next_offset


async def bodies(client: RawClient) -> list[bytes]:
    return [message.body for message in pulled(await client.ask(pull("Orders")))]


async def test_answers_and_consumers_wait_for_the_flush(
    broker: RunningBroker, client: RawClient, disk: Disk
) -> None:
    disk.gate.clear()
    async with broker.client() as other:
        client.send(send("Orders", b"one"))
        await until(lambda: disk.waiting)
        other.send(pull("Orders", suspend_ms=30_000))
        await until(lambda: broker.held_pulls.count)
        assert (claimed(broker), visible(broker)) == (1, 0)
        assert broker.store.dispatch_behind_bytes > 0
        disk.gate.set()
        assert sent(await client.receive()).queue_offset == 0
        assert [message.body for message in pulled(await other.receive())] == [b"one"]
    assert broker.store.dispatch_behind_bytes == 0


async def test_one_flush_answers_all_waiting_sends(
    broker: RunningBroker, client: RawClient, disk: Disk
) -> None:
    disk.gate.clear()
    client.send(send("Orders", b"0"))
    await until(lambda: disk.waiting)
    client.send(*[send("Orders", b"%d" % number) for number in range(1, 51)])
    await until(lambda: claimed(broker) == 51)
    await loop_passes()  # each send has requested its flush
    flushes = disk.flushes
    disk.gate.set()
    answers = [await client.receive() for _ in range(51)]
    assert [sent(answer).queue_offset for answer in answers] == list(range(51))
    assert disk.flushes == flushes + 2


async def test_a_producer_that_does_not_wait_is_answered_at_once(
    broker: RunningBroker, client: RawClient, disk: Disk
) -> None:
    disk.gate.clear()
    answer = await client.ask(send("Orders", b"quick", properties={"WAIT": "false"}))
    assert sent(answer).queue_offset == 0
    assert visible(broker) == 0
    disk.gate.set()
    await until(lambda: visible(broker) == 1)


async def test_a_batch_waits_for_the_flush(broker: RunningBroker, client: RawClient, disk: Disk) -> None:
    disk.gate.clear()
    client.send(send_batch("Orders", [Message("Orders", body) for body in (b"a", b"b", b"c")]))
    client.send(send("Orders", b"d"))
    await until(lambda: claimed(broker) == 4)
    assert visible(broker) == 0
    disk.gate.set()
    assert [sent(await client.receive()).queue_offset for _ in range(2)] == [0, 3]
    assert await bodies(client) == [b"a", b"b", b"c", b"d"]


async def test_a_slow_flush_is_answered_flush_disk_timeout(
    broker: RunningBroker, client: RawClient, disk: Disk
) -> None:
    """The message is in the log, and becomes visible when it is flushed later."""
    broker.change(syncFlushTimeout=1)
    disk.gate.clear()
    answer = await client.ask(send("Orders", b"slow"))
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("0", "0")
    assert answer.ext_fields["msgId"]
    assert visible(broker) == 0
    disk.gate.set()
    await until(lambda: visible(broker) == 1)
    assert await bodies(client) == [b"slow"]


async def test_a_failed_flush_is_answered_as_failure(
    broker: RunningBroker, client: RawClient, disk: Disk
) -> None:
    sent(await client.ask(send("Orders", b"good")))
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    answer = await client.ask(send("Orders", b"lost"))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in str(answer.remark)
    disk.error = None
    flushes = disk.flushes
    refused = await client.ask(send("Orders", b"refused"))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "flushing to the disk failed" in str(refused.remark)
    assert disk.flushes == flushes  # a second fsync would succeed without flushing the lost pages
    assert await bodies(client) == [b"good"]  # flushed messages can still be read


async def test_a_stop_answers_waiting_sends(tmp_path: Path, disk: Disk) -> None:
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker, broker.client() as client:
        await client.ask(create_topic("Orders", queues=1))
        disk.gate.clear()
        client.send(send("Orders", b"last"))
        await until(lambda: disk.waiting)
        stop = asyncio.create_task(broker.broker.stop())
        await loop_passes(20)
        disk.gate.set()
        assert sent(await client.receive()).queue_offset == 0
        await stop
    async with running_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker, broker.client() as client:
        assert await bodies(client) == [b"last"]
