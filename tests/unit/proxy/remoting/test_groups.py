"""Heartbeats to several brokers, some of which fail or do not answer."""

from __future__ import annotations

import asyncio

import pytest

from rmq_proxy.remoting.connection_limit import ConnectionLimit
from rmq_proxy.remoting.groups import Groups
from rmq_proxy.remoting.lookup import Lookup
from rmq_proxy.remoting.relay import Relay
from rmq_proxy.remoting.sessions import Broker, Sessions
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_requests import heartbeat, request
from tests.unit.proxy.remoting.parts import A, B, FakeConnect, Peer, brokers_of, settled

pytestmark = pytest.mark.virtual_time

_ROUTES: dict[str, dict[str, dict[int, str]]] = {
    "DefaultCluster": {},
    "T": {A.name: {0: A.address}, B.name: {0: B.address}},
}


class _Parts:
    def __init__(self, most: int = 10) -> None:
        brokers = brokers_of(_ROUTES)
        connect = FakeConnect()
        self.sessions = Sessions(connect, ConnectionLimit(most))
        lookup = Lookup(brokers, "DefaultCluster")
        self.groups = Groups(self.sessions, lookup, Relay(self.sessions, lookup, brokers, 3.0))
        self.client = Peer().connection
        self.session = self.sessions.of(self.client)
        (self.brokers,) = connect.clients

    def beat(self) -> asyncio.Task[object]:
        command = heartbeat("client", "G", {"T": "*"})
        return asyncio.ensure_future(self.groups.heartbeat(self.client, command.code, command))

    async def answer(self, broker: Broker, code: int = ResponseCode.SUCCESS, remark: str = "") -> list[int]:
        """Answer what a broker has got; return the codes of it."""
        await settled()
        peer = self.brokers.peers[broker.address]
        received = await peer.received()
        for command in received:
            peer.answer(command, code, remark)
        return [command.code for command in received]


def _code(answer: object) -> int:
    assert isinstance(answer, RemotingCommand)
    return answer.code


async def test_a_heartbeat_reaches_each_broker_of_the_topics() -> None:
    parts = _Parts()
    beating = parts.beat()
    for broker in (A, B):
        assert await parts.answer(broker) == [RequestCode.HEART_BEAT]
    assert _code(await beating) == ResponseCode.SUCCESS
    assert parts.session.data is not None


async def test_a_refusal_is_the_answer() -> None:
    parts = _Parts()
    beating = parts.beat()
    await parts.answer(A)
    await parts.answer(B, ResponseCode.NO_PERMISSION, "not you")
    answer = await beating
    assert isinstance(answer, RemotingCommand)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not you")


async def test_a_broker_that_is_late_or_unreachable_does_not_matter_beside_another() -> None:
    loop = asyncio.get_running_loop()
    parts = _Parts()
    began = loop.time()
    beating = parts.beat()
    await parts.answer(A)
    assert _code(await beating) == ResponseCode.SUCCESS
    assert 1.9 < loop.time() - began < 2.5, "clients wait for three seconds"
    await parts.groups.stop()
    parts = _Parts()
    parts.brokers.unreachable = {B.address}
    beating = parts.beat()
    await parts.answer(A)
    assert _code(await beating) == ResponseCode.SUCCESS


async def test_without_any_broker_the_heartbeat_fails() -> None:
    parts = _Parts()
    parts.brokers.unreachable = {A.address, B.address}
    with pytest.raises(CommandError) as refused:
        await parts.beat()
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_lack_of_connections_is_told_although_another_broker_answers() -> None:
    parts = _Parts(most=1)
    beating = parts.beat()
    await parts.answer(A)
    with pytest.raises(CommandError) as refused:
        await beating
    assert refused.value.code == ResponseCode.SYSTEM_BUSY


async def test_a_client_leaves_at_all_brokers_that_know_it() -> None:
    parts = _Parts()
    for broker in (A, B):
        await parts.session.connection(broker)
    leave = request(RequestCode.UNREGISTER_CLIENT, clientID="client", consumerGroup="G")
    leaving = asyncio.ensure_future(parts.groups.unregister(parts.client, leave.code, leave))
    assert await parts.answer(A) == [RequestCode.UNREGISTER_CLIENT]
    await settled()
    parts.brokers.peers[B.address].transport.lose(ConnectionResetError())
    assert _code(await leaving) == ResponseCode.SUCCESS


async def test_the_next_broker_is_asked_if_one_fails() -> None:
    parts = _Parts()
    parts.brokers.unreachable = {A.address}
    members = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="G")
    await parts.session.connection(B)
    beating = parts.beat()
    await parts.answer(B)
    await beating
    asking = asyncio.ensure_future(parts.groups.members(parts.client, members.code, members))
    assert await parts.answer(B) == [RequestCode.GET_CONSUMER_LIST_BY_GROUP]
    assert _code(await asking) == ResponseCode.SUCCESS
