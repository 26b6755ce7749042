"""A disk that takes its time for each call: only the requests that need it wait, all others are answered.

The event loop itself makes no call that may wait for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message import MessageExt
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.pop_requests import ack, pop, popped
from tests.support.raw_client import RawClient
from tests.support.slow_disk import SlowDisk
from tests.support.waiting import until

_QUEUES: Final = 64
_LOG_FILE_BYTES: Final = 64 * 1024
_BODY_BYTES: Final = 8000
# All periodic writes, as often as can be.
_BUSY: Final[dict[str, object]] = {
    "flushIntervalCommitLog": 10,
    "flushCommitLogLeastPages": 0,
    "flushIntervalConsumeQueue": 10,
    "flushConsumerOffsetInterval": 10,
    "flushDelayOffsetInterval": 10,
    "timerFlushIntervalMs": 10,
    "transactionMetricFlushInterval": 10,
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowDisk]:
    with SlowDisk(tmp_path).installed() as disk:
        yield disk


class _Honest:
    """A client that needs no disk."""

    def __init__(self, broker: RunningBroker, client: RawClient) -> None:
        self._broker = broker
        self._client = client
        self.sent = 0

    async def works(self, rounds: int = 3) -> None:
        """Be answered, also while the disk is stopped."""
        for _ in range(rounds):
            await self.sends()
            await self.consumes()

    async def sends(self) -> None:
        body = b"%d" % self.sent
        assert sent(await self._client.ask(send("Honest", body))).queue_offset == self.sent
        self.sent += 1

    async def consumes(self) -> None:
        ask, last = self._client.ask, self.sent - 1
        succeeded(await ask(heartbeat("honest", None, producer_groups=["PG"])))
        (message,) = pulled(await ask(pull("Honest", offset=last)))
        assert message.body == b"%d" % last
        place = {"consumerGroup": "CG", "topic": "Honest", "queueId": 0}
        succeeded(await ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, **place, commitOffset=last)))
        answer = succeeded(await ask(request(RequestCode.QUERY_CONSUMER_OFFSET, **place)))
        assert answer.ext_fields["offset"] == str(last)

    async def pops(self) -> None:
        """Pop and acknowledge the messages sent so far."""
        found = popped(await self._client.ask(pop("Honest")))
        assert found
        for message in found:
            succeeded(await self._client.ask(ack(message)))


@asynccontextmanager
async def _honest(broker: RunningBroker) -> AsyncIterator[_Honest]:
    """A client whose topic and group exist."""
    async with broker.client() as client:
        succeeded(await client.ask(create_topic("Honest", 1)))
        honest = _Honest(broker, client)
        await honest.works()
        yield honest


async def _is_unanswered(client: RawClient) -> None:
    """Check that a client has no answer yet."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await client.receive()


