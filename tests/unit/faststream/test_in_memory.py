"""Handlers and publishers with TestRocketBroker: no server, no network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware, FastStream, Header, PublishCommand, StreamMessage, TestApp
from faststream.exceptions import SubscriberNotFound
from pydantic import BaseModel

from rmq_client import SendStatus, Sql, UsageError
from rmq_faststream import (
    RocketBroker,
    RocketPublisher,
    RocketResponse,
    RocketRoute,
    RocketRouter,
    TestRocketBroker,
)
from rmq_faststream.annotations import RocketBatchMessage, RocketMessage
from rmq_faststream.annotations import RocketBroker as BrokerInHandler


class Order(BaseModel):
    number: int


@pytest.fixture
def broker() -> RocketBroker:
    """A broker whose address nobody listens at."""
    return RocketBroker("127.0.0.1:1", logger=None)


async def test_a_handler_gets_body_headers_and_message(broker: RocketBroker) -> None:
    seen: list[Any] = []

    @broker.subscriber("orders", group="till")
    async def on_order(
        order: Order, message: RocketMessage, owner: BrokerInHandler, shop: str = Header()
    ) -> None:
        seen.append((order.number, message.raw_message.tags, message.raw_message.keys, shop, owner))

    async with TestRocketBroker(broker):
        result = await broker.publish(
            Order(number=7), "orders", tag="paid", keys=["k"], headers={"shop": "eu", "none": None}
        )
        assert result.status is SendStatus.SEND_OK
        assert result.queue.topic == "orders"
        assert on_order.mock.call_count == 1
        on_order.mock.assert_called_once_with({"number": 7})
    assert seen == [(7, "paid", ["k"], "eu", broker)]


@pytest.mark.parametrize(
    ("tags", "tag", "calls"),
    [
        ("*", None, 1),
        ("paid", "paid", 1),
        ("open || paid", "paid", 1),
        ("open", "paid", 0),
        ("open", None, 0),
    ],
)
async def test_tags_are_compared(broker: RocketBroker, tags: str, tag: str | None, calls: int) -> None:
    @broker.subscriber("orders", group="till", tags=tags)
    async def on_order(body: str) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("x", "orders", tag=tag)
        assert on_order.mock.call_count == calls


async def test_an_sql_filter_admits_all(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till", tags=Sql("amount > 5"))
    async def on_order(body: str) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("x", "orders")
        on_order.mock.assert_called_once_with("x")


async def test_every_group_gets_a_message_once() -> None:
    brokers = [RocketBroker("127.0.0.1:1", logger=None) for _ in range(2)]
    calls: list[str] = []
    for broker in brokers:
        for group in ("till", broker.config.id_generator()):

            @broker.subscriber("orders", group=group)
            async def on_order(body: str, message: RocketMessage) -> None:
                calls.append(body)

    async with TestRocketBroker(*brokers):
        await brokers[0].publish("x", "orders")
    assert calls == ["x"] * 3


async def test_a_subscriber_of_several_topics_has_a_filter_for_each(broker: RocketBroker) -> None:
    @broker.subscriber({"orders": "paid", "prices": "*"}, group="till")
    async def on_message(body: str) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("1", "orders", tag="open")
        await broker.publish("2", "prices", tag="open")
        on_message.mock.assert_called_once_with("2")


async def test_a_publisher_publishes_the_result_with_its_options(broker: RocketBroker) -> None:
    raw: list[Any] = []
    invoices = broker.publisher("invoices", tag="new", keys=["default"], headers={"from": "till"})

    @broker.subscriber("orders", group="till")
    @invoices
    async def on_order(order: Order) -> Any:
        if order.number == 1:
            return order
        return RocketResponse(order, tag="big", sharding_key="7", headers={"from": "vault"})

    @broker.subscriber("invoices", group="archive")
    async def on_invoice(order: Order, message: RocketMessage) -> None:
        raw.append(message.raw_message)

    async with TestRocketBroker(broker):
        for number in (1, 2):
            await broker.publish(Order(number=number), "orders", correlation_id=f"c{number}")
        assert invoices.mock.call_count == 2
    assert [(one.tags, one.keys, one.sharding_key, one.properties["from"]) for one in raw] == [
        ("new", ["default"], None, "till"),
        ("big", ["default"], "7", "vault"),
    ]
    assert [one.properties["correlation_id"] for one in raw] == ["c1", "c2"]


async def test_a_publisher_without_subscriber_has_a_mock(broker: RocketBroker) -> None:
    invoices = broker.publisher("invoices")
    async with TestRocketBroker(broker):
        await invoices.publish({"number": 1}, tag="paid")
        invoices.mock.assert_called_once_with({"number": 1})


async def test_a_publisher_has_a_mock_beside_a_subscriber_of_other_tags(broker: RocketBroker) -> None:
    invoices = broker.publisher("invoices", tag="new")

    @broker.subscriber("invoices", group="archive", tags="old")
    async def on_invoice(body: str) -> None: ...

    async with TestRocketBroker(broker):
        await invoices.publish("x")
        invoices.mock.assert_called_once_with("x")
        assert not on_invoice.mock.called


async def test_a_batch_publisher_publishes_each_item(broker: RocketBroker) -> None:
    bodies: list[list[str]] = []

    @broker.subscriber("orders", group="till")
    @broker.publisher("lines", batch=True)
    async def split(text: str) -> list[str]:
        return text.split()

    @broker.subscriber("lines", group="lines", batch=True)
    async def on_lines(lines: list[str], message: RocketBatchMessage) -> None:
        bodies.append(lines)
        assert [one.body.decode() for one in message.raw_message] == lines
        assert len(message.batch_headers) == len(lines)

    async with TestRocketBroker(broker):
        await broker.publish("a b c", "orders")
        await broker.publish("d", "lines")
    assert bodies == [["a", "b", "c"], ["d"]]


@pytest.mark.parametrize("result", [None, []])
async def test_a_batch_publisher_publishes_nothing_for_an_empty_result(
    broker: RocketBroker, result: Any
) -> None:
    lines = broker.publisher("lines", batch=True)

    @broker.subscriber("orders", group="till")
    @lines
    async def split(text: str) -> Any:
        return result

    async with TestRocketBroker(broker):
        await broker.publish("a", "orders")
        assert split.mock.call_count == 1
        assert not lines.mock.called
        assert await broker.publish_batch(topic="orders") == []


async def test_none_is_published_as_json_and_an_empty_text_is_refused(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till")
    async def on_order(body: str | None) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish(None, "orders")
        on_order.mock.assert_called_once_with(None)
        assert await (await broker.request("x", "orders")).decode() is None
        with pytest.raises(UsageError, match="a message to orders has an empty body"):
            await broker.publish("", "orders")


async def test_a_batch_reaches_subscribers_of_single_messages_one_by_one(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till")
    async def on_order(order: Order) -> None: ...

    async with TestRocketBroker(broker):
        results = await broker.publish_batch(Order(number=1), {"number": 2}, topic="orders", tag="paid")
        assert [call.args[0] for call in on_order.mock.call_args_list] == [{"number": 1}, {"number": 2}]
    assert len({result.msg_id for result in results}) == 2


async def test_a_request_returns_the_response(broker: RocketBroker) -> None:
    @broker.subscriber("ask", group="answers")
    async def answer(text: str) -> str:
        return text.upper()

    async with TestRocketBroker(broker):
        reply = await broker.request("hello", "ask", correlation_id="c")
        assert await reply.decode() == "HELLO"
        assert reply.correlation_id == "c"
        reply = await broker.publisher("ask").request("again")
        assert await reply.decode() == "AGAIN"
        with pytest.raises(SubscriberNotFound, match="no subscriber of topic nobody"):
            await broker.request("hello", "nobody")


async def test_a_response_goes_to_the_topic_that_the_message_names(broker: RocketBroker) -> None:
    @broker.subscriber("ask", group="answers")
    async def answer(text: str) -> str:
        return text.upper()

    @broker.subscriber("ask", group="silent", no_reply=True)
    async def ignore(text: str) -> str:
        return "ignored"

    @broker.subscriber("answers", group="asker")
    async def on_answer(text: str) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("hello", "ask", reply_to="answers")
        on_answer.mock.assert_called_once_with("HELLO")


async def test_routers_put_their_prefix_before_topics(broker: RocketBroker) -> None:
    async def on_route(body: str) -> str:
        return body

    router = RocketRouter(
        "eu-",
        handlers=[
            RocketRoute(on_route, "routed", group="route", publishers=[RocketPublisher("done", tag="t")])
        ],
    )

    @router.subscriber("orders", group="till")
    @router.publisher("invoices")
    async def on_order(body: str) -> str:
        return body

    broker.include_router(router, prefix="test-")

    @broker.subscriber(["test-eu-invoices", "test-eu-done"], group="archive")
    async def on_done(body: str, message: RocketMessage) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("1", "test-eu-orders")
        await broker.publish("2", "test-eu-routed")
        assert [call.args[0] for call in on_done.mock.call_args_list] == ["1", "2"]


async def test_an_exception_of_a_handler_is_raised_by_publish(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till")
    async def on_order(order: Order) -> None:
        raise ValueError(f"order {order.number}")

    async with TestRocketBroker(broker):
        with pytest.raises(ValueError, match="order 1"):
            await broker.publish({"number": 1}, "orders")
        with pytest.raises(ValueError, match="number"):
            await broker.publish({"no": "number"}, "orders")


async def test_middlewares_see_what_is_consumed_and_published(broker: RocketBroker) -> None:
    seen: list[str] = []

    class Trail(BaseMiddleware):
        async def consume_scope(
            self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]
        ) -> Any:
            seen.append(f"consume {msg.raw_message.topic}")
            return await call_next(msg)

        async def publish_scope(
            self, call_next: Callable[[PublishCommand], Awaitable[Any]], cmd: PublishCommand
        ) -> Any:
            seen.append(f"publish {cmd.destination}")
            cmd.add_headers({"trail": "yes"})
            return await call_next(cmd)

    broker.add_middleware(Trail)

    @broker.subscriber("orders", group="till")
    @broker.publisher("done")
    async def on_order(body: str, trail: str = Header()) -> str:
        return trail

    async with TestRocketBroker(broker):
        await broker.publish("x", "orders")
        assert seen[:3] == ["publish orders", "consume orders", "publish done"]


async def test_parsers_and_decoders_can_be_replaced() -> None:
    async def parser(
        message: Any, original: Callable[[Any], Awaitable[StreamMessage[Any]]]
    ) -> StreamMessage[Any]:
        parsed = await original(message)
        parsed.headers["parsed"] = "yes"
        return parsed

    async def decoder(message: StreamMessage[Any]) -> Any:
        return json.loads(message.body[::-1])

    broker = RocketBroker("127.0.0.1:1", logger=None, parser=parser)

    @broker.subscriber("orders", group="till", decoder=decoder)
    async def on_order(order: Order, parsed: str = Header()) -> str:
        return f"{order.number} {parsed}"

    async with TestRocketBroker(broker):
        reply = await broker.request(json.dumps({"number": 7}).encode()[::-1], "orders")
        assert await reply.decode() == "7 yes"


async def test_handlers_of_one_subscriber_share_its_messages_by_filters(broker: RocketBroker) -> None:
    subscriber = broker.subscriber("orders", group="till")

    @subscriber(filter=lambda message: message.raw_message.tags == "paid")
    async def on_paid(body: str) -> None: ...

    @subscriber
    async def on_other(body: str) -> None: ...

    async with TestRocketBroker(broker):
        await broker.publish("1", "orders", tag="paid")
        await broker.publish("2", "orders")
        on_paid.mock.assert_called_once_with("1")
        on_other.mock.assert_called_once_with("2")


async def test_a_function_that_is_no_coroutine_is_a_handler(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till")
    def on_order(body: str) -> str:
        return body * 2

    async with TestRocketBroker(broker):
        assert await (await broker.request("x", "orders")).decode() == "xx"


async def test_messages_can_be_settled_by_hand(broker: RocketBroker) -> None:
    committed: list[Any] = []

    @broker.subscriber("orders", group="till", ack_policy=AckPolicy.MANUAL)
    async def on_order(body: str, message: RocketMessage) -> None:
        await {"ack": message.ack, "nack": message.nack, "reject": message.reject}[body]()
        await message.ack()  # the first decision counts
        committed.append(message.committed.value if message.committed else None)

    async with TestRocketBroker(broker):
        for body in ("ack", "nack", "reject"):
            await broker.publish(body, "orders")
    assert committed == ["ACKED", "NACKED", "REJECTED"]


async def test_an_application_starts_with_the_broker_in_memory(broker: RocketBroker) -> None:
    app = FastStream(broker)
    started = asyncio.Event()

    @app.after_startup
    async def begin() -> None:
        started.set()
        await broker.publish("x", "orders")

    @broker.subscriber("orders", group="till")
    async def on_order(body: str) -> None: ...

    async with TestRocketBroker(broker), TestApp(app):
        assert started.is_set()
        on_order.mock.assert_called_once_with("x")


async def test_without_ping_no_server_is_asked(broker: RocketBroker) -> None:
    async with TestRocketBroker(broker):
        assert await broker.ping()
