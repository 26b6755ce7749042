"""Isolation between clients: full and blocked tiers, and clients that misbehave."""

from __future__ import annotations

import asyncio
import struct
import threading
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.framing import encode_frame
from rmq_remoting.tiers import PoolTier, Tier
from tests.support.broker_requests import create_topic, pull, pulled, request, send, sent
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.rows import each_row
from tests.support.waiting import until

_LONG_MS = 20_000


def _tier(broker: RunningBroker, name: str) -> Tier:
    return {tier.name: tier for tier in broker.broker.listeners.main.dispatcher.tiers()}[name]


# --- tiers ---


async def test_held_pulls_take_nothing_from_the_capacity_of_their_tier(tmp_path: Path) -> None:
    async with running_broker(tmp_path, pullThreadPoolQueueCapacity=1) as broker, broker.client() as client:
        await client.ask(create_topic("T", 4))
        client.send(*[pull("T", queue_id=queue, suspend_ms=_LONG_MS) for queue in range(3)])
        await until(lambda: broker.held_pulls.count == 3)
        tier = _tier(broker, "pull").statistics
        assert (tier.held, tier.waiting) == (3, 0)
        assert (await client.ask(pull("T", queue_id=3))).code == ResponseCode.PULL_NOT_FOUND
        async with broker.client() as producer:
            sent(await producer.ask(send("T", queue_id=0)))
        assert len(pulled(await client.receive())) == 1
        assert (tier.held, tier.rejected_full) == (2, 0)


async def test_a_pull_over_the_bound_of_held_ones_is_refused_unless_there_is_a_message(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, maxHeldPulls=3) as broker, broker.client() as client:
        await client.ask(create_topic("T", 4))
        sent(await client.ask(send("T", queue_id=3)))
        client.send(*[pull("T", queue_id=queue, suspend_ms=_LONG_MS) for queue in range(3)])
        await until(lambda: broker.held_pulls.count == 3)

        assert len(pulled(await client.ask(pull("T", queue_id=3, suspend_ms=_LONG_MS)))) == 1
        refused = await client.ask(pull("T", queue_id=3, offset=1, suspend_ms=_LONG_MS))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert str(refused.remark).startswith(
            "[REJECTREQUEST]system busy: 3 pulls without a message are held"
        )
        assert broker.held_pulls.refused == 1

        lite = await client.ask(pull("T", queue_id=2, code=Code.LITE_PULL_MESSAGE))
        assert lite.code == ResponseCode.PULL_NOT_FOUND
        async with broker.client() as producer:
            sent(await producer.ask(send("T", queue_id=0)))
        assert len(pulled(await client.receive())) == 1
        # There is a place again.
        client.send(pull("T", queue_id=3, offset=1, suspend_ms=_LONG_MS))
        await until(lambda: broker.held_pulls.count == 3)


async def test_a_blocked_pool_delays_no_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running_broker(tmp_path, adminBrokerThreadPoolNums=2, adminBrokerThreadPoolQueueCapacity=2) as broker,
        broker.client() as client,
        broker.client() as admin,
    ):
        await client.ask(create_topic("T"))
        release, blocked = threading.Event(), threading.Semaphore(0)

        def block(*_: object) -> int:
            blocked.release()
            assert release.wait(60)
            return 0

        monkeypatch.setattr(broker.store, "earliest_store_time", block)
        asked = [request(Code.GET_EARLIEST_MSG_STORETIME, topic="T", queueId=0) for _ in range(5)]
        try:
            for command in asked[:2]:
                admin.send(command)
                await asyncio.to_thread(blocked.acquire)
            admin.send(*asked[2:])  # two wait, the fifth finds the tier full
            refused = await admin.receive()
            assert (refused.opaque, refused.code) == (asked[4].opaque, ResponseCode.SYSTEM_BUSY)

            for number in range(100):
                assert sent(await client.ask(send("T"))).queue_offset == number
            tier = _tier(broker, "admin_reads")
            assert isinstance(tier, PoolTier)
            assert (tier.statistics.waiting, tier.statistics.rejected_full) == (2, 1)
        finally:
            release.set()
        answers = [await admin.receive() for _ in range(4)]
        assert {answer.opaque for answer in answers} == {command.opaque for command in asked[:4]}
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def test_a_request_that_has_waited_too_long_is_refused(tmp_path: Path) -> None:
    """It waits behind many requests of one read, and its client has timed out by then."""
    async with running_broker(tmp_path, waitTimeMillsInSendQueue=1) as broker, broker.client() as client:
        await client.ask(create_topic("T"))
        commands = [send("T", b"x" * 100) for _ in range(3000)]
        client.send(*commands)

        answers = [await client.receive() for _ in commands]

        late = [answer for answer in answers if answer.code != ResponseCode.SUCCESS]
        assert late
        assert all(answer.code == ResponseCode.SYSTEM_BUSY for answer in late)
        assert all("[TIMEOUT_CLEAN_QUEUE]" in str(answer.remark) for answer in late)
        stored = broker.store.max_offset("T", 0)
        assert stored == len(answers) - len(late)


async def test_without_fast_failure_no_request_is_refused_for_its_wait(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, waitTimeMillsInSendQueue=1, brokerFastFailureEnable=False) as broker,
        broker.client() as client,
    ):
        await client.ask(create_topic("T"))
        client.send(*[send("T", b"x" * 100) for _ in range(3000)])
        for _ in range(3000):
            sent(await client.receive())