async def test_a_topic_with_many_queues_is_deleted(tmp_path: Path, disk: SlowDisk) -> None:
    async with running_broker(tmp_path) as broker, _honest(broker) as honest, broker.client() as admin:
        succeeded(await admin.ask(create_topic("Deleted", _QUEUES)))
        for queue_id in range(_QUEUES):
            sent(await admin.ask(send("Deleted", b"old", queue_id=queue_id)))
        await asyncio.to_thread(broker.store.queues.write_out)
        with disk.stopped():
            async with broker.client() as other:
                admin.send(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Deleted"))
                await until(lambda: "Deleted" not in broker.topics and disk.waiting)
                await honest.works()
                # A producer recreates the topic while its files are being removed.
                for offset in range(3):
                    assert sent(await other.ask(send("Deleted", b"new"))).queue_offset == offset
                assert [each.body for each in pulled(await other.ask(pull("Deleted")))] == [b"new"] * 3
                await _is_unanswered(admin)
        succeeded(await admin.receive())
    assert len(list((tmp_path / "store/consumequeue/Deleted").iterdir())) == 1
    async with running_broker(tmp_path) as broker, broker.client() as client:
        assert [each.body for each in pulled(await client.ask(pull("Deleted")))] == [b"new"] * 3
        assert broker.store.max_offset("Deleted", 1) == 0


async def test_files_are_flushed(tmp_path: Path, disk: SlowDisk) -> None:
    """Those of the log, queues, offsets, delayed and timed messages, and the checkpoints."""
    async with running_broker(tmp_path, **_BUSY) as broker, _honest(broker) as honest:
        async with broker.client() as client:
            for kind in ("DELAY", "TIMER_DELAY_SEC", "TRAN_MSG"):
                value = "true" if kind == "TRAN_MSG" else "1"
                sent(await client.ask(send("Other", properties={kind: value})))
        with disk.stopped():
            await honest.works()
            await until(lambda: disk.waiting)
            await honest.works()
            await honest.pops()


async def test_tables_are_saved(tmp_path: Path, disk: SlowDisk) -> None:
    """Each change is answered when it is persisted."""
    async with running_broker(tmp_path) as broker, _honest(broker) as honest, broker.client() as admin:
        group = SubscriptionGroupConfig(group_name="New")
        changes = [
            create_topic("New"),
            request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode()),
            request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="Old", cleanOffset=True),
        ]
        with disk.stopped():
            admin.send(*changes[:2])
            await until(lambda: disk.waiting >= 2)
            await honest.works()
            await _is_unanswered(admin)
        admin.send(changes[2])
        for _ in changes:
            succeeded(await admin.receive())


