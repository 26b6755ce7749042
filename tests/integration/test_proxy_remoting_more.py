"""The proxy's remoting port: checks of transactions, and a graceful shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_client import Message, Producer, SimpleConsumer, TransactionState
from rmq_client.admin import Admin
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon import health
from rmq_remoting.headers.pull import PullMessageRequestHeader
from rmq_remoting.sys_flags import PullSysFlag
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until

WAIT_SECONDS = 30.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    checks = {"transactionCheckInterval": "500", "transactionTimeOut": "500"}
    async with running_cluster(tmp_path, {"broker-a": {}}, **checks) as running:
        async with Admin(running.address) as admin:
            await admin.create_topic("T", queues=1)
            await admin.create_topic("X", queues=1, attributes={"+message.type": "TRANSACTION"})
        yield running


async def test_a_check_of_a_transaction_reaches_its_producer(cluster: RunningCluster) -> None:
    async with (
        running_proxy(cluster.address) as proxy,
        Producer(
            proxy.remoting_address, group="p", check_transaction=lambda half: TransactionState.COMMIT
        ) as producer,
        SimpleConsumer(proxy.remoting_address, group="S", topics="X", consume_from="first") as consumer,
    ):
        await producer.send_in_transaction(Message("X", b"checked"), lambda half: TransactionState.UNKNOWN)
        (received,) = await consumer.receive(timeout_seconds=WAIT_SECONDS)
        assert received.body == b"checked"


async def test_a_shutdown_answers_held_pulls(cluster: RunningCluster) -> None:
    pull = PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=PullSysFlag.build(suspend=True, subscription=True),
        commit_offset=0,
        suspend_timeout_ms=60_000,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
        max_msg_bytes=None,
        broker_name="broker-a",
    )
    async with running_proxy(cluster.address) as proxy, raw_client(remoting_port(proxy)) as client:
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull.encode())
        first = asyncio.ensure_future(client.ask(request))
        await until(lambda: cluster.broker.held_pulls.count == 1)
        assert not first.done()
        stopping = asyncio.ensure_future(proxy.stop())
        answer = await first
        await stopping
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == "0"


async def test_rmq_health_asks_the_port(cluster: RunningCluster) -> None:
    role = health.ROLES["proxy-remoting"]
    async with running_proxy(cluster.address) as proxy:
        await asyncio.to_thread(health.check, role, LOOPBACK, remoting_port(proxy), 5.0)
        for broker in cluster.brokers.values():
            await broker.stop()
        # The proxy lives without brokers: a restart of it would not help.
        await asyncio.to_thread(health.check, role, LOOPBACK, remoting_port(proxy), 5.0)
        port = remoting_port(proxy)
    with pytest.raises(OSError):
        await asyncio.to_thread(health.check, role, LOOPBACK, port, 5.0)
