"""RocketBroker with a real broker: the arguments and results of handlers, filters and options."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rmq_client import ConsumeHook, HookContext, Message, MessageExt, Producer, PushConsumer, Sql
from rmq_client.open_telemetry import OpenTelemetry
from rmq_faststream import ConsumerOptions, RocketBroker, RocketResponse
from rmq_faststream.annotations import Producer as SdkProducer
from rmq_faststream.annotations import RocketBatchMessage
from rmq_faststream.opentelemetry import RocketTelemetryMiddleware
from rmq_testing import BrokerForTests
from tests.support.faststream_brokers import SECONDS, Order, started
from tests.support.waiting import until


async def test_a_message_passes_through_handler_and_publisher(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(orders, group=rmq_group, tags="paid", consume_from="first")
    @broker.publisher(invoices, tag="new")
    async def on_order(order: Order) -> RocketResponse:
        return RocketResponse(Order(number=order.number + 1), keys=[str(order.number)])

    async with started(broker):
        await broker.publish(Order(number=1), orders, tag="open")
        result = await broker.publish(
            Order(number=2), orders, tag="paid", sharding_key="s", headers={"shop": 7}, correlation_id="c"
        )
        (invoice,) = await rmq_broker.expect(invoices)
        stored = next(one for one in await rmq_broker.messages(orders) if one.msg_id == result.msg_id)
    assert (invoice.body, invoice.tags, invoice.keys) == (b'{"number":3}', "new", ["2"])
    assert invoice.user_properties["correlation_id"] == "c"
    assert stored.user_properties["shop"] == "7"
    assert stored.user_properties["content-type"] == "application/json"
    assert stored.sharding_key == "s"


async def test_a_batch_is_handled_at_once(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    topic, batches = rmq_new_topic(queues=1), list[list[int]]()

    @broker.subscriber(topic, group=rmq_group, batch=True, max_messages=4, consume_from="first")
    async def on_orders(orders: list[Order], message: RocketBatchMessage) -> None:
        batches.append([order.number for order in orders])
        assert len(message.raw_message) == len(orders)

    await broker.connect()
    results = await broker.publish_batch(*(Order(number=number) for number in range(6)), topic=topic)
    async with started(broker):
        await rmq_broker.consumed(rmq_group)
    assert [result.queue_offset for result in results] == list(range(6))
    assert sorted(number for batch in batches for number in batch) == list(range(6))
    assert 1 < max(map(len, batches)) <= 4


async def test_delayed_messages_arrive_later(
    rmq_broker: BrokerForTests, rmq_topic: str, broker: RocketBroker
) -> None:
    await broker.connect()
    await broker.publish("x", rmq_topic, delay_seconds=3600)
    await rmq_broker.expect_nothing(rmq_topic)
    await rmq_broker.advance(3600)
    await rmq_broker.expect(rmq_topic)
    await broker.stop()


async def test_an_sql_filter_selects_by_headers(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    bodies: list[str] = []

    @broker.subscriber(rmq_topic, group=rmq_group, tags=Sql("amount > 5"), consume_from="first")
    async def on_order(body: str) -> None:
        bodies.append(body)

    async with started(broker):
        for amount in (3, 7):
            await broker.publish(str(amount), rmq_topic, headers={"amount": amount})
        await rmq_broker.consumed(rmq_group)
    assert bodies == ["7"]


async def test_messages_can_be_taken_one_by_one(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    subscriber = broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async with started(broker):
        assert await subscriber.get_one(timeout=0.1) is None
        for number in range(3):
            await broker.publish(Order(number=number), rmq_topic)
        first = await subscriber.get_one(timeout=SECONDS)
        assert first is not None
        decoded: list[Any] = [await first.decode()]
        async with asyncio.timeout(SECONDS):
            async for message in subscriber:
                decoded.append(await message.decode())
                if len(decoded) == 3:
                    break
    assert sorted(one["number"] for one in decoded) == [0, 1, 2]


async def test_options_of_the_sdk_reach_the_consumer(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    calls: list[str | None] = []

    class Recorder(ConsumeHook):
        def after(self, context: HookContext) -> None:
            calls.append(context.status and context.status.name)

    options: ConsumerOptions = {"hooks": [Recorder()]}

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", consumer_options=options)
    async def on_order(body: str) -> None: ...

    async with started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.consumed(rmq_group)
    assert calls == ["SUCCESS"]


async def test_a_handler_can_use_the_producer_of_the_sdk(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(orders, group=rmq_group, consume_from="first")
    async def on_order(body: str, producer: SdkProducer) -> None:
        async with producer.transaction(Message(invoices, body.encode())):
            pass

    async with started(broker):
        await broker.publish("x", orders)
        await rmq_broker.expect(invoices)


async def test_a_trace_continues_between_the_plain_sdk_and_handlers(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, rmq_namesrv: str
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = OpenTelemetry(tracer_provider=provider)
    broker = RocketBroker(
        rmq_namesrv, logger=None, middlewares=[RocketTelemetryMiddleware(tracer_provider=provider)]
    )

    @broker.subscriber(orders, group=rmq_group, consume_from="first")
    @broker.publisher(invoices)
    async def on_order(body: str) -> str:
        return body

    received: list[MessageExt] = []
    reader = PushConsumer(
        rmq_namesrv,
        group=f"{rmq_group}-reader",
        topics=invoices,
        listener=received.extend,
        consume_from="first",
    )
    async with (
        telemetry.instrument(Producer(rmq_namesrv, group=rmq_group)) as producer,
        started(broker),
        telemetry.instrument(reader),
    ):
        await producer.send(Message(orders, b"x"))
        await until(lambda: received, SECONDS)
    # Commits of offsets are spans of no trace.
    spans = [span for span in exporter.get_finished_spans() if not span.name.startswith("settle")]
    assert {span.name for span in spans} >= {f"process {invoices}", f"{orders} process", f"send {orders}"}
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 1
