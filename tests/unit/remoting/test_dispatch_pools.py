"""Thread pools of the dispatcher."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.tiers import PoolTier
from tests.support.dispatching import Clock, Gate, echo, inline, request
from tests.support.peers import Peer
from tests.support.waiting import until


async def test_a_blocked_pool_delays_no_other_tier(pools: Callable[..., PoolTier]) -> None:
    gate, blocked = Gate(), pools("blocked", threads=2)
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, blocked)
    dispatcher.register([10], echo, inline())
    dispatcher.register([11], echo, pools("other"))
    dispatcher.register(
        [14], lambda connection, asked: asyncio.ensure_future(deferred(asked)), inline("deferred")
    )
    peer = Peer(dispatcher)
    stuck = [request(12) for _ in range(10)]
    peer.send(*stuck)
    await until(lambda: gate.entered == 2)

    for _ in range(20):
        asked = [request(10), request(11), request(14)]
        peer.send(*asked)
        await until(lambda: all(each.opaque in peer.answers for each in asked))  # noqa: B023

    assert not any(each.opaque in peer.answers for each in stuck)
    assert (blocked.statistics.accepted, blocked.statistics.waiting) == (10, 8)
    gate.opened.set()
    await until(lambda: all(each.opaque in peer.answers for each in stuck))
    assert blocked.statistics.waiting == 0
    assert blocked.statistics.max_waiting == 10


async def test_requests_behind_many_in_a_pool_wait_for_them(pools: Callable[..., PoolTier]) -> None:
    gate, pool, clock = Gate(), pools("slow", threads=2, max_wait_ms=60_000), Clock()
    clock.seconds = asyncio.get_running_loop().time()  # by which the connection notes arrivals
    dispatcher = Dispatcher(clock)
    dispatcher.register([12], gate, pool)
    dispatcher.register([10], echo, inline())
    busy, other = Peer(dispatcher, ConnectionSettings(max_pooled_requests=5)), Peer(dispatcher)
    slow, behind = [request(12) for _ in range(7)], request(10)
    busy.send(*slow[:5])
    busy.send(*slow[5:], behind)
    unrelated = request(10)
    other.send(unrelated)
    await until(lambda: unrelated.opaque in other.answers)
    assert pool.statistics.accepted == 5, "each answer may be large"
    assert not busy.answers

    clock.seconds += 50  # the time in the pool is no wait for the tier of the last one
    gate.opened.set()
    await until(lambda: len(busy.answers) == 8)
    assert {answer.code for answer in busy.answers.values()} == {0}


async def test_a_pool_does_no_work_for_a_peer_that_has_gone(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query")
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    peer.send(request(12), request(12), request(12))
    await until(lambda: gate.entered == 1)
    peer.connection.abort()
    gate.opened.set()
    await until(lambda: dispatcher.is_idle)
    assert gate.entered == 1
    assert next(dispatcher.registrations()).answered[-1] == 2


async def deferred(asked: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0)
    return asked.response(0)


async def test_a_pool_runs_processors_in_its_threads(pools: Callable[..., PoolTier]) -> None:
    threads = set()

    def where(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        threads.add(threading.current_thread().name)
        return asked.response(0)

    dispatcher = Dispatcher()
    dispatcher.register([10], where, pools("query", threads=2))
    peer = Peer(dispatcher)

    peer.send(*[request() for _ in range(50)])

    await until(lambda: len(peer.answers) == 50)
    assert threads <= {"query_0", "query_1"}


async def test_a_full_pool_refuses_at_once(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query", capacity=3)
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    running = request(12)
    peer.send(running)
    await until(lambda: gate.entered == 1 and pool.statistics.waiting == 0)
    requests = [request(12) for _ in range(5)]

    peer.send(*requests)

    assert set(peer.answers) == {asked.opaque for asked in requests[3:]}
    for answer in peer.answers.values():
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark == "[REJECTREQUEST]system busy: 3 requests of tier query are under way already"
    assert (pool.statistics.rejected_full, pool.statistics.accepted, pool.statistics.waiting) == (2, 4, 3)
    gate.opened.set()
    await until(lambda: len(peer.answers) == 6)
    assert next(dispatcher.registrations()).answered == {0: 4, 2: 2}


async def test_a_request_that_waited_too_long_for_a_pool_is_refused(pools: Callable[..., PoolTier]) -> None:
    gate, clock, pool = Gate(), Clock(), pools("query", max_wait_ms=5000)
    dispatcher = Dispatcher(clock)
    dispatcher.register([12], gate, pool)
    peer = Peer(dispatcher)
    running, waiting, in_time = request(12), request(12), request(12)
    dispatcher.dispatch_all(peer.connection, [running, waiting], clock.seconds, clock.seconds)
    await until(lambda: gate.entered == 1)
    dispatcher.dispatch_all(peer.connection, [in_time], clock.seconds + 1, clock.seconds + 1)

    clock.seconds += 5.5
    gate.opened.set()

    await until(lambda: len(peer.answers) == 3)
    assert peer.answers[running.opaque].code == 0
    assert peer.answers[in_time.opaque].code == 0
    late = peer.answers[waiting.opaque]
    assert late.code == ResponseCode.SYSTEM_BUSY
    assert late.remark is not None
    assert late.remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy: waited 5500 ms in tier query, the limit is 5000 ms; "
    )
    assert (pool.statistics.rejected_late, pool.statistics.waiting, gate.entered) == (1, 0, 2)
    assert pool.statistics.wait_seconds_total == pytest.approx(0 + 5.5 + 4.5)


async def test_a_stopped_pool_refuses(pools: Callable[..., PoolTier]) -> None:
    gate, pool = Gate(), pools("query")
    dispatcher = Dispatcher()
    dispatcher.register([12], gate, pool)
    peer, running, queued, late = Peer(dispatcher), request(12), request(12), request(12)
    peer.send(running, queued)
    await until(lambda: gate.entered == 1)

    dispatcher.stop()
    peer.send(late)
    gate.opened.set()

    await until(lambda: len(peer.answers) == 2)
    assert peer.answers[late.opaque].code == ResponseCode.SYSTEM_BUSY
    assert peer.answers[late.opaque].remark == "[REJECTREQUEST]system busy: tier query is shutting down"
    assert peer.answers[running.opaque].code == 0
    assert gate.entered == 1


@pytest.mark.each_loop
async def test_the_default_clock_agrees_with_the_loop() -> None:
    # A connection stamps requests with the loop's time, which the dispatcher compares with its own clock.
    dispatcher = Dispatcher()
    assert dispatcher.clock() == pytest.approx(asyncio.get_running_loop().time(), abs=0.1)
