"""`rmq_testing`: delays, timers, redelivery and transaction checks in time that a test advances."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rmq_broker.broker import Broker
from rmq_client import (
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionState,
)
from rmq_testing import BrokerForTests, ExpectationFailed
from rmq_testing.server import Server
from tests.support.push_consumers import QUICK


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        (Message("T", b"level", delay_level=18), 7200),
        (Message("T", b"timer", delay_seconds=90), 91),
    ],
    ids=["delay level", "timer"],
)
async def test_delayed_messages_come_when_time_is_advanced(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_producer: Producer, message: Message, seconds: float
) -> None:
    message.topic = rmq_topic
    await rmq_producer.send(message)
    await rmq_broker.advance(seconds / 2)
    with pytest.raises(ExpectationFailed, match=r"(delayed|waiting for its time): 1 message.*advance\(\)"):
        await rmq_broker.expect(rmq_topic, timeout_seconds=0.05)
    await rmq_broker.advance(seconds / 2 + 1)
    (delivered,) = await rmq_broker.expect(rmq_topic)
    assert delivered.body == message.body


async def test_a_rejected_message_is_redelivered(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    attempts: asyncio.Queue[int] = asyncio.Queue()

    async def listener(messages: list[MessageExt]) -> ConsumeResult:
        (message,) = messages
        attempts.put_nowait(message.reconsume_times)
        return ConsumeResult.SUCCESS if message.reconsume_times == 2 else ConsumeResult.LATER

    async with PushConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        listener=listener,
        consume_from="first",
        timing=QUICK,
    ):
        await rmq_broker.publish(rmq_topic, b"x")
        assert await asyncio.wait_for(attempts.get(), 10) == 0
        for attempt, delay in ((1, 10), (2, 30)):
            await rmq_broker.expect_redelivery(rmq_group)
            await rmq_broker.advance(delay / 2)
            assert attempts.empty()
            await rmq_broker.advance(delay / 2)
            assert await asyncio.wait_for(attempts.get(), 10) == attempt
        await rmq_broker.consumed(rmq_group)


async def test_a_popped_message_becomes_visible_again(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str
) -> None:
    await rmq_broker.publish(rmq_topic, b"popped")
    async with SimpleConsumer(
        rmq_broker.namesrv_address,
        group=rmq_group,
        topics=[rmq_topic],
        consume_from="first",
        invisible_seconds=600,
    ) as consumer:
        (first,) = await consumer.receive(1, timeout_seconds=5)
        await rmq_broker.advance(601)
        (again,) = await consumer.receive(1, timeout_seconds=10)
        assert (again.body, again.reconsume_times) == (first.body, 1)
        await consumer.ack(again)
        await rmq_broker.consumed(rmq_group, rmq_topic)


async def test_an_open_transaction_is_checked(rmq_broker: BrokerForTests, rmq_topic: str) -> None:
    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with Producer(rmq_broker.namesrv_address, group="tx", check_transaction=check) as producer:
        async with producer.transaction(Message(rmq_topic, b"half")) as transaction:
            await transaction.leave_open()
        with pytest.raises(ExpectationFailed, match="in open transactions: 1 message"):
            await rmq_broker.expect(rmq_topic, timeout_seconds=0.05)
        await rmq_broker.advance(60)
        (message,) = await rmq_broker.expect(rmq_topic)
        assert message.body == b"half"


async def test_time_passes_and_is_never_set_back(rmq_broker: BrokerForTests) -> None:
    before_ms = rmq_broker.now_ms()
    await rmq_broker.advance(3600)
    assert rmq_broker.now_ms() - before_ms >= 3_600_000
    await rmq_broker.advance(timedelta(hours=1))
    assert rmq_broker.now_ms() - before_ms >= 7_200_000
    with pytest.raises(ValueError, match="seconds=-1: time cannot be set back"):
        await rmq_broker.advance(-1)
    with pytest.raises(ValueError, match="seconds='1h': must be a number of seconds or a timedelta, not str"):
        await rmq_broker.advance("1h")  # type: ignore[arg-type]


async def test_clients_stay_connected_when_days_pass(
    rmq_broker: BrokerForTests, rmq_server: Server, rmq_topic: str, rmq_producer: Producer
) -> None:
    def peers(broker: Broker) -> set[str]:
        return {connection.peer for connection in broker.listeners.main.connections}

    async def connected() -> set[str]:
        return await asyncio.to_thread(lambda: rmq_server.run(rmq_server.harness.call(peers)))

    await rmq_producer.send(Message(rmq_topic, b"1"))
    before = await connected()
    await rmq_broker.advance(3 * 24 * 3600)
    await rmq_producer.send(Message(rmq_topic, b"2"))
    assert before
    assert before <= await connected()


async def test_due_messages_are_in_their_topics_when_the_advance_ends(
    rmq_broker: BrokerForTests, rmq_topic: str
) -> None:
    for message in (
        Message(rmq_topic, b"level", delay_level=3),
        Message(rmq_topic, b"timer", delay_seconds=8),
    ):
        await rmq_broker.publish(message)
    assert await rmq_broker.messages(rmq_topic) == []
    await rmq_broker.advance(12)
    bodies = {message.body for message in await rmq_broker.messages(rmq_topic)}
    assert bodies == {b"level", b"timer"}
