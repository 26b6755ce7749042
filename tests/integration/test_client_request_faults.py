"""Requests and replies against brokers in memory: lost answers and refused replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rmq_client import Message, MessageExt, Producer
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.support.fake_cluster import FakeBroker, FakeCluster, Fault
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_REPLIES = "DefaultCluster_REPLY_TOPIC"
_SEND = RequestCode.SEND_MESSAGE_V2


@asynccontextmanager
async def _cluster(*names: str) -> AsyncIterator[FakeCluster]:
    async with FakeCluster({name: {"T": 1, _REPLIES: 1} for name in names or ("broker-a",)}) as cluster:
        yield cluster


def _requests(broker: FakeBroker) -> list[MessageExt]:
    """Return the requests that consumers would get; real brokers name their cluster."""
    for message in broker.queues["T", 0].records:
        message.properties["CLUSTER"] = "DefaultCluster"
        message.broker_name = broker.name
    return broker.queues["T", 0].records


async def test_a_reply_counts_if_the_send_answer_got_lost() -> None:
    async with _cluster() as cluster, Producer(cluster.address, group="asking") as producer:
        await producer.send(Message("T", b"first"))
        cluster.broker.queues["T", 0].records.clear()
        for _ in range(3):
            cluster.broker.order(_SEND, Fault(after=True, silent=True))
        asked = asyncio.ensure_future(producer.request(Message("T", b"ping"), timeout_seconds=0.5))
        await until(lambda: _requests(cluster.broker))
        await producer.reply(_requests(cluster.broker)[0], b"pong")
        assert (await asked).body == b"pong"


async def test_a_reply_falls_back_to_another_broker() -> None:
    async with (
        _cluster("broker-a", "broker-b") as cluster,
        Producer(cluster.address, group="asking") as producer,
    ):
        asked = asyncio.ensure_future(producer.request(Message("T", b"ping")))
        await until(lambda: any(_requests(broker) for broker in cluster.brokers.values()))
        (first,) = [broker for broker in cluster.brokers.values() if _requests(broker)]
        (other,) = [broker for broker in cluster.brokers.values() if broker is not first]
        faults = [Fault(code=ResponseCode.SYSTEM_ERROR) for _ in range(3)]
        first.order(RequestCode.SEND_REPLY_MESSAGE_V2, *faults)
        await producer.reply(_requests(first)[0], b"pong")
        assert (await asked).body == b"pong"
        assert first.codes().count(RequestCode.SEND_REPLY_MESSAGE_V2) >= 1, (
            "who has the requester is asked first"
        )
        assert not first.replies
        assert len(other.replies) == 1
