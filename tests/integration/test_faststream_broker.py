"""RocketBroker with a real broker: redelivery, dead letters, order, replies, and graceful stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream import AckPolicy, FastStream
from faststream.exceptions import NackMessage, RejectMessage, StopConsume
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from rmq_client import ConsumeHook, HookContext, Message, MessageExt, NoReply, Producer, PushConsumer, Sql
from rmq_client.open_telemetry import OpenTelemetry
from rmq_faststream import ConsumerOptions, RocketBroker, RocketResponse, TestRocketBroker
from rmq_faststream.annotations import Producer as SdkProducer
from rmq_faststream.annotations import RocketBatchMessage, RocketMessage
from rmq_faststream.opentelemetry import RocketTelemetryMiddleware
from rmq_testing import BrokerForTests, ResponseCode
from tests.support.waiting import until

_SECONDS = 10.0
# Delays of the first redelivery, and of delay level 5 (Apache RocketMQ 5.3.3, MessageStoreConfig).
_FIRST_RETRY_SECONDS, _LEVEL_5_SECONDS = 10, 60


class Order(BaseModel):
    number: int


@asynccontextmanager
async def _started(broker: RocketBroker) -> AsyncIterator[RocketBroker]:
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@pytest.fixture
def broker(rmq_namesrv: str) -> RocketBroker:
    return RocketBroker(rmq_namesrv, logger=None)


async def test_a_message_passes_through_handler_and_publisher(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(orders, group=rmq_group, tags="paid", consume_from="first")
    @broker.publisher(invoices, tag="new")
    async def on_order(order: Order) -> RocketResponse:
        return RocketResponse(Order(number=order.number + 1), keys=[str(order.number)])

    async with _started(broker):
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


async def test_a_failed_message_is_redelivered(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    attempts: list[int] = []

    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(order: Order, message: RocketMessage) -> None:
        attempts.append(message.raw_message.delivery_attempt)
        if message.raw_message.delivery_attempt == 1:
            raise ValueError("not now")

    async with _started(broker):
        await broker.publish(Order(number=1), rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(_FIRST_RETRY_SECONDS)
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

    async with _started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(_FIRST_RETRY_SECONDS)
        await rmq_broker.expect_redelivery(rmq_group)  # not due yet
        await rmq_broker.advance(_LEVEL_5_SECONDS - _FIRST_RETRY_SECONDS)
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

    async with _started(broker):
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

    async with _started(broker):
        await broker.publish({"no": "number"}, rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(_FIRST_RETRY_SECONDS)
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

    async with _started(broker):
        await broker.publish("x", rmq_topic)
        await asyncio.wait_for(called.wait(), _SECONDS)
        await rmq_broker.consumed(rmq_group)


async def test_with_manual_a_message_without_decision_is_redelivered(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", ack_policy=AckPolicy.MANUAL)
    async def on_order(body: str, message: RocketMessage) -> None:
        if message.raw_message.delivery_attempt == 2:
            await message.ack()

    async with _started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(_FIRST_RETRY_SECONDS)
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

    async with _started(broker):
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

    async with _started(broker):
        await broker.publish("x", rmq_topic)
        await rmq_broker.expect_dead_letters(rmq_group)
    assert attempts == ["x"] * 3


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
    async with _started(broker):
        await rmq_broker.consumed(rmq_group)
    assert [result.queue_offset for result in results] == list(range(6))
    assert sorted(number for batch in batches for number in batch) == list(range(6))
    assert 1 < max(map(len, batches)) <= 4


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

    async with _started(broker):
        reply = await broker.request(Order(number=1), rmq_topic, timeout=_SECONDS, correlation_id="c")
        raw = await rmq_producer.request(Message(rmq_topic, b'{"number": 5}'), timeout_seconds=_SECONDS)
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

    async with _started(broker):
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

    async with _started(broker):
        await broker.publish("x", ask, reply_to=answers)
        (answered,) = await rmq_broker.expect(answers)
    assert answered.body == b"X"


async def test_a_message_whose_result_cannot_be_published_is_redelivered(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, broker: RocketBroker
) -> None:
    orders, invoices = rmq_new_topic(), rmq_new_topic()

    @broker.subscriber(orders, group=rmq_group, consume_from="first")
    @broker.publisher(invoices)
    async def on_order(body: str) -> str:
        return body

    async with _started(broker):
        code = ResponseCode.NO_PERMISSION
        with rmq_broker.faults.refuse("send", code, "read only", times=None, topic=invoices):
            await broker.publish("x", orders)
            await rmq_broker.expect_redelivery(rmq_group)
        await rmq_broker.advance(_FIRST_RETRY_SECONDS)
        await rmq_broker.expect(invoices)


async def test_a_handler_without_result_replies_with_null(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    @broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async def on_order(body: str) -> None: ...

    async with _started(broker):
        reply = await broker.request("x", rmq_topic, timeout=_SECONDS)
    assert (reply.body, await reply.decode()) == (b"null", None)


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

    async with _started(broker):
        for amount in (3, 7):
            await broker.publish(str(amount), rmq_topic, headers={"amount": amount})
        await rmq_broker.consumed(rmq_group)
    assert bodies == ["7"]


async def test_messages_can_be_taken_one_by_one(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    subscriber = broker.subscriber(rmq_topic, group=rmq_group, consume_from="first")
    async with _started(broker):
        assert await subscriber.get_one(timeout=0.1) is None
        for number in range(3):
            await broker.publish(Order(number=number), rmq_topic)
        first = await subscriber.get_one(timeout=_SECONDS)
        assert first is not None
        decoded: list[Any] = [await first.decode()]
        async with asyncio.timeout(_SECONDS):
            async for message in subscriber:
                decoded.append(await message.decode())
                if len(decoded) == 3:
                    break
    assert sorted(one["number"] for one in decoded) == [0, 1, 2]


async def test_a_stop_waits_for_handlers_and_commits(
    rmq_broker: BrokerForTests, rmq_new_topic: Callable[..., str], rmq_group: str, rmq_namesrv: str
) -> None:
    topic, begun, release, ended = rmq_new_topic(queues=1), asyncio.Event(), asyncio.Event(), list[str]()
    broker = RocketBroker(rmq_namesrv, logger=None, graceful_timeout=_SECONDS)

    @broker.subscriber(topic, group=rmq_group, consume_from="first", max_workers=1)
    async def on_order(body: str) -> None:
        begun.set()
        await release.wait()
        ended.append(body)

    await broker.start()
    for body in "ab":
        await broker.publish(body, topic)
    await asyncio.wait_for(begun.wait(), _SECONDS)
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
    await asyncio.wait_for(begun.wait(), _SECONDS)
    await asyncio.wait_for(broker.stop(), _SECONDS)
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

    async with _started(broker):
        await broker.publish("x", topic)
        await until(lambda: not subscriber.running)
        await broker.publish("y", other)
        await rmq_broker.consumed(f"{rmq_group}-other")


async def test_a_subscriber_can_be_added_to_a_running_broker(
    rmq_broker: BrokerForTests, rmq_topic: str, rmq_group: str, broker: RocketBroker
) -> None:
    bodies: list[str] = []
    async with _started(broker):
        await broker.publish("x", rmq_topic)
        subscriber = broker.subscriber(rmq_topic, group=rmq_group, consume_from="first", persistent=False)

        @subscriber
        async def on_order(body: str) -> None:
            bodies.append(body)

        async with subscriber:
            await rmq_broker.consumed(rmq_group)
    assert bodies == ["x"]


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

    async with _started(broker):
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

    async with _started(broker):
        await broker.publish("x", orders)
        await rmq_broker.expect(invoices)


async def test_ping_tells_whether_a_name_server_answers(
    rmq_broker: BrokerForTests, broker: RocketBroker
) -> None:
    await broker.connect()
    assert await broker.ping(_SECONDS)
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
        await on_order.wait_call(_SECONDS)
        on_order.mock.assert_called_once_with("x")
        await until(lambda: publisher.mock.called, _SECONDS)
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
    await asyncio.wait_for(app.run(), _SECONDS)
    assert bodies == ["x"]
    assert not broker.running


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
        _started(broker),
        telemetry.instrument(reader),
    ):
        await producer.send(Message(orders, b"x"))
        await until(lambda: received, _SECONDS)
    # Commits of offsets are spans of no trace.
    spans = [span for span in exporter.get_finished_spans() if not span.name.startswith("settle")]
    assert {span.name for span in spans} >= {f"process {invoices}", f"{orders} process", f"send {orders}"}
    assert len({span.context.trace_id for span in spans if span.context is not None}) == 1
