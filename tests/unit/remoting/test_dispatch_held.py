"""Responses that come later: deferred and held ones, and their bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmq_remoting.answers import HeldAnswer
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import encode_frame
from tests.support.dispatching import Clock, echo, inline, request, returning
from tests.support.peers import Peer
from tests.support.waiting import loop_passes, until


async def test_a_deferred_response_is_sent_when_its_future_is_done() -> None:
    tier, futures = inline(), list[asyncio.Future[Any]]()

    def hold(connection: Connection, asked: RemotingCommand) -> asyncio.Future[Any]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    dispatcher = Dispatcher()
    dispatcher.register([11], hold, tier)
    dispatcher.register([10], echo, tier)
    peer, held, other, quick = Peer(dispatcher), request(11), request(11), request(10)

    peer.send(held, other, quick)
    assert list(peer.answers) == [quick.opaque]
    assert (tier.statistics.waiting, tier.statistics.max_waiting, tier.statistics.accepted) == (2, 2, 3)
    futures[1].set_result(other.response(19))
    futures[0].set_result(encode_frame(held.response(0)))

    await until(lambda: len(peer.answers) == 3)
    assert (peer.answers[other.opaque].code, peer.answers[held.opaque].code) == (19, 0)
    assert tier.statistics.waiting == 0
    # Responses of one iteration of the loop leave in one write.
    assert len(peer.transport.writes) == 2


async def test_deferred_responses_are_bounded() -> None:
    tier, clock = inline(capacity=2), Clock()
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    free = iter(futures)
    dispatcher = Dispatcher(clock)
    dispatcher.register([11], lambda connection, asked: next(free), tier)
    peer = Peer(dispatcher)
    requests = [request(11) for _ in range(3)]

    dispatcher.dispatch_all(peer.connection, requests, clock.seconds, clock.seconds)
    await loop_passes()

    refusal = peer.answers[requests[2].opaque]
    assert refusal.code == ResponseCode.SYSTEM_BUSY
    assert refusal.remark == "[REJECTREQUEST]system busy: 2 requests of tier inline are under way already"
    assert tier.statistics.rejected_full == 1
    clock.seconds += 1.5
    for future, asked in zip(futures, requests, strict=False):
        future.set_result(asked.response(0))
    await loop_passes()
    assert len(peer.answers) == 3
    assert tier.statistics.waiting == 0
    assert tier.statistics.wait_seconds_total == pytest.approx(3.0)


async def test_held_requests_take_nothing_from_the_capacity() -> None:
    tier, held = inline(capacity=2), list[HeldAnswer]()

    def hold(connection: Connection, asked: RemotingCommand) -> HeldAnswer:
        held.append(HeldAnswer())
        return held[-1]

    dispatcher = Dispatcher()
    dispatcher.register([11], hold, tier)
    dispatcher.register([12], lambda *_: asyncio.get_running_loop().create_future(), tier)
    peer = Peer(dispatcher)
    peer.send(*[request(11) for _ in range(5)], request(12), request(12))

    assert peer.received == []
    assert (tier.statistics.held, tier.statistics.waiting, tier.statistics.rejected_full) == (5, 2, 0)
    refused = request(11)
    peer.send(refused)
    assert peer.answers[refused.opaque].code == ResponseCode.SYSTEM_BUSY
    for answer in held:
        answer.set_result(None)
    assert tier.statistics.held == 0 and not dispatcher.is_idle


async def test_a_server_with_a_held_request_is_not_idle() -> None:
    tier, answer = inline(), HeldAnswer()
    dispatcher = Dispatcher()
    dispatcher.register([11], lambda *_: answer, tier)
    Peer(dispatcher).send(request(11))
    assert not dispatcher.is_idle
    answer.cancel()
    assert dispatcher.is_idle and tier.statistics.held == 0


async def test_a_cancelled_deferred_response_is_answered_busy() -> None:
    future = asyncio.get_running_loop().create_future()
    tier = inline()
    dispatcher = Dispatcher()
    dispatcher.register([11], returning(future), tier)
    peer, asked = Peer(dispatcher), request(11)

    peer.send(asked)
    future.cancel()

    await until(lambda: peer.answers)
    assert peer.answers[asked.opaque].code == ResponseCode.SYSTEM_BUSY
    assert peer.answers[asked.opaque].remark == "PULL_MESSAGE was cancelled by the server; retry"
    assert tier.statistics.waiting == 0


async def test_a_deferred_response_to_a_closed_connection_is_dropped() -> None:
    future = asyncio.get_running_loop().create_future()
    dispatcher = Dispatcher()
    dispatcher.register([11], returning(future), inline())
    peer, asked = Peer(dispatcher), request(11)
    peer.send(asked)
    peer.transport.lose(None)
    await loop_passes()

    future.set_result(asked.response(0))

    await loop_passes()
    assert peer.received == []
