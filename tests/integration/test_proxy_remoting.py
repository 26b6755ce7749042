"""The SDK, a client of the remoting protocol, uses a cluster through the proxy's remoting port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import Message, MessageExt, Producer, SimpleConsumer, TransactionState
from rmq_client.admin import Admin
from rmq_proxy.proxy import Proxy
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.interop.consumers import consumer_of
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.raw_client import raw_client
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until

WAIT_SECONDS = 20.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}) as running:
        async with Admin(running.address) as admin:
            await admin.create_topic("T", queues=2)
            await admin.create_topic("X", queues=2, attributes={"+message.type": "TRANSACTION"})
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address) as running:
        yield running


async def test_a_route_has_the_address_of_the_proxy(proxy: Proxy) -> None:
    async with raw_client(remoting_port(proxy)) as client:
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        answer = await client.ask(request)
        unknown = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "absent"})
        missing = await client.ask(unknown)
    route = TopicRouteData.decode(answer.body)
    assert {each.broker_name for each in route.broker_datas} == {"broker-a", "broker-b"}
    assert {text for each in route.broker_datas for text in each.broker_addrs.values()} == {
        proxy.remoting_address
    }
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "T", "queueId": "0"}, ResponseCode.VERSION_NOT_SUPPORTED),
        ({"topic": "T", "queueId": "0", "bname": "nobody"}, ResponseCode.SERVICE_NOT_AVAILABLE),
        ({"topic": "T", "queueId": "0", "bname": "broker-b"}, ResponseCode.SUCCESS),
    ],
)
async def test_a_request_goes_to_the_broker_that_it_names(
    proxy: Proxy, fields: dict[str, str], code: int
) -> None:
    async with raw_client(remoting_port(proxy)) as client:
        request = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, fields)
        answer = await client.ask(request)
    assert answer.code == code, answer.remark


async def test_an_unknown_request_is_refused(proxy: Proxy) -> None:
    async with raw_client(remoting_port(proxy)) as client:
        answer = await client.ask(RemotingCommand.request(105_000))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_push_consumer_gets_all_messages_and_retries(proxy: Proxy) -> None:
    bodies = [b"%d" % number for number in range(20)]
    received: list[MessageExt] = []
    failed: set[bytes] = set()

    async def listen(messages: list[MessageExt]) -> None:
        for each in messages:
            if each.body == b"7" and not failed:
                failed.add(each.body)
                raise RuntimeError("retry")
            received.append(each)

    async with Producer(proxy.remoting_address, group="p") as producer:
        for body in bodies[:10]:
            await producer.send(Message("T", body))
        await producer.send_batch([Message("T", body) for body in bodies[10:]])
    async with consumer_of(proxy.remoting_address, "T", listen):
        await until(lambda: len(received) == len(bodies), 60.0)
    assert sorted(each.body for each in received) == sorted(bodies)


async def test_members_of_the_proxy_and_of_brokers_share_queues(
    cluster: RunningCluster, proxy: Proxy
) -> None:
    through_proxy: list[bytes] = []
    direct: list[bytes] = []

    async def by_proxy(messages: list[MessageExt]) -> None:
        through_proxy.extend(each.body for each in messages)

    async def by_broker(messages: list[MessageExt]) -> None:
        direct.extend(each.body for each in messages)

    async with (
        consumer_of(proxy.remoting_address, "T", by_proxy),
        consumer_of(cluster.address, "T", by_broker),
        Producer(proxy.remoting_address, group="p") as producer,
    ):
        sent = 0
        while not (through_proxy and direct):
            await producer.send(Message("T", b"%d" % sent))
            sent += 1
            assert sent < 20_000
        await until(lambda: len(through_proxy) + len(direct) >= sent, WAIT_SECONDS)
    assert len({*through_proxy, *direct}) == sent


async def test_messages_are_popped_and_acknowledged(proxy: Proxy) -> None:
    async with (
        Producer(proxy.remoting_address, group="p") as producer,
        SimpleConsumer(proxy.remoting_address, group="S", topics="T", consume_from="first") as consumer,
    ):
        await producer.send(Message("T", b"popped"))
        (received,) = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        assert received.body == b"popped"
        await consumer.ack(received)


async def test_transactions_end_at_their_broker(proxy: Proxy) -> None:
    async with (
        Producer(
            proxy.remoting_address, group="p", check_transaction=lambda half: TransactionState.UNKNOWN
        ) as producer,
        SimpleConsumer(proxy.remoting_address, group="S", topics="X", consume_from="first") as consumer,
    ):
        await producer.send_in_transaction(Message("X", b"kept"), lambda half: TransactionState.COMMIT)
        (received,) = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        assert received.body == b"kept"
