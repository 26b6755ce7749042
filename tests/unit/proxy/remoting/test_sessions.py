"""Sessions: connections to brokers, and the heartbeats on them."""

from __future__ import annotations

import asyncio

import pytest

from rmq_proxy.remoting.connection_limit import ConnectionLimit
from rmq_proxy.remoting.sessions import Broker, Sessions, different, session_of
from rmq_remoting.bodies.heartbeat import HeartbeatData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.errors import ConnectError, TooManyRequests
from tests.support.broker_requests import heartbeat, request
from tests.unit.proxy.remoting.parts import A, B, FakeConnect, Peer, SessionParts, settled

pytestmark = pytest.mark.virtual_time

_DATA = HeartbeatData(client_id="client")


async def test_concurrent_requests_share_a_connection() -> None:
    parts = SessionParts()
    first, second = await asyncio.gather(parts.session.connection(A), parts.session.connection(A))
    assert first is second
    assert parts.limit.open == 1
    assert parts.session.brokers == [A]
    assert session_of(first) is parts.session
    assert parts.session.broker_name(first) == "broker-a"
    assert parts.session.broker_name(Peer().connection) == ""


async def test_a_new_connection_begins_with_the_heartbeat() -> None:
    parts = SessionParts()
    parts.session.keep(heartbeat("client"), _DATA)
    opening = asyncio.ensure_future(parts.session.connection(A))
    await settled()
    (announced,) = await parts.peer(A).received()
    assert announced.code == RequestCode.HEART_BEAT
    assert not opening.done(), "requests follow the broker's answer"
    parts.peer(A).answer(announced, ResponseCode.SYSTEM_ERROR, "a refusal ends nothing")
    assert await opening is parts.peer(A).connection
    parts.session.forget_heartbeat()
    await parts.session.connection(B)
    assert await parts.peer(B).received() == []


async def test_the_same_heartbeat_is_not_repeated_at_once() -> None:
    """The Java client sends one for each broker of its routes."""
    parts = SessionParts()

    async def announce(client_id: str) -> bool:
        sending = asyncio.ensure_future(parts.session.announce(A, heartbeat(client_id)))
        await settled()
        for command in await parts.peer(A).received():
            parts.peer(A).answer(command)
        return await sending is not None

    assert await announce("client")
    assert not await announce("client")
    assert await announce("another")
    parts.session.forget_heartbeat()
    assert await announce("another")


async def test_a_refused_heartbeat_is_repeated() -> None:
    parts = SessionParts()
    for _ in range(2):
        sending = asyncio.ensure_future(parts.session.announce(A, heartbeat("client")))
        await settled()
        (command,) = await parts.peer(A).received()
        parts.peer(A).answer(command, ResponseCode.SYSTEM_ERROR, "not now")
        answer = await sending
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_closed_and_failed_connections_are_not_counted() -> None:
    parts = SessionParts(most=1)
    parts.brokers.unreachable = {B.address}
    for outcome in await asyncio.gather(
        parts.session.connection(B), parts.session.connection(B), return_exceptions=True
    ):
        assert isinstance(outcome, ConnectError)
    assert parts.limit.open == 0
    first = await parts.session.connection(A)
    with pytest.raises(TooManyRequests):
        await parts.session.connection(B)
    first.close()
    # Still counted: the old connection has not ended, and its place goes to the new one.
    second = await parts.session.connection(A)
    await asyncio.sleep(0)
    assert second is not first
    assert parts.limit.open == 1
    second.close()
    await settled()
    assert parts.limit.open == 0


async def test_the_end_of_a_session_frees_its_connections() -> None:
    parts = SessionParts()
    await parts.session.connection(A)
    await parts.session.connection(B)
    await parts.session.stop()
    assert parts.limit.open == 0
    assert parts.session.brokers == []


async def test_requests_have_answers_and_one_way_ones_have_none() -> None:
    parts = SessionParts()
    asking = asyncio.ensure_future(parts.session.request(A, request(RequestCode.GET_MAX_OFFSET), 5.0))
    await settled()
    (asked,) = await parts.peer(A).received()
    parts.peer(A).answer(asked, ResponseCode.SUCCESS, "here")
    assert (await asking).remark == "here"
    await parts.session.oneway(A, request(RequestCode.ACK_MESSAGE))
    (told,) = await parts.peer(A).received()
    assert told.is_oneway


async def test_a_session_ends_with_its_client() -> None:
    sessions = Sessions(FakeConnect(), ConnectionLimit(10))
    client = Peer()
    session = sessions.of(client.connection)
    assert sessions.of(client.connection) is session
    await session.connection(A)
    assert (len(sessions), sessions.limit.open) == (1, 1)
    sessions.closed(client.connection)
    sessions.closed(client.connection)
    await settled()
    assert (len(sessions), sessions.limit.open) == (0, 0)
    client.connection.close()
    sessions.of(client.connection)  # of a request that came before the end
    assert len(sessions) == 0
    await sessions.stop()


def test_brokers_are_told_apart_by_address() -> None:
    again = Broker("other-name", A.address)
    assert [each.address for each in different([A, B, again])] == [A.address, B.address]