# --- peers that misbehave ---


@each_row(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\xff\xff\x00\x05hello" + bytes(100),  # not the TLS that it seems to be
        struct.pack(">iI", 0x7FFFFFFF, 10) + b"x" * 100,
        struct.pack(">iI", -5, 10),
        struct.pack(">iI", 100, 0x02000010) + bytes(96),
        struct.pack(">iI", 20, 0x00000010) + b"not JSON at all!",
        struct.pack(">iI", 20, 0x01000010) + b"\xff" * 16,
        b"\x00" * 64,
    ],
)
async def test_garbage_ends_its_own_connection_only(
    broker: RunningBroker, client: RawClient, garbage: bytes
) -> None:
    main = broker.broker.listeners.main

    def failures() -> int:
        return main.statistics.protocol_errors + main.tls_statistics.failed_handshakes

    before = failures()
    async with broker.client() as bad:
        bad.send_bytes(garbage)
        assert await bad.until_closed() == []
    assert failures() == before + 1

    sent(await client.ask(send("T")))


async def test_requests_before_the_garbage_are_answered(broker: RunningBroker) -> None:
    async with broker.client() as bad:
        bad.send_bytes(encode_frame(send("T", b"good")) + b"\xff" * 20)
        (answer,) = await bad.until_closed()
    assert sent(answer).queue_offset == 0
    assert broker.store.max_offset("T", 0) == 1


async def test_half_a_frame_delays_no_other_connection(broker: RunningBroker, client: RawClient) -> None:
    frame = encode_frame(send("T", b"in two parts"))
    async with broker.client() as slow, broker.client() as leaving:
        slow.send_bytes(frame[:-5])
        leaving.send_bytes(frame[:30])
        leaving.writer.transport.abort()
        sent(await client.ask(send("T", b"whole")))

        slow.send_bytes(frame[-5:])
        assert sent(await slow.receive()).queue_offset == 1
    assert [message.body for message in pulled(await client.ask(pull("T")))] == [b"whole", b"in two parts"]


async def test_a_client_that_never_reads_is_not_read_from(tmp_path: Path) -> None:
    marks = {"writeBufferHighWaterMark": 100_000, "writeBufferLowWaterMark": 10_000}
    async with running_broker(tmp_path, **marks) as broker, broker.client() as client:
        for _ in range(4):
            sent(await client.ask(send("T", b"x" * 60_000)))
        async with broker.client() as deaf:
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            wanted = [pull("T") for _ in range(200)]  # 48 MB of answers
            deaf.send(*wanted)
            await until(lambda: broker.broker.listeners.main.statistics.reads_paused > 0)
            bounded = broker.broker.listeners.main.statistics.bytes_written

            for number in range(50):
                assert sent(await client.ask(send("U"))).queue_offset == number
            # Unsent messages stay in the log, not in the broker's memory.
            assert broker.broker.listeners.main.statistics.bytes_written - bounded < 1_000_000
            assert bounded < 20_000_000

            deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
            answers = {(await deaf.receive()).opaque for _ in wanted}
            assert answers == {command.opaque for command in wanted}


async def test_held_pulls_of_a_client_that_never_reads_do_not_pile_up(tmp_path: Path) -> None:
    marks = {"writeBufferHighWaterMark": 100_000, "writeBufferLowWaterMark": 10_000}
    async with running_broker(tmp_path, **marks) as broker, broker.client() as client:
        await client.ask(create_topic("T"))
        held = broker.held_pulls
        async with broker.client() as deaf:
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.send(*[pull("T", suspend_ms=_LONG_MS) for _ in range(2000)])
            await until(lambda: held.count == 2000)

            sent(await client.ask(send("T", b"x" * 100_000)))
            await until(lambda: broker.broker.listeners.main.statistics.reads_paused > 0)
            assert held.count > 0
            written = broker.broker.listeners.main.statistics.bytes_written
            assert written < 50_000_000  # of 200 MB
            sent(await client.ask(send("U")))

            deaf.writer.transport.resume_reading()  # type: ignore[attr-defined]
            answered = 0
            while answered < 2000:
                await held.check_all()
                assert len(pulled(await deaf.receive())) == 1
                answered += 1
        assert held.count == 0


async def test_many_connections_open_and_close(broker: RunningBroker, client: RawClient) -> None:
    for _ in range(5):
        async with asyncio.TaskGroup() as tasks:
            for number in range(40):
                tasks.create_task(_one_send_and_away(broker, number))
    main = broker.broker.listeners.main
    await until(lambda: main.open_connections == 1)  # the fixture's, which has sent nothing
    assert main.statistics.opened == 200
    reach = [broker.store.max_offset("T", queue) for queue in range(4)]
    assert sum(reach) == 200


async def _one_send_and_away(broker: RunningBroker, number: int) -> None:
    async with broker.client() as client:
        sent(await client.ask(send("T", queue_id=number % 4)))


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, serverChannelMaxIdleTimeSeconds=1) as broker:
        async with broker.client() as idle:
            assert await idle.until_closed() == []
        assert broker.broker.listeners.main.statistics.idle_closed == 1
