"""The wall clock of a running broker is set by hours, forward and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from rmq_broker.clock import Clocks, SteadyClock
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message import MessageExt
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_load import Load, read_all
from tests.support.broker_requests import (
    create_topic,
    heartbeat,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, broker_configuration
from tests.support.pop_requests import pop, popped
from tests.support.raw_client import RawClient
from tests.support.waiting import until

_HOURS = pytest.mark.parametrize("hours", [5, -5])
_EACH_HOUR = ";".join(f"{hour:02d}" for hour in range(24))
_LOG_FILE_BYTES = 256 * 1024
_HOUR_MS = 3_600_000


class _SettableClock:
    """The machine's wall clock, as a test has set it."""

    def __init__(self) -> None:
        self._set_by_seconds = 0
        self.clocks = Clocks(self.now_ms, lambda: time.time() + self._set_by_seconds, SteadyClock())

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._set_by_seconds * 1000

    def set_by(self, hours: int) -> None:
        self._set_by_seconds += hours * 3600


@asynccontextmanager
async def _running(folder: Path, **keys: object) -> AsyncIterator[tuple[RunningBroker, _SettableClock]]:
    clock = _SettableClock()
    broker = RunningBroker(broker_configuration(folder, **keys), clock.clocks)
    try:
        await broker.start()
        yield broker, clock
    finally:
        await broker.stop()


async def _arrives(client: RawClient, topic: str, offset: int = 0) -> MessageExt:
    """The message of an offset, once it is there."""
    async with asyncio.timeout(10):
        while True:
            answer = await client.ask(pull(topic, offset=offset, count=1, suspend_ms=4_000))
            if answer.code == ResponseCode.SUCCESS:
                (message,) = pulled(answer)
                return message


async def test_messages_and_files_stay_through_a_jump_forward_and_back(tmp_path: Path) -> None:
    keys = {
        "mappedFileSizeCommitLog": _LOG_FILE_BYTES,
        "fileReservedTime": 1,
        "deleteWhen": _EACH_HOUR,
        "cleanResourceInterval": 10,
        "deleteCommitLogFilesInterval": 0,
    }
    async with _running(tmp_path, **keys) as (broker, clock):
        cleaning = broker.services.storage.cleaner.statistics
        asked_ms: list[int] = []

        async def cleaned() -> None:
            """Wait for a round of the cleaner that began from now on, and that has ended."""
            for _ in range(2):
                asked_ms.append(clock.now_ms())
                await until(lambda: cleaning.last_round_ms > asked_ms[-1])

        async with Load(broker.port, connections=4, topics=2) as load:
            for hours in (0, 5, -5):
                clock.set_by(hours)
                await load.until_acknowledged(len(load.acknowledged) + 1500)
                await cleaned()
        assert not load.refused
        log_files = list((tmp_path / "store" / "commitlog").iterdir())
        assert len(log_files) > 3
        assert cleaning.log_files_deleted == 0
        stored = await read_all(broker.port, load.queues)
        load.acknowledged.check(stored)
        await _check_reading_by_time(broker, stored)


async def _check_reading_by_time(
    broker: RunningBroker, stored: dict[tuple[str, int], list[MessageExt]]
) -> None:
    """Reading by time begins no later than at the first message of that time or a later one.

    In the queues the store times rise, jump forward, jump back, and rise again.
    """
    async with broker.client() as client:
        for (topic, queue_id), messages in stored.items():
            times = [message.store_timestamp for message in messages]
            ahead_at = next(
                index for index, (one, two) in enumerate(pairwise(times), 1) if two > one + _HOUR_MS
            )
            back_at = next(
                index for index, (one, two) in enumerate(pairwise(times), 1) if two < one - _HOUR_MS
            )
            for offset in range(0, len(messages), 50):
                if ahead_at <= offset < back_at:
                    continue  # stored while the clock was ahead
                answer = await client.ask(
                    request(
                        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                        topic=topic,
                        queueId=queue_id,
                        timestamp=times[offset],
                    )
                )
                assert int(answer.ext_fields["offset"]) <= offset


