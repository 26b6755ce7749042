"""Draining: wait until each request is answered, as a daemon does during a graceful shutdown."""

from __future__ import annotations

import asyncio
import threading

from rmq_remoting.answers import Answer
from rmq_remoting.codes import RequestCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.draining import all_answered
from rmq_remoting.tiers import InlineTier, PoolTier
from tests.support.peers import Peer
from tests.support.waiting import until


async def test_draining_waits_for_requests_in_a_pool() -> None:
    go_on = threading.Event()

    def slow(_: Connection, request: RemotingCommand) -> Answer:
        assert go_on.wait(5)
        return request.response(0)

    dispatcher = Dispatcher()
    pool = PoolTier("pool", threads=1, capacity=10, max_wait_ms=5000)
    dispatcher.register([RequestCode.GET_BROKER_CONFIG], slow, pool)
    peer = Peer()
    now = asyncio.get_running_loop().time()
    requests = [RemotingCommand.request(RequestCode.GET_BROKER_CONFIG) for _ in range(3)]
    dispatcher.dispatch_all(peer.connection, requests, now, now)
    await until(lambda: pool.statistics.running == 1)
    assert pool.statistics.waiting == 2
    assert not await all_answered(dispatcher, 0.0)
    go_on.set()
    assert await all_answered(dispatcher, 5.0)
    await until(lambda: len(peer.received) == 3)
    assert (pool.statistics.waiting, pool.statistics.running) == (0, 0)
    dispatcher.stop()


async def test_draining_waits_for_deferred_responses() -> None:
    deferred: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    dispatcher = Dispatcher()
    tier = InlineTier("inline", capacity=10, max_wait_ms=5000)
    dispatcher.register([RequestCode.GET_BROKER_CONFIG], lambda *_: deferred, tier)
    peer = Peer()
    request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
    now = asyncio.get_running_loop().time()
    dispatcher.dispatch_all(peer.connection, [request], now, now)
    assert not await all_answered(dispatcher, 0.0)
    deferred.set_result(request.response(0))
    assert await all_answered(dispatcher, 5.0)
    await until(lambda: peer.received)
