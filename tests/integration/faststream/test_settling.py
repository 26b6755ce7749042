"""RocketBroker with a real broker: acknowledgements, redelivery and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage, RejectMessage

from rmq_faststream import RocketBroker
from rmq_faststream.annotations import RocketMessage
from rmq_testing import BrokerForTests, ResponseCode
from tests.support.faststream_brokers import FIRST_RETRY_SECONDS, SECONDS, Order, started

# Delay level 5 (Apache RocketMQ 5.3.3, MessageStoreConfig).
_LEVEL_5_SECONDS = 60


async def test_a_failed_message_is_redelivered(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    attempts: list[int] = []

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(order: Order, message: RocketMessage) -> None:
        attempts.append(message.raw_message.delivery_attempt)
        if message.raw_message.delivery_attempt == 1:
            raise ValueError("not now")

    async with started(broker):
        await broker.publish(Order(number=1), rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(FIRST_RETRY_SECONDS)
        await rmq_broker.consumed(rmq_group)
    assert attempts == [1, 2]


async def test_a_handler_chooses_the_delay_of_the_redelivery(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    attempts: list[int] = []

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(body: str, message: RocketMessage) -> None:
        attempts.append(message.raw_message.delivery_attempt)
        if len(attempts) == 1:
            raise NackMessage(delay_level=5)

    async with started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(FIRST_RETRY_SECONDS)
        await rmq_broker.expect_redelivery(rmq_group)  # not due yet
        await rmq_broker.advance(_LEVEL_5_SECONDS - FIRST_RETRY_SECONDS)
        await rmq_broker.consumed(rmq_group)
    assert attempts == [1, 2]


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (AckPolicy.REJECT_ON_ERROR, ValueError("wrong")),
        (AckPolicy.NACK_ON_ERROR, RejectMessage()),
    ],
)
async def test_a_rejected_message_is_a_dead_letter_at_once(
    rmq_broker: BrokerForTests,
    rmq_topic: str,
    rmq_group: str,
    broker: RocketBroker,
    policy: AckPolicy,
    error: Exception,
    orderly: bool,
) -> None:
    handled: list[str] = []

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", ack_policy=policy, orderly=orderly)
    async def on_order(body: str) -> None:
        if body == "bad":
            raise error
        handled.append(body)

    async with started(broker):
        for body in ("bad", "good"):
            await broker.publish(body, rmq_topic, sharding_key="one queue")
        (dead,) = await rmq_broker.expect_dead_letters(rmq_group)
        await rmq_broker.consumed(rmq_group)
    assert dead.body == b"bad"
    assert handled == ["good"]


async def test_a_body_of_the_wrong_form_ends_as_a_dead_letter(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", max_reconsume_times=1)
    async def on_order(order: Order) -> None:
        raise AssertionError("it has no number")

    async with started(broker):
        await broker.publish({"no": "number"}, rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(FIRST_RETRY_SECONDS)
        await rmq_broker.expect_dead_letters(rmq_group)


@pytest.mark.parametrize("policy", [AckPolicy.ACK, AckPolicy.ACK_FIRST])
async def test_with_ack_a_failed_message_is_consumed(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker, policy: AckPolicy
) -> None:
    called = asyncio.Event()

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", ack_policy=policy)
    async def on_order(body: str) -> None:
        called.set()
        raise ValueError("wrong")

    async with started(broker):
        await broker.publish("x", rmq_topic)
        await asyncio.wait_for(called.wait(), SECONDS)
        await rmq_broker.consumed(rmq_group)


async def test_with_manual_a_message_without_decision_is_redelivered(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", ack_policy=AckPolicy.MANUAL)
    async def on_order(body: str, message: RocketMessage) -> None:
        if message.raw_message.delivery_attempt == 2:
            await message.ack()

    async with started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(FIRST_RETRY_SECONDS)
        await rmq_broker.consumed(rmq_group)


async def test_an_orderly_subscriber_repeats_a_message_in_its_place(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    topic, calls = rmq_new_topic(queues=1), list[str]()

    @broker.subscriber(topic, group=rmq_group, consume_from="first", orderly=True, suspend_seconds=0.01)
    async def on_order(body: str) -> None:
        calls.append(body)
        if calls.count("b") == 1:
            raise NackMessage(suspend_seconds=0.05)

    async with started(broker):
        for body in "abc":
            await broker.publish(body, topic)
        await rmq_broker.consumed(rmq_group)
    assert calls == ["a", "b", "b", "c"]


async def test_an_orderly_message_becomes_a_dead_letter_after_its_attempts(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    attempts: list[str] = []

    @broker.subscriber(
        rmq_topic,
        group=rmq_group,
        consume_from="first",
        orderly=True,
        suspend_seconds=0.01,
        max_reconsume_times=2,
    )
    async def on_order(body: str) -> None:
        attempts.append(body)
        raise NackMessage

    async with started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_dead_letters(rmq_group)
    assert attempts == ["x"] * 3


async def test_a_message_whose_result_cannot_be_published_is_redelivered(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(orders, group=rmq_group, consume_from="first")
    @broker.publisher(invoices)
    async def on_order(body: str) -> str:
        return body

    async with started(broker):
        code = ResponseCode.NO_PERMISSION
        with rmq_broker.faults.refuse("send", code, "read only", times=None, topic=invoices):
            await broker.publish("x", orders)
            await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(FIRST_RETRY_SECONDS)
        await rmq_broker.expect(invoices)
