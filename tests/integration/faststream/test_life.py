"""RocketBroker with a real broker: starts, graceful stops, and applications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from faststream import FastStream
from faststream.exceptions import StopConsume

from rmq_client import MessageExt, PushConsumer
from rmq_faststream import RocketBroker, TestRocketBroker
from rmq_testing import BrokerForTests
from tests.support.faststream_brokers import SECONDS, started
from tests.support.waiting import until


async def test_a_stop_waits_for_handlers_and_commits(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, rmq_namesrv: str
) -> None:
    topic, begun, release, ended = rmq_new_topic(queues=1), asyncio.Event(), asyncio.Event(), list[str]()
    broker = RocketBroker(rmq_namesrv, logger=None, graceful_timeout=SECONDS)

    @broker.subscriber(topic, group=rmq_group, consume_from="first", max_workers=1)
    async def on_order(body: str) -> None:
        begun.set()
        await release.wait()
        ended.append(body)

    await broker.start()
    for body in "ab":
        await broker.publish(body, topic)
    await asyncio.wait_for(begun.wait(), SECONDS)
    stopping = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    release.set()
    await stopping
    assert ended[:1] == ["a"]

    # The next member continues after the handled messages, and none was sent back.
    received: list[MessageExt] = []
    async with PushConsumer(rmq_namesrv, group=rmq_group, topics=topic, listener=received.extend):
        await rmq_broker.consumed(rmq_group)
    assert ended + [one.body.decode() for one in received] == ["a", "b"]
    assert {one.reconsume_times for one in received} <= {0}


async def test_a_stop_does_not_wait_longer_than_the_graceful_timeout(
    rmq_topic: str, rmq_group: str, rmq_namesrv: str
) -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    broker = RocketBroker(rmq_namesrv, logger=None, graceful_timeout=0.05)

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(body: str) -> None:
        begun.set()
        await never.wait()

    await broker.start()
    await broker.publish("x", rmq_topic)
    await asyncio.wait_for(begun.wait(), SECONDS)
    await asyncio.wait_for(broker.stop(), SECONDS)
    never.set()


async def test_a_handler_stops_its_own_subscriber(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    topic, other = rmq_new_topic(), rmq_new_topic()
    subscriber = broker.subscriber(topic, group=rmq_group, consume_from="first")

    @subscriber
    async def on_order(body: str) -> None:
        raise StopConsume

    @broker.subscriber(other, group=f"{rmq_group}-other", consume_from="first")
    async def on_other(body: str) -> None: ...

    async with started(broker):
        await broker.publish("x", topic)
        await until(lambda: not subscriber.running)
        await broker.publish("y", other)
        await rmq_broker.consumed(f"{rmq_group}-other")


async def test_a_subscriber_can_be_added_to_a_running_broker(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    bodies: list[str] = []
    async with started(broker):
        await broker.publish("x", rmq_topic)
        subscriber = broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", persistent=False)

        @subscriber
        async def on_order(body: str) -> None:
            bodies.append(body)

        async with subscriber:
            await rmq_broker.consumed(rmq_group)
    assert bodies == ["x"]


async def test_ping_tells_whether_a_name_server_answers(
    rmq_broker: BrokerForTests, broker: RocketBroker
) -> None:
    await broker.connect()
    assert await broker.ping(SECONDS)
    await broker.stop()
    assert not await RocketBroker("127.0.0.1:1", logger=None).ping(0.5)


async def test_a_test_broker_can_use_the_real_one(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()
    publisher = broker.publisher(invoices)

    @broker.subscriber(orders, group=rmq_group, consume_from="first")
    @publisher
    async def on_order(body: str) -> str:
        return body

    async with TestRocketBroker(broker, with_real=True):
        await broker.publish("x", orders)
        await on_order.wait_call(SECONDS)
        on_order.mock.assert_called_once_with("x")
        await until(lambda: publisher.mock.called, SECONDS)
        publisher.mock.assert_called_once_with("x")
    assert [one.body for one in await rmq_broker.messages(orders)] == [b"x"]


async def test_an_application_runs_until_it_is_told_to_exit(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    app, bodies = FastStream(broker), list[Any]()

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(body: str) -> None:
        bodies.append(body)
        app.exit()

    await rmq_broker.publish(rmq_topic, "x")
    await asyncio.wait_for(app.run(), SECONDS)
    assert bodies == ["x"]
    assert not broker.running