async def test_old_files_are_deleted(tmp_path: Path, disk: SlowDisk) -> None:
    settings = {
        "mappedFileSizeCommitLog": _LOG_FILE_BYTES,
        "maxIndexNum": 100,
        "fileReservedTime": 0,
        "cleanResourceInterval": 10,
        "deleteCommitLogFilesInterval": 0,
        **_BUSY,
    }
    async with running_broker(tmp_path, **settings) as broker, _honest(broker) as honest:
        async with broker.client() as client:
            for _ in range(5 * _LOG_FILE_BYTES // _BODY_BYTES):
                sent(await client.ask(send("Filled", bytes(_BODY_BYTES), properties={"KEYS": "key"})))
            await until(lambda: broker.store.commit_log.oldest_file is not None)
            with disk.stopped():
                succeeded(await client.ask(request(RequestCode.DELETE_EXPIRED_COMMITLOG)))
                await until(lambda: disk.waiting)
                await honest.works()
        await until(lambda: broker.store.min_offset("Filled", 0) > 0)
        await honest.works()


async def test_index_files_are_begun(tmp_path: Path, disk: SlowDisk) -> None:
    """The index lags, and catches up later."""
    async with (
        running_broker(tmp_path, maxHashSlotNum=10, maxIndexNum=20) as broker,
        _honest(broker) as honest,
    ):
        index = broker.store.index
        await until(lambda: index.end_offset == broker.store.max_phy_offset())
        with disk.stopped():
            await honest.works(rounds=50)
        await until(lambda: index.end_offset == broker.store.max_phy_offset())
        assert index.statistics().files > 2


async def test_bit_maps_of_filters_are_written(tmp_path: Path, disk: SlowDisk) -> None:
    settings = {
        "enablePropertyFilter": "true",
        "enableConsumeQueueExt": "true",
        "enableCalcFilterBitMap": "true",
    }
    async with running_broker(tmp_path, **settings, **_BUSY) as broker, _honest(broker) as honest:
        async with broker.client() as member:
            subscription = {"Filtered": "a > 5"}
            beat = heartbeat("m", "SQL", subscription, sub_version=10, expression_type="SQL92")
            succeeded(await member.ask(create_topic("Filtered", 1)))
            succeeded((await ask_among_notifications(member, beat))[0])
            async with broker.client() as client:
                with disk.stopped():
                    for value in range(10):
                        sent(await client.ask(send("Filtered", b"%d" % value, properties={"a": str(value)})))
                    await honest.works()
        assert broker.store.queue_entries("Filtered", 0, 0, 10)
    assert (tmp_path / "store/consumequeue_ext/Filtered/0").exists()


async def test_metrics_of_timers_that_lag(tmp_path: Path, disk: SlowDisk) -> None:
    settings = {**_BUSY, "timerStopEnqueue": "true"}
    async with running_broker(tmp_path, **settings) as broker, _honest(broker) as honest:
        async with broker.client() as client:
            sent(await client.ask(send("Timed", properties={"TIMER_DELAY_SEC": "60"})))
        with disk.stopped():
            assert broker.services.timers.entering.behind == 1
            assert broker.services.timers.entering.behind_ms() >= 0
            await honest.works()


async def test_the_log_rolls_over(tmp_path: Path, disk: SlowDisk) -> None:
    """Sends wait for the next file, then they are refused; acknowledgements find space."""
    settings = {"mappedFileSizeCommitLog": _LOG_FILE_BYTES, "waitTimeMillsInSendQueue": 200}
    async with running_broker(tmp_path, **settings) as broker, _honest(broker) as honest:
        async with broker.client() as client:
            succeeded(await client.ask(create_topic("Filled", 1)))
            count = 4 * _LOG_FILE_BYTES // _BODY_BYTES
            with disk.stopped():
                client.send(*[send("Filled", _body(number)) for number in range(count)])
                answers = [await client.receive() for _ in range(count)]
                await honest.consumes()
                await honest.pops()
            refused = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
            assert refused and {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
            assert any("has not provided space" in str(answer.remark) for answer in refused)
            await _until_sent(client, send("Filled", b"last"))
            stored = [message.body for message in await _all(client, "Filled", count)]
            assert stored == [
                *[_body(number) for number in range(count - len(refused))],
                b"last",
            ]
        await honest.works()


async def test_sends_wait_for_the_next_file(tmp_path: Path, disk: SlowDisk) -> None:
    """No producer sees an error if the disk needs less time than a send may wait."""
    settings = {"mappedFileSizeCommitLog": _LOG_FILE_BYTES, "waitTimeMillsInSendQueue": 60_000}
    async with running_broker(tmp_path, **settings) as broker, _honest(broker) as honest:
        async with broker.client() as client:
            succeeded(await client.ask(create_topic("Filled", 1)))
            count = 4 * _LOG_FILE_BYTES // _BODY_BYTES
            with disk.stopped():
                client.send(*[send("Filled", _body(number)) for number in range(count)])
                await until(lambda: broker.store.space.is_short)
                await honest.consumes()
            answers = [sent(await client.receive()).queue_offset for _ in range(count)]
            assert answers == list(range(count))
            stored = [message.body for message in await _all(client, "Filled", count)]
            assert stored == [_body(number) for number in range(count)]
        await honest.works()


async def test_the_first_messages_of_a_broker(tmp_path: Path, disk: SlowDisk) -> None:
    """They find a log with space, also after a restart."""
    for offset in range(3):
        async with running_broker(tmp_path) as broker, broker.client() as client:
            with disk.stopped():
                assert sent(await client.ask(send("T", bytes(_BODY_BYTES)))).queue_offset == offset
                assert len(pulled(await client.ask(pull("T", offset=offset)))) == 1


def _body(number: int) -> bytes:
    return (b"%08d" % number).ljust(_BODY_BYTES, b"x")


async def _until_sent(client: RawClient, command: RemotingCommand) -> None:
    """Send a message until the disk has recovered."""
    async with asyncio.timeout(20):
        while (await client.ask(command)).code == ResponseCode.SYSTEM_BUSY:
            pass


async def _all(client: RawClient, topic: str, count: int) -> list[MessageExt]:
    """Pull up to `count` messages of a queue."""
    messages: list[MessageExt] = []
    while len(messages) < count:
        answer = await client.ask(pull(topic, offset=len(messages)))
        if answer.code != ResponseCode.SUCCESS:
            break
        messages += pulled(answer)
    return messages
