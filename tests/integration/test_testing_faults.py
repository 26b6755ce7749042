"""`rmq_testing`: faults to order, connections that are cut, kills and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_client import (
    BrokerUnreachable,
    Busy,
    ClientError,
    Message,
    MessageExt,
    PermissionDenied,
    Producer,
    PushConsumer,
    RetryPolicy,
    TimedOut,
)
from rmq_testing import BrokerForTests, ResponseCode
from tests.support.push_consumers import QUICK

_ONCE = RetryPolicy(retries=0)


def _producer(broker: BrokerForTests, retry: RetryPolicy = _ONCE, timeout_seconds: float = 3.0) -> Producer:
    return Producer(broker.namesrv_address, group="p", retry=retry, timeout_seconds=timeout_seconds)


async def test_a_refused_send_raises_and_stores_nothing(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    fault = rmq_broker.faults.refuse("send", ResponseCode.NO_PERMISSION, "not today")
    async with _producer(rmq_broker) as producer:
        with pytest.raises(PermissionDenied, match="not today"):
            await producer.send(Message(rmq_topic, b"1"))
        await producer.send(Message(rmq_topic, b"2"))
    assert fault.met == 1
    assert [message.body for message in await rmq_broker.expect(rmq_topic)] == [b"2"]


async def test_a_busy_broker_is_retried(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    fault = rmq_broker.faults.busy("send", times=2)
    async with _producer(rmq_broker) as producer:
        with pytest.raises(Busy):
            await producer.send(Message(rmq_topic, b"1"))
    async with _producer(rmq_broker, RetryPolicy(retries=1)) as producer:
        await producer.send(Message(rmq_topic, b"2"))
    assert fault.met == 2


@pytest.mark.parametrize("after", [False, True])
async def test_a_cut_connection_leaves_open_whether_the_message_is_stored(
    rmq_broker: BrokerForTests, rmq_topic: str, after: bool
) -> None:
    rmq_broker.faults.cut("send", after=after)
    async with _producer(rmq_broker) as producer:
        with pytest.raises(BrokerUnreachable) as failed:
            await producer.send(Message(rmq_topic, b"1"))
    assert failed.value.is_outcome_unknown
    assert len(await rmq_broker.messages(rmq_topic)) == (1 if after else 0)


async def test_silence_times_out(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    rmq_broker.faults.silence("send", after=True)
    async with _producer(rmq_broker, timeout_seconds=0.2) as producer:
        with pytest.raises(TimedOut):
            await producer.send(Message(rmq_topic, b"1"))
    await rmq_broker.expect(rmq_topic)


async def test_a_delay_ends_when_time_is_advanced(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    fault = rmq_broker.faults.delay("send", 3600)
    async with _producer(rmq_broker, timeout_seconds=30) as producer:
        sending = asyncio.create_task(producer.send(Message(rmq_topic, b"1")))
        while not fault.met:  # noqa: ASYNC110  # the broker's thread counts
            await asyncio.sleep(0.001)
        await rmq_broker.expect_nothing(rmq_topic, within_seconds=0.02)
        await rmq_broker.advance(3600)
        await sending


async def test_a_fault_of_a_topic_spares_the_others(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    await rmq_broker.create_topic("spared")
    with rmq_broker.faults.refuse("send", times=None, topic=rmq_topic) as fault:
        async with _producer(rmq_broker) as producer:
            await producer.send(Message("spared", b"x"))
            for _ in range(2):
                with pytest.raises(ClientError):
                    await producer.send(Message(rmq_topic, b"x"))
            fault.cancel()
            await producer.send(Message(rmq_topic, b"x"))
    assert fault.met == 2


async def test_the_name_server_has_faults_too(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    rmq_broker.faults.refuse("route", times=None)
    async with _producer(rmq_broker) as producer:
        with pytest.raises(ClientError, match="as ordered by the test"):
            await producer.send(Message(rmq_topic, b"x"))


def test_wrong_orders_are_refused(rmq_blocking_broker: BrokerForTests) -> None:
    faults = rmq_blocking_broker.faults
    with pytest.raises(ValueError, match="operation='sned': known are send, pull, "):
        faults.busy("sned")
    with pytest.raises(ValueError, match="times=0: must be at least 1"):
        faults.busy("send", times=0)
    with pytest.raises(ValueError, match="seconds=0: must be above 0"):
        faults.delay("send", 0)
    with pytest.raises(ValueError, match="operation=12: faults cannot meet queries"):
        faults.refuse(12)


async def test_a_consumer_survives_cut_connections(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    got = asyncio.Event()

    async def listener(messages: list[MessageExt]) -> None:
        got.set()

    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        listener=listener,
        consume_from="first",
        timing=QUICK,
    ):
        await rmq_broker.publish(rmq_topic, b"before")
        await rmq_broker.consumed(rmq_group)
        got.clear()
        await rmq_broker.cut_connections()
        await rmq_broker.publish(rmq_topic, b"after")
        await asyncio.wait_for(got.wait(), 10)


async def test_a_killed_broker_keeps_its_messages_and_forgets_late_offsets(tmp_path: Path) -> None:
    async with BrokerForTests(topics={"orders": 1}, folder=tmp_path) as broker:
        await broker.publish("orders", b"1")

        async def refuse(messages: list[MessageExt]) -> None:
            pass

        consumer = PushConsumer(
            broker.namesrv_address,
            group="g",
            topics=["orders"],
            listener=refuse,
            consume_from="first",
            timing=QUICK,
        )
        async with consumer:
            await broker.consumed("g")
        address = broker.broker_address
        await broker.kill()
        assert not broker.is_running
        with pytest.raises(RuntimeError, match="call restart\\(\\) after kill\\(\\)"):
            await broker.publish("orders", b"2")
        with pytest.raises(AssertionError, match="the test has killed it"):
            await broker.expect("orders", 2, timeout_seconds=0)
        async with _producer(broker, timeout_seconds=0.5) as producer:
            with pytest.raises(ClientError):
                await producer.send(Message("orders", b"2"))

        await broker.restart()
        assert broker.broker_address == address
        assert [message.body for message in await broker.expect("orders")] == [b"1"]
        again: list[bytes] = []

        async def listener(messages: list[MessageExt]) -> None:
            again.extend(message.body for message in messages)

        async with PushConsumer(
            broker.namesrv_address,
            group="g",
            topics=["orders"],
            listener=listener,
            consume_from="first",
            timing=QUICK,
        ):
            await broker.consumed("g")
    # The offset was committed, and not written before the kill: the message is redelivered.
    assert again == [b"1"]


async def test_the_broker_of_the_session_is_started_again_after_a_kill(
    request: pytest.FixtureRequest, rmq_topic: str
) -> None:
    server = request.getfixturevalue("rmq_server")
    broker = await asyncio.to_thread(BrokerForTests.sharing, server)
    broker.faults.busy("send", times=None)
    await broker.kill()
    await asyncio.to_thread(server.end_test)
    async with _producer(broker) as producer:
        await producer.send(Message(rmq_topic, b"x"))