@_HOURS
async def test_popped_messages_are_redelivered_after_their_invisible_time(tmp_path: Path, hours: int) -> None:
    async with _running(tmp_path) as (broker, clock), broker.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        sent(await client.ask(send("T", b"x")))
        began = time.monotonic()
        (first,) = popped(await client.ask(pop("T", invisible_ms=1000)))
        async with broker.client() as waiting:
            waiting.send(pop("T", poll_ms=4000, born_ms=time.time_ns() // 1_000_000))
            await until(lambda: broker.pops.held_pops.count)
            clock.set_by(hours)
            (again,) = popped(await waiting.receive())
        assert time.monotonic() - began >= 1.0
        assert (first.body, again.body) == (b"x", b"x")
        # The next pop is served by the time of its client, which differs from the broker's.
        sent(await client.ask(send("T", b"y")))
        born_ms = time.time_ns() // 1_000_000
        (other,) = popped(await client.ask(pop("T", poll_ms=4000, born_ms=born_ms)))
        assert other.body == b"y"


@_HOURS
async def test_delayed_messages(tmp_path: Path, hours: int) -> None:
    """A step forward delivers them at once. A step back does not make them wait longer."""
    async with _running(tmp_path) as (broker, clock), broker.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))
        began = time.monotonic()
        sent(await client.ask(send("T", b"x", properties={"DELAY": "1" if hours < 0 else "18"})))
        clock.set_by(hours)
        assert (await _arrives(client, "T")).body == b"x"
        assert hours > 0 or time.monotonic() - began >= 1.0
        began = time.monotonic()
        sent(await client.ask(send("T", b"y", properties={"DELAY": "1"})))
        clock.set_by(-hours)
        assert (await _arrives(client, "T", 1)).body == b"y"
        assert hours < 0 or time.monotonic() - began >= 1.0
        assert broker.store.max_offset("T", 0) == 2


async def test_timed_messages_are_delivered_by_the_wall_clock(tmp_path: Path) -> None:
    async with _running(tmp_path, timerPrecisionMs=100) as (broker, clock), broker.client() as client:
        succeeded(await client.ask(create_topic("T", 1)))

        async def send_timed(body: bytes, in_ms: int) -> None:
            deliver_ms = clock.now_ms() + in_ms
            sent(await client.ask(send("T", body, properties={"TIMER_DELIVER_MS": str(deliver_ms)})))

        await send_timed(b"in an hour", 3_600_000)
        clock.set_by(5)
        assert (await _arrives(client, "T")).body == b"in an hour"
        await send_timed(b"five hours later", 300)
        clock.set_by(-5)
        await send_timed(b"soon", 200)
        message = await _arrives(client, "T", 1)
        assert message.body == b"soon"
        assert message.store_timestamp >= int(message.properties["TIMER_DELIVER_MS"])
        clock.set_by(5)
        message = await _arrives(client, "T", 2)
        assert message.body == b"five hours later"
        assert message.store_timestamp >= int(message.properties["TIMER_DELIVER_MS"])
        assert broker.store.max_offset("T", 0) == 3


@_HOURS
async def test_held_pulls_and_transaction_checks(tmp_path: Path, hours: int) -> None:
    keys = {"transactionTimeOut": 500, "transactionCheckInterval": 20}
    async with (
        _running(tmp_path, **keys) as (broker, clock),
        broker.client() as client,
        broker.client() as producer,
        broker.client() as consumer,
    ):
        succeeded(await client.ask(create_topic("T", 1)))
        succeeded(await producer.ask(heartbeat("p", None, producer_groups=["PG"])))
        began = time.monotonic()
        sent(await client.ask(_half()))
        consumer.send(pull("T", suspend_ms=15_000))
        await until(lambda: broker.held_pulls.count)
        clock.set_by(hours)
        asked = await producer.receive()
        assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
        assert time.monotonic() - began >= 0.5
        assert broker.held_pulls.count == 1
        sent(await client.ask(send("T", b"x")))
        assert [message.body for message in pulled(await consumer.receive())] == [b"x"]
        broker.services.clients.housekeeping.scan()
        assert broker.services.clients.producers.find_group("PG")


def _half() -> RemotingCommand:
    properties = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "one"}
    return send("T", b"one", properties=properties, sys_flag=MessageSysFlag.TRANSACTION_PREPARED, group="PG")
