"""Requests and replies, and ways in which a reply is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmq_client import (
    BrokerError,
    InFlightLimits,
    Message,
    MessageExt,
    NoReply,
    Producer,
    Rejected,
    SendStatus,
    TooMuchUnderWay,
    UsageError,
    reply_to,
)
from rmq_remoting.codes import RequestCode
from tests.support.clusters import ClusterBroker, running_cluster
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

_REPLIES = "DefaultCluster_REPLY_TOPIC"
_SEND = RequestCode.SEND_MESSAGE_V2


def _requests(broker: ClusterBroker) -> list[MessageExt]:
    """Return the requests as consumers would get them."""
    requests = broker.stored()
    for request in requests:
        request.broker_name = broker.name
    return requests


async def test_a_request_gets_its_reply(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="asking") as asker,
        Producer(cluster.address, group="answering") as answerer,
    ):
        asked = asyncio.ensure_future(asker.request(Message("T", b"ping", tags="a", flag=3)))
        await until(lambda: _requests(cluster.broker))
        (request,) = _requests(cluster.broker)
        assert (request.body, request.tags, request.flag) == (b"ping", "a", 3)
        assert request.properties["TTL"] == "3000"
        await answerer.reply(request, b"pong")

        reply = await asked
        assert (reply.body, reply.topic) == (b"pong", _REPLIES)
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert "ARRIVE_TIME" in reply.properties
        assert f"{reply.store_host[0]}:{reply.store_host[1]}" == cluster.broker.address
        assert asker.in_flight == 0


async def test_many_requests_get_their_own_replies(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="asking") as asker,
        Producer(cluster.address, group="answering") as answerer,
    ):
        asked = [asyncio.ensure_future(asker.request(Message("T", b"%d" % number))) for number in range(20)]
        await until(lambda: len(_requests(cluster.broker)) == 20)
        for request in reversed(_requests(cluster.broker)):
            await answerer.reply(request, b"to " + request.body)
        replies = [await each for each in asked]
        assert [reply.body for reply in replies] == [b"to %d" % number for number in range(20)]


async def test_a_large_reply_is_compressed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer(cluster.address, group="asking") as producer:
        asked = asyncio.ensure_future(producer.request(Message("T", b"ping")))
        await until(lambda: _requests(cluster.broker))
        body = b"pong" * 10_000
        await producer.reply(_requests(cluster.broker)[0], body)
        assert (await asked).body == body
        (sent,) = cluster.broker.requests(RequestCode.SEND_REPLY_MESSAGE_V2)
        assert len(sent.body) < len(body)


async def test_a_request_without_a_reply_raises_no_reply(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer(cluster.address, group="asking") as producer:
        with pytest.raises(NoReply, match=r"to topic T was sent, but no reply came within 0.1 s") as caught:
            await producer.request(Message("T", b"ping"), timeout_seconds=0.1)
        assert caught.value.is_outcome_unknown, "the broker has the request"
        late = await producer.reply(_requests(cluster.broker)[0], b"late")
        assert late.status is SendStatus.SEND_OK, "the requester takes it though it waits no longer"


async def test_a_request_that_is_refused(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, maxMessageSize=1000) as cluster,
        Producer(cluster.address, group="asking") as producer,
    ):
        with pytest.raises(Rejected, match="maxMessageSize"):
            await producer.request(Message("T", b"x" * 1001))
        with pytest.raises(UsageError, match="empty body"):
            await producer.request(Message("T"))


async def test_waiting_requests_are_bounded(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path) as cluster,
        Producer(cluster.address, group="asking", limits=InFlightLimits(max_messages=1)) as producer,
    ):
        asked = asyncio.ensure_future(producer.request(Message("T", b"ping")))
        await until(lambda: _requests(cluster.broker))
        with pytest.raises(TooMuchUnderWay, match="1 requests already wait for their replies"):
            await producer.request(Message("T", b"another"))
        await producer.reply(_requests(cluster.broker)[0], b"pong")
        assert (await asked).body == b"pong"


async def test_a_reply_to_a_disconnected_requester_raises(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster, Producer(cluster.address, group="answering") as answerer:
        async with Producer(cluster.address, group="asking") as asker:
            with pytest.raises(NoReply):
                await asker.request(Message("T", b"ping"), timeout_seconds=0.05)
        (request,) = _requests(cluster.broker)
        request.properties["REPLY_TO_CLIENT"] = "long gone"
        with pytest.raises(BrokerError, match="the requester long gone is not connected"):
            await answerer.reply(request, b"pong")


def test_only_a_request_can_be_replied_to() -> None:
    message = Message("T", b"x")
    with pytest.raises(UsageError, match="no property CORRELATION_ID, REPLY_TO_CLIENT, CLUSTER"):
        reply_to(message, b"pong")
    message.properties |= {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "CLUSTER": "C"}
    reply = reply_to(message, b"pong")
    assert reply.topic == "C_REPLY_TOPIC"
    assert reply.properties == {"MSG_TYPE": "reply", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me"}
