"""Apache's Python client for 5.x, and between it and our broker Apache's proxy 5.3.3, ours, or nothing.

The proxy translates gRPC into the broker's requests: POP for consumers, transaction checks for producers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from rmq_client.admin import Admin
from rmq_remoting.bodies.group import CustomizedRetryPolicy, GroupRetryPolicy, SubscriptionGroupConfig
from rmq_remoting.codes import RequestCode
from tests.interop.clusters import Own
from tests.interop.grpc_fronts import apache_proxy, broker_itself, cluster_with_grpc, own_proxy
from tests.interop.proxy_clients import PythonClients, Refused, SimpleConsumer, python_clients
from tests.support.broker_load import read_all
from tests.support.broker_requests import request, succeeded
from tests.support.outcome import Event
from tests.support.raw_client import raw_client
from tests.support.waiting import until

RETRY_DELAY_MS = 1000
INVALID_RECEIPT_HANDLE = 40013
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with cluster_with_grpc(tmp_path_factory.mktemp("local")) as cluster:
        yield cluster


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(apache_proxy, marks=pytest.mark.java, id="apache"),
        pytest.param(own_proxy, id="cluster"),
        pytest.param(broker_itself, id="local"),
    ],
)
def clients(
    request: pytest.FixtureRequest, servers: Own, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PythonClients]:
    """The proxy and a process for the clients of all tests; each test uses topics and groups of its own."""
    with (
        request.param(servers) as address,
        python_clients(address, tmp_path_factory.mktemp("python")) as clients,
    ):
        yield clients


async def _topic(servers: Own, name: str, message_type: str = "NORMAL", queues: int = 1) -> str:
    async with Admin(servers[0].address) as admin:
        await admin.create_topic(name, queues=queues, attributes={"+message.type": message_type})
    return name


async def _group(servers: Own, name: str, *, retries: int = 16, fifo: bool = False) -> str:
    """Create a group whose refused messages are redelivered after a second."""
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[RETRY_DELAY_MS]))
    config = SubscriptionGroupConfig(
        group_name=name, retry_max_times=retries, consume_message_orderly=fifo, group_retry_policy=policy
    )
    async with raw_client(servers[1].port) as client:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        succeeded(await client.ask(request(code, config.encode())))
    return name


async def _receive(consumer: SimpleConsumer, count: int, *, invisible_s: int = 30) -> list[Event]:
    """Receive until there are `count` messages."""
    received: list[Event] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} messages: {received}"
        received += await consumer.receive(count - len(received), invisible_s=invisible_s)
    return received


def _bodies(messages: list[Event]) -> list[str]:
    return [message["body"] for message in messages]


async def test_messages_arrive_whole_and_acknowledged_ones_are_not_redelivered(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name)
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        sent = await producer.send(topic, "paid", tag="A", keys="order-7", properties={"colour": "red"})
        await producer.send(topic, "shipped")
        messages = await _receive(consumer, 2, invisible_s=3)
        first, second = messages
        assert _bodies(messages) == ["paid", "shipped"]
        assert (first["message_id"], first["tag"], first["keys"]) == (sent["message_id"], "A", ["order-7"])
        assert first["properties"] == {"colour": "red"}
        assert (first["attempt"], first["corrupted"]) == (1, False)
        await consumer.ack(first)
        (again,) = await _receive(consumer, 1)  # both became visible at the same time
        assert (again["body"], again["attempt"]) == ("shipped", 2)
        assert again["message_id"] == second["message_id"]
        assert await consumer.receive() == []
        await consumer.ack(again)


async def test_a_held_receive_is_answered_as_soon_as_a_message_is_stored(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, queues=4)
    async with (
        clients.producer(topic) as producer,
        clients.simple_consumer(name, topic, wait_s=20) as consumer,
    ):
        receive = asyncio.ensure_future(consumer.receive())
        await producer.send(topic, "first")
        (message,) = await receive
        await consumer.ack(message)
        receive = asyncio.ensure_future(consumer.receive())
        await asyncio.wait([receive], timeout=1)  # time for the request to reach the broker and to be held
        assert not receive.done()
        started = time.monotonic()
        await producer.send(topic, "second")
        assert _bodies(await receive) == ["second"]
        assert time.monotonic() - started < 10


async def test_changed_invisible_times_decide_when_messages_are_redelivered(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name)
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        for body in ("unchanged", "shorter", "longer"):
            await producer.send(topic, body)
        unchanged, shorter, longer = await _receive(consumer, 3, invisible_s=4)
        await consumer.change_invisible(longer, 60)
        await consumer.change_invisible(shorter, 1)
        again = await _receive(consumer, 2)
        assert _bodies(again) == ["shorter", "unchanged"]
        assert {message["attempt"] for message in again} == {2}
        with pytest.raises(Refused) as refused:
            await consumer.ack(unchanged)
        assert refused.value.code == INVALID_RECEIPT_HANDLE
        await consumer.ack(longer)  # with the receipt that the change returned
        for message in again:
            await consumer.ack(message)
        assert await consumer.receive() == []


async def test_fifo_messages_wait_for_the_one_before_them(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, "FIFO")
    await _group(servers, name, fifo=True)
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        for body in ("0", "1", "2"):
            await producer.send(topic, body, message_group="customer-7")
        (first,) = await _receive(consumer, 1, invisible_s=3)
        assert first["message_group"] == "customer-7"
        assert await consumer.receive(1) == []
        (again,) = await _receive(consumer, 1)
        assert (again["body"], again["attempt"]) == ("0", 2)
        await consumer.change_invisible(again, 60)
        assert await consumer.receive(1) == []
        await consumer.ack(again)
        rest = await _receive(consumer, 2)
        assert _bodies(rest) == ["1", "2"]
        for message in rest:
            await consumer.ack(message)
        assert await consumer.receive(1) == []


async def test_a_push_consumer_keeps_the_order_of_each_message_group(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, "FIFO", queues=2)
    await _group(servers, name, fifo=True)
    async with clients.producer(topic) as producer:
        for number in range(12):
            await producer.send(topic, f"{number % 3}:{number // 3}", message_group=f"customer-{number % 3}")
        async with clients.push_consumer(name, topic, refuse=1) as consumer:
            await until(lambda: len(consumer.accepted) == 12, WAIT_SECONDS)
            for group in range(3):
                accepted = [body for body in consumer.accepted if body.startswith(f"{group}:")]
                assert accepted == [f"{group}:{number}" for number in range(4)]
            refused = [event["body"] for event in consumer.deliveries if not event["accepted"]]
            assert len(refused) == 1 and len(consumer.deliveries) == 13


async def test_a_fifo_message_that_fails_too_often_is_a_dead_letter(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, "FIFO")
    await _group(servers, name, fifo=True, retries=1)
    async with clients.producer(topic) as producer, clients.push_consumer(name, topic, refuse=2) as consumer:
        for body in ("poison", "next"):
            await producer.send(topic, body, message_group="customer-7")
        await until(lambda: consumer.accepted == ["next"], WAIT_SECONDS)
        assert _bodies(consumer.deliveries) == ["poison", "poison", "next"]
    assert await _dead_letters(servers, name) == [b"poison"]


async def test_refused_messages_are_redelivered_and_at_last_are_dead_letters(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name)
    await _group(servers, name, retries=1)
    async with clients.producer(topic) as producer, clients.push_consumer(name, topic, refuse=3) as consumer:
        for body in ("a", "b"):
            await producer.send(topic, body)
        await until(lambda: len(consumer.deliveries) == 4, WAIT_SECONDS)
        (accepted,) = consumer.accepted
        (dead,) = {"a", "b"} - {accepted}
        attempts = [(event["body"], event["attempt"]) for event in consumer.deliveries]
        assert sorted(attempts) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        await _until_dead_letters(servers, name, [dead.encode()])
        assert len(consumer.deliveries) == 4


async def test_messages_that_a_push_consumer_accepted_are_not_redelivered(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, queues=2)
    bodies = [str(number) for number in range(8)]
    # A second consumer of the group; it receives for longer than the invisible time of a push consumer.
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic, wait_s=5) as other:
        async with clients.push_consumer(name, topic) as consumer:
            for body in bodies:
                await producer.send(topic, body)
            await until(lambda: len(consumer.accepted) == len(bodies), WAIT_SECONDS)
        assert await other.receive() == []
        assert sorted(consumer.accepted) == bodies


async def test_delayed_messages_arrive_when_due_and_recalled_ones_never(
    clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, "DELAY")
    async with clients.producer(topic) as producer, clients.simple_consumer(name, topic) as consumer:
        due = int(time.time()) + 3
        recalled = await producer.send(topic, "recalled", delivery_timestamp=due)
        await producer.send(topic, "kept", delivery_timestamp=due)
        assert await producer.recall(topic, recalled["recall_handle"]) == recalled["message_id"]
        (kept,) = await _receive(consumer, 1)
        assert kept["body"] == "kept"
        assert kept["received_at_ms"] >= due * 1000
        await consumer.ack(kept)
        assert await consumer.receive() == []


@pytest.mark.parametrize("check", ["commit", "rollback"])
async def test_transactions_are_committed_rolled_back_or_checked(
    check: str, clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name, "TRANSACTION")
    async with (
        clients.producer(topic, check=check) as producer,
        clients.simple_consumer(name, topic) as consumer,
    ):
        await producer.send_in_transaction(topic, "rolled back", "rollback")
        await producer.send_in_transaction(topic, "open", None)
        await until(lambda: clients.checked(topic), WAIT_SECONDS)
        await producer.send_in_transaction(topic, "committed", "commit")
        expected = {"committed", "open"} if check == "commit" else {"committed"}
        messages = await _receive(consumer, len(expected))
        assert set(_bodies(messages)) == expected
        for message in messages:
            await consumer.ack(message)
        assert await consumer.receive() == []
    assert _bodies(clients.checked(topic)) == ["open"]


@pytest.mark.parametrize(
    ("expression", "sql"), [("red || blue", False), ("TAGS IN ('red', 'blue') AND size > 0", True)]
)
async def test_filters_by_tag_and_by_sql(
    expression: str, sql: bool, clients: PythonClients, servers: Own, name: str
) -> None:
    topic = await _topic(servers, name)
    async with (
        clients.producer(topic) as producer,
        clients.simple_consumer(name, topic, expression=expression, sql=sql) as consumer,
    ):
        for size, tag in enumerate(("green", "red", "yellow", "blue"), 1):
            await producer.send(topic, tag, tag=tag, properties={"size": str(size)})
        messages = await _receive(consumer, 2)
        assert _bodies(messages) == ["red", "blue"]
        for message in messages:
            await consumer.ack(message)
        assert await consumer.receive() == []


async def _dead_letters(servers: Own, group: str) -> list[bytes]:
    topic = f"%DLQ%{group}"
    stored = await read_all(servers[1].port, [(topic, 0)])
    return [message.body for message in stored[topic, 0]]


async def _until_dead_letters(servers: Own, group: str, expected: list[bytes]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := await _dead_letters(servers, group)) != expected:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)
