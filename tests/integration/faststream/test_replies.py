"""RocketBroker with a real broker: requests, replies, and responses to other topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq_client import Message, NoReply, Producer
from rmq_faststream import RocketBroker, RocketResponse
from rmq_testing import BrokerForTests
from tests.support.faststream_brokers import SECONDS, Order, started
from tests.support.waiting import until


async def test_requests_of_both_sides_are_replied_to(
    rmq_broker: BrokerForTests,
    rmq_topic: str,
    rmq_group: str,
    broker: RocketBroker,
    rmq_producer: Producer,
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def answer(order: Order) -> RocketResponse:
        return RocketResponse(Order(number=order.number + 1), headers={"by": "handler"})

    async with started(broker):
        reply = await broker.request(Order(number=1), rmq_topic, timeout=SECONDS, correlation_id="c")
        raw = await rmq_producer.request(Message(rmq_topic, b'{"number": 5}'), timeout_seconds=SECONDS)
        await rmq_broker.consumed(rmq_group)
    assert await reply.decode() == {"number": 2}
    assert (reply.headers["by"], reply.correlation_id) == ("handler", "c")
    assert raw.body == b'{"number":6}'


async def test_a_request_without_handler_ends_with_no_reply(rmq_topic: str, broker: RocketBroker) -> None:
    await broker.connect()
    with pytest.raises(NoReply):
        await broker.request("x", rmq_topic, timeout=0.2)
    await broker.stop()


async def test_a_reply_that_nobody_waits_for_does_not_repeat_the_request(
    rmq_broker: BrokerForTests,
    rmq_topic: str,
    rmq_group: str,
    broker: RocketBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    released, calls = asyncio.Event(), list[str]()

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def answer(body: str) -> str:
        calls.append(body)
        await released.wait()
        return body

    async with started(broker):
        properties = {"CORRELATION_ID": "1", "REPLY_TO_CLIENT": "gone", "TTL": "1000"}
        request = Message(rmq_topic, b"x")
        request.properties.update(properties)
        await rmq_broker.publish(request)
        await until(lambda: calls == ["x"])
        released.set()
        await rmq_broker.consumed(rmq_group)
    assert calls == ["x"]
    assert "reply not sent" in caplog.text


async def test_a_response_goes_to_the_topic_that_the_message_names(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    ask, answers = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(ask, group=rmq_group, consume_from="first")
    async def answer(body: str) -> str:
        return body.upper()

    async with started(broker):
        await broker.publish("x", ask, reply_to=answers)
        (answered,) = await rmq_broker.expect(answers)
    assert answered.body == b"X"


async def test_a_handler_without_result_replies_with_null(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(body: str) -> None: ...

    async with started(broker):
        reply = await broker.request("x", rmq_topic, timeout=SECONDS)
    assert (reply.body, await reply.decode()) == (b"null", None)
