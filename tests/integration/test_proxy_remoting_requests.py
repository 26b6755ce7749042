"""Requests on the proxy's remoting port, one of each kind: what the broker answers, and what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq_client import Message, MessageExt, MessageQueue, Producer, PullConsumer
from rmq_proxy.proxy import Proxy
from rmq_remoting.bodies.assignment import QueryAssignmentResponseBody
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.connection import ConsumerConnection
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rmq_remoting.message_codec import encode_stored_message
from tests.interop.consumers import consumer_of
from tests.support.broker_requests import request, succeeded
from tests.support.clusters import ClusterBroker, RunningCluster
from tests.support.pop_requests import ack_batch, pop, popped, query_assignment
from tests.support.proxied_requests import permissive_cluster, to_broker
from tests.support.raw_client import raw_client
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with permissive_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address) as running:
        yield running


async def test_queues_are_assigned_by_a_broker_of_the_topic(proxy: Proxy) -> None:
    async with raw_client(remoting_port(proxy)) as client:
        answer = succeeded(await client.ask(query_assignment("T")))
        unknown = await client.ask(query_assignment("absent"))
    assigned = QueryAssignmentResponseBody.decode(answer.body).message_queue_assignments
    expected = {MessageQueue("T", name, number) for name in ("broker-a", "broker-b") for number in range(2)}
    assert {each.message_queue for each in assigned or []} == expected
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_checks_filters(proxy: Proxy) -> None:
    def asking(expression: str, topic: str = "T") -> RemotingCommand:
        data = SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92")
        body = CheckClientRequestBody(client_id="c1", group="CG", subscription_data=data)
        return request(RequestCode.CHECK_CLIENT_CONFIG, body.encode())

    async with raw_client(remoting_port(proxy)) as client:
        succeeded(await client.ask(asking("a > 5")))
        succeeded(await client.ask(request(RequestCode.CHECK_CLIENT_CONFIG, b"{}")))
        refused = await client.ask(asking("a > "))
        unknown = await client.ask(asking("a > 5", "absent"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("in_header", [False, True])
async def test_a_batch_of_acknowledgements_reaches_its_broker(
    cluster: RunningCluster, proxy: Proxy, in_header: bool
) -> None:
    broker = cluster.broker
    for number in range(3):
        broker.put("T", b"%d" % number)
    async with raw_client(remoting_port(proxy)) as client:
        items = popped(await client.ask(to_broker(pop("T", init_mode=0))))
        command = ack_batch(items)
        if in_header:
            command = to_broker(request(command.code, command.body.replace(b"broker-a", b"")))
        succeeded(await client.ask(command))
        nameless = await client.ask(request(command.code, ack_batch(items).body.replace(b"broker-a", b"")))
    assert nameless.code == ResponseCode.VERSION_NOT_SUPPORTED
    (received,) = broker.requests(RequestCode.BATCH_ACK_MESSAGE)
    assert received.opaque != command.opaque
    assert len(items) == 3


async def test_connections_of_a_group_are_listed(cluster: RunningCluster, proxy: Proxy) -> None:
    async with (
        consumer_of(proxy.remoting_address, "T", _ignore),
        raw_client(remoting_port(proxy)) as client,
    ):
        await until(lambda: len(cluster.broker.members("g-T")) == 1)
        (client_id,) = cluster.broker.members("g-T")
        listing = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g-T")
        # Of a client without connections to brokers, and without a name, a broker of the cluster is asked.
        anyone = succeeded(await client.ask(listing))
        named = succeeded(await client.ask(to_broker(listing)))
        unknown = await client.ask(request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="none"))
        nowhere = await client.ask(to_broker(listing, "nobody"))
    for answer in (named, anyone):
        (connection,) = ConsumerConnection.decode(answer.body).connection_set
        assert connection.client_id == client_id
    assert unknown.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert nowhere.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def _ignore(messages: list[MessageExt]) -> None:
    pass


async def test_brokers_ask_a_consumer_for_its_state(cluster: RunningCluster, proxy: Proxy) -> None:
    broker = cluster.broker
    async with consumer_of(proxy.remoting_address, "T", _ignore):
        await until(lambda: len(broker.members("g-T")) == 1)
        (client_id,) = broker.members("g-T")
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group="g-T", client_id=client_id, jstack_enable=True
        )
        asked = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
        answer = await broker.ask_member(asked, "g-T")
        header.consumer_group = "unknown"
        asked = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header.encode())
        refused = await broker.ask_member(asked, "g-T")
    info = ConsumerRunningInfo.decode(succeeded(answer).body)
    assert "T" in [subscription.topic for subscription in info.subscription_set]
    assert "threading.py" in (info.jstack or "")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "no consumer of group unknown" in (refused.remark or "")


async def test_brokers_let_a_consumer_consume_one_message(cluster: RunningCluster, proxy: Proxy) -> None:
    broker = cluster.broker
    received: list[bytes] = []

    async def listen(messages: list[MessageExt]) -> None:
        received.extend(each.body for each in messages)

    broker.put("T", b"directly")
    (message,) = broker.stored("T")
    async with consumer_of(proxy.remoting_address, "T", listen, consume_from="last"):
        await until(lambda: len(broker.members("g-T")) == 1)
        (client_id,) = broker.members("g-T")
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="g-T", client_id=client_id, msg_id="x", stored_broker_name="broker-a"
        )
        body = encode_stored_message(message)
        asked = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode(), body)
        answer = await broker.ask_member(asked, "g-T")
    result = ConsumeMessageDirectlyResult.decode(succeeded(answer).body)
    assert result.consume_result == CMResult.CR_SUCCESS
    assert b"directly" in received


async def test_a_pull_consumer_reads_commits_and_goes_on(cluster: RunningCluster, proxy: Proxy) -> None:
    queue = MessageQueue("T", "broker-b", 1)
    broker = cluster.brokers["broker-b"]
    for number in range(10):
        broker.put("T", b"%d" % number, queue_id=1)
    options: dict[str, Any] = {"group": "g", "consume_from": "first"}
    async with PullConsumer(proxy.remoting_address, **options) as reader:
        assert set(await reader.queues("T")) == {
            MessageQueue("T", name, number) for name in ("broker-a", "broker-b") for number in range(2)
        }
        await reader.assign([queue])
        await _read(reader, 10)
        await reader.commit()
    assert broker.committed("g", "T", 1) == 10
    broker.put("T", b"new", queue_id=1)
    async with PullConsumer(proxy.remoting_address, **options) as reader:
        await reader.assign([queue])
        assert [each.body for each in await _read(reader, 1)] == [b"new"]


async def _read(reader: PullConsumer, count: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(messages) < count:
            messages += await reader.poll()
    return messages


async def test_clients_go_on_after_the_restart_of_a_broker(
    cluster: RunningCluster, proxy: Proxy, tmp_path: Path
) -> None:
    """The broker has another port after its restart, so the proxy has to look for it."""
    received: set[bytes] = set()

    async def listen(messages: list[MessageExt]) -> None:
        received.update(each.body for each in messages)

    async with (
        consumer_of(proxy.remoting_address, "T", listen),
        Producer(proxy.remoting_address, group="p") as producer,
    ):
        before = await _sent_to(producer, "before", cluster.brokers["broker-a"])
        await until(lambda: before in received, 30.0)
        await cluster.brokers["broker-a"].stop()
        keys = {
            "timerPrecisionMs": 100,
            "recallMessageEnable": "true",
            "enablePropertyFilter": "true",
            "enableMixedMessageType": "true",
        }
        restarted = await cluster.add(tmp_path, "broker-a", {"T": 2}, **keys)
        after = await _sent_to(producer, "after", restarted)
        await until(lambda: after in received, 60.0)
        await until(lambda: len(restarted.members("g-T")) == 1, 60.0)


async def _sent_to(producer: Producer, text: str, broker: ClusterBroker) -> bytes:
    """Send messages until one of them is stored by a broker; return its body."""
    for number in range(10_000):
        sent = await producer.send(Message("T", f"{text} {number}".encode()), timeout_seconds=20)
        if sent.queue.broker_name == broker.name:
            return f"{text} {number}".encode()
    raise AssertionError(f"no message went to {broker.name}")
