"""Tiers: their counters, and the refusals that follow from their bounds."""

from __future__ import annotations

import threading
import weakref

import pytest

from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.tiers import InlineTier, PoolTier, has_share
from tests.support.waiting import until_in_thread


def test_waiting_requests_are_counted() -> None:
    statistics = InlineTier("inline", capacity=10, max_wait_ms=200).statistics
    statistics.add_waiting()
    statistics.add_waiting()
    statistics.end_waiting(0.5)
    statistics.add_waiting()
    assert (statistics.waiting, statistics.max_waiting, statistics.wait_seconds_total) == (2, 2, 0.5)


def test_refusals_are_counted_and_name_the_bound() -> None:
    tier = InlineTier("send", capacity=10, max_wait_ms=200)
    tier.statistics.waiting = 10
    full, late = tier.refuse_full(), tier.refuse_late(0.25)
    assert (full.code, late.code) == (ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY)
    assert full.remark == "[REJECTREQUEST]system busy: 10 requests of tier send are under way already"
    assert late.remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy: waited 250 ms in tier send, the limit is 200 ms; "
        "10 requests wait there"
    )
    assert (tier.statistics.rejected_full, tier.statistics.rejected_late) == (1, 1)


def test_a_pool_that_cannot_start_a_thread_refuses_and_drops_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, ran = PoolTier("query", threads=1, capacity=10, max_wait_ms=5000), list[str]()

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(CommandError, match=r"SYSTEM_BUSY.*short of threads: can't start new thread$"):
            pool.submit(lambda: ran.append("refused"))
    pool.submit(lambda: ran.append("accepted"))
    until_in_thread(lambda: ran)
    assert ran == ["accepted"], "the executor had queued the work before it failed"


def test_a_stopped_pool_drops_queued_work_and_refuses_more() -> None:
    pool = PoolTier("stopped", threads=1, capacity=10, max_wait_ms=5000)
    entered, gate, ran = threading.Event(), threading.Event(), list[str]()

    def block() -> None:
        entered.set()
        assert gate.wait(10)
        ran.append("running")

    pool.submit(block)
    pool.submit(lambda: ran.append("queued"))
    assert entered.wait(10)
    pool.stop()
    gate.set()
    with pytest.raises(CommandError, match=r"^2 \(SYSTEM_BUSY\): .*tier stopped is shutting down$"):
        pool.submit(lambda: None)
    until_in_thread(lambda: not [each for each in threading.enumerate() if each.name.startswith("stopped")])
    assert ran == ["running"]


def test_the_head_of_a_pools_queue_tells_how_long_it_has_waited() -> None:
    now = 100.0
    pool = PoolTier("query", threads=1, capacity=10, max_wait_ms=5000, clock=lambda: now)
    entered, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert gate.wait(10)

    assert pool.head_wait_seconds() == 0.0
    pool.submit(block)
    assert entered.wait(10)
    assert pool.head_wait_seconds() == 0.0, "it runs"
    pool.submit(lambda: None)
    now = 101.0
    pool.submit(ended.set)
    now = 103.5
    assert pool.head_wait_seconds() == 3.5
    gate.set()
    assert ended.wait(10)
    assert pool.head_wait_seconds() == 0.0
    assert InlineTier("send", capacity=10, max_wait_ms=200).head_wait_seconds() == 0.0


def test_one_connection_cannot_take_the_whole_capacity() -> None:
    tier = InlineTier("pull", capacity=3200, max_wait_ms=200)
    greedy, modest, other = object(), object(), object()
    while tier.has_room(greedy):
        tier.enter(greedy)
    assert tier.statistics.waiting == 1600
    refusal = tier.refuse_full()
    assert refusal.remark.endswith(
        "1600 requests of tier pull are under way already, 200 or more of them from this connection"
    )
    for owner in (modest, other):
        while tier.has_room(owner):
            tier.enter(owner)
    assert tier.statistics.waiting == 2000
    for _ in range(1600):
        tier.leave(greedy, 0.0)
    assert tier.has_room(greedy) and tier.has_room(modest)


@pytest.mark.parametrize(
    ("used", "own", "has_room"),
    [(49, 49, True), (50, 50, False), (50, 9, True), (50, 10, False), (99, 0, True), (100, 0, False)],
)
def test_shares_of_a_capacity(used: int, own: int, has_room: bool) -> None:
    assert has_share(used, own, 100, least=10) is has_room


def test_a_small_capacity_is_for_everybody() -> None:
    tier, owner = InlineTier("admin", capacity=64, max_wait_ms=200), object()
    while tier.has_room(owner):
        tier.enter(owner)
    assert tier.statistics.waiting == 64


class _Owner:
    """A connection, which can be referred to weakly."""


def test_the_shares_of_gone_connections_are_forgotten() -> None:
    tier = InlineTier("pull", capacity=10, max_wait_ms=200)
    gone = []
    for _ in range(5):
        owner = _Owner()
        tier.enter(owner)
        tier.leave(owner, 0.1)
        gone.append(weakref.ref(owner))
    del owner
    assert not [reference for reference in gone if reference() is not None]
