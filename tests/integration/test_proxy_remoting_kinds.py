"""The proxy's remoting port: ordered consumers, locks, requests and replies, TLS, and bad input."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import ClientSettings, Message, MessageExt, Producer, TlsSettings
from rmq_client.admin import Admin
from rmq_proxy.proxy import Proxy
from rmq_remoting.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message_queue import MessageQueue
from tests.interop.consumers import consumer_of
from tests.support.certificates import make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.raw_client import raw_client
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until

WAIT_SECONDS = 60.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path, {"broker-a": {}, "broker-b": {}}) as running:
        async with Admin(running.address) as admin:
            await admin.create_topic("T", queues=2)
        yield running


@pytest.fixture
async def proxy(cluster: RunningCluster) -> AsyncIterator[Proxy]:
    async with running_proxy(cluster.address) as running:
        yield running


async def test_an_ordered_consumer_keeps_the_order_of_each_queue(proxy: Proxy) -> None:
    received: dict[tuple[str, int], list[int]] = {}

    async def listen(messages: list[MessageExt]) -> None:
        for each in messages:
            received.setdefault((each.broker_name, each.queue_id), []).append(int(each.body))

    async with Producer(proxy.remoting_address, group="p") as producer:
        for number in range(20):
            await producer.send(Message("T", b"%d" % number))
    async with consumer_of(proxy.remoting_address, "T", listen, orderly=True):
        await until(lambda: sum(map(len, received.values())) >= 20, WAIT_SECONDS)
    assert sorted(number for queue in received.values() for number in queue) == list(range(20))
    assert all(queue == sorted(queue) for queue in received.values())


async def test_locks_are_those_of_one_broker(proxy: Proxy) -> None:
    queues = [MessageQueue("T", name, 0) for name in ("broker-a", "broker-b")]

    def lock(client_id: str, wanted: list[MessageQueue]) -> RemotingCommand:
        body = LockBatchRequestBody(client_id=client_id, consumer_group="G", mq_set=wanted).encode()
        return RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body)

    async with raw_client(remoting_port(proxy)) as client:
        locked = await client.ask(lock("first", queues[:1]))
        denied = await client.ask(lock("second", queues[:1]))
        mixed = await client.ask(lock("first", queues))
    assert LockBatchResponseBody.decode(locked.body).lock_ok_mq_set == queues[:1]
    assert LockBatchResponseBody.decode(denied.body).lock_ok_mq_set == []
    assert mixed.code == ResponseCode.INVALID_PARAMETER


async def test_a_request_gets_its_reply(proxy: Proxy) -> None:
    address = proxy.remoting_address
    async with Producer(address, group="asking") as asker, Producer(address, group="answering") as answering:

        async def answer(messages: list[MessageExt]) -> None:
            for each in messages:
                await answering.reply(each, b"re: " + each.body)

        async with consumer_of(address, "T", answer):
            reply = await asker.request(Message("T", b"ping"), timeout_seconds=WAIT_SECONDS)
    assert reply.body == b"re: ping"


async def test_a_tls_client_sends_and_others_are_cut_off(cluster: RunningCluster, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "server")
    keys = {
        "tls.server.mode": "enforcing",
        **certificate.settings,
    }
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    async with running_proxy(cluster.address, **keys) as proxy:
        async with Producer(proxy.remoting_address, group="p", settings=settings) as producer:
            await producer.send(Message("T", b"secret"))
        async with raw_client(remoting_port(proxy)) as client:
            client.send(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
            assert await client.until_closed() == []


async def test_an_oversized_frame_ends_its_connection_alone(proxy: Proxy) -> None:
    async with raw_client(remoting_port(proxy)) as good, raw_client(remoting_port(proxy)) as bad:
        bad.send_bytes((0x7FFF_FFFF).to_bytes(4, "big") + bytes(8))
        assert await bad.until_closed() == []
        route = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert (await good.ask(route)).code == ResponseCode.SUCCESS
