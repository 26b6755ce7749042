"""Requests on their way to one broker: time-outs, held requests, and the end of the proxy."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rmq_proxy.remoting.connection_limit import ConnectionLimit
from rmq_proxy.remoting.lookup import Lookup
from rmq_proxy.remoting.relay import Relay
from rmq_proxy.remoting.sessions import Sessions
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.tiers import InlineTier
from tests.support.broker_requests import pull, request, send
from tests.support.pop_requests import notify, pop
from tests.support.proxied_requests import to_broker
from tests.unit.proxy.remoting.parts import (
    A,
    FakeBrokers,
    FakeConnect,
    Peer,
    brokers_of,
    settled,
)

pytestmark = pytest.mark.virtual_time

_ROUTES: dict[str, dict[str, dict[int, str]]] = {A.name: {A.name: {0: A.address}}}
_TIMEOUT_SECONDS = 3.0


class _Parts:
    def __init__(self, most: int = 10) -> None:
        brokers = brokers_of(_ROUTES)
        self.brokers = cast(FakeBrokers, brokers)
        connect = FakeConnect()
        self.sessions = Sessions(connect, ConnectionLimit(most))
        self.relay = Relay(self.sessions, Lookup(brokers, "DefaultCluster"), brokers, _TIMEOUT_SECONDS)
        self.client = Peer().connection
        self.sessions.of(self.client)
        (self.connections,) = connect.clients
        self.tier = InlineTier("pull", capacity=10, max_wait_ms=1000)

    def pass_on(self, command: RemotingCommand) -> asyncio.Task[object]:
        return asyncio.ensure_future(self.relay.by_name(self.client, command.code, command))

    def hold(self, command: RemotingCommand) -> asyncio.Future[object]:
        held = self.relay.hold(self.client, command.code, command, self.tier, self.relay.by_name)
        return cast("asyncio.Future[object]", held)

    async def received(self) -> list[RemotingCommand]:
        await settled()
        return await self.connections.peers[A.address].received()


def _answered(answer: object) -> RemotingCommand:
    assert isinstance(answer, RemotingCommand)
    return answer


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        (send("T"), _TIMEOUT_SECONDS),
        (request(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0), _TIMEOUT_SECONDS),
        (pull("T"), 10.0),
        (pull("T", suspend_ms=15_000), 25.0),
        (pop("T", poll_ms=20_000), 30.0),
        (notify("T", poll_ms=5_000), 15.0),
        (request(RequestCode.POP_MESSAGE, pollTime="many"), 10.0),
        (request(RequestCode.POP_MESSAGE, pollTime="9" * 15), 3610.0),
    ],
)
async def test_the_wait_for_a_broker_is_that_of_the_request(command: RemotingCommand, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    parts = _Parts()
    began = loop.time()
    with pytest.raises(CommandError) as refused:
        await parts.pass_on(to_broker(command))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert seconds <= loop.time() - began < seconds + 0.5
    assert parts.brokers.outdated == [A.address], "the broker may have moved"


async def test_a_broker_without_a_place_for_a_connection_has_not_moved() -> None:
    parts = _Parts(most=0)
    with pytest.raises(CommandError) as refused:
        await parts.pass_on(to_broker(send("T")))
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert parts.brokers.outdated == []


async def test_a_one_way_request_has_no_answer() -> None:
    parts = _Parts()
    assert await parts.pass_on(to_broker(send("T", oneway=True))) is None
    (told,) = await parts.received()
    assert (told.code, told.is_oneway) == (RequestCode.SEND_MESSAGE_V2, True)


async def test_a_held_request_counts_until_it_is_answered() -> None:
    parts = _Parts()
    asked = to_broker(pull("T", suspend_ms=15_000))
    answer = parts.hold(asked)
    (received,) = await parts.received()
    assert parts.tier.statistics.waiting == 1
    parts.connections.peers[A.address].answer(received, ResponseCode.PULL_NOT_FOUND)
    assert _answered(await answer).opaque == asked.opaque
    await settled()
    assert parts.tier.statistics.waiting == 0


@pytest.mark.parametrize(
    ("command", "code", "fields"),
    [
        (pull("T", offset=7, suspend_ms=15_000), ResponseCode.PULL_NOT_FOUND, {"nextBeginOffset": "7"}),
        (pop("T", poll_ms=15_000), ResponseCode.POLLING_TIMEOUT, {"restNum": "0"}),
        (notify("T", poll_ms=15_000), ResponseCode.SUCCESS, {"hasMsg": "false"}),
    ],
)
async def test_the_end_of_the_proxy_answers_held_requests(
    command: RemotingCommand, code: int, fields: dict[str, str]
) -> None:
    parts = _Parts()
    held = parts.hold(to_broker(command))
    assert len(await parts.received()) == 1
    parts.relay.release()
    late = parts.hold(to_broker(command))
    for answer in (_answered(await held), _answered(await late)):
        assert answer.code == code
        assert answer.ext_fields.items() >= fields.items()
    assert await parts.received() == [], "a late request does not go to the broker"
    await parts.relay.stop()
    assert parts.tier.statistics.waiting == 0
