"""Held pulls: who is woken by what, when their time ends, and what they leave behind (nothing)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmq_broker.delivery.held_pulls import HeldPulls
from rmq_broker.delivery.waiting_requests import TICK_SECONDS
from rmq_broker.store.api import ConsumeQueue
from rmq_remoting.codes import ResponseCode
from rmq_remoting.dispatch import Answer
from rmq_remoting.errors import CommandError
from tests.support.waiting import loop_passes
from tests.unit.broker.parts import Peer


class _Seconds:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _queue(topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
    return ConsumeQueue(Path("nowhere"), topic, queue_id, 6000)


@dataclass(eq=False)
class _Pull:
    """A pull that takes what its queue has from `offset` on; `looks` notes each look: was its time up?"""

    queue: ConsumeQueue
    offset: int = 0
    looks: list[bool] = field(default_factory=list)
    error: Exception | None = None

    def retry(self, time_is_up: bool) -> Answer:
        self.looks.append(time_is_up)
        if self.error is not None:
            raise self.error
        if self.queue.max_offset > self.offset:
            return b"found"
        return b"nothing" if time_is_up else None


class _Waiting:
    """Held pulls, a clock, and the peers that they are for."""

    def __init__(self) -> None:
        self.clock = _Seconds()
        self.held = HeldPulls(self.clock)

    def hold(
        self, pull: _Pull, wait_seconds: float = 15.0, peer: Peer | None = None
    ) -> asyncio.Future[Answer]:
        return self.held.hold((peer or Peer()).connection, pull.queue, wait_seconds, pull.retry)

    def message(self, queue: ConsumeQueue) -> None:
        queue.max_offset += 1
        self.held.arrived(queue)

    async def pass_seconds(self, seconds: float) -> None:
        """Time passes, with `expire` called as often as it is meant to be."""
        end = self.clock.now + seconds
        while self.clock.now < end - 1e-9:
            self.clock.now += TICK_SECONDS
            self.held.expire()
            await loop_passes()

    def assert_nothing_is_left(self) -> None:
        assert self.held.count == 0
        for table in ("_by_key", "_by_connection", "_by_tick", "_due", "_expired", "_woken"):
            assert not getattr(self.held, table), table


@pytest.fixture
async def waiting() -> _Waiting:
    return _Waiting()


async def test_a_message_wakes_who_waits_for_its_queue(waiting: _Waiting) -> None:
    mine, other = _Pull(_queue("T", 0)), _Pull(_queue("T", 1))
    answer, unanswered = waiting.hold(mine), waiting.hold(other)

    waiting.message(mine.queue)
    assert not answer.done()  # not from within the append
    await loop_passes()

    assert answer.result() == b"found"
    assert not unanswered.done()
    assert other.looks == []
    assert waiting.held.count == 1


async def test_messages_of_one_loop_iteration_cost_one_look(waiting: _Waiting) -> None:
    pull = _Pull(_queue(), offset=100)
    waiting.hold(pull)

    for _ in range(50):
        waiting.message(pull.queue)
    await loop_passes()

    assert pull.looks == [False]
    assert waiting.held.count == 1


async def test_nobody_waits_costs_nothing(waiting: _Waiting) -> None:
    queue = _queue()
    waiting.message(queue)
    await loop_passes()
    waiting.assert_nothing_is_left()


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 1.0, 15.0, 30.0])
async def test_the_time_of_a_pull_ends_when_it_should(waiting: _Waiting, wait_seconds: float) -> None:
    pull = _Pull(_queue())
    answer = waiting.hold(pull, wait_seconds)
    began = waiting.clock.now

    while not answer.done():
        await waiting.pass_seconds(TICK_SECONDS)

    assert wait_seconds <= waiting.clock.now - began <= wait_seconds + 2.001 * TICK_SECONDS
    assert answer.result() == b"nothing"
    assert pull.looks == [True]
    waiting.assert_nothing_is_left()


async def test_ends_are_met_also_when_the_clock_has_jumped(waiting: _Waiting) -> None:
    answers = [waiting.hold(_Pull(_queue()), seconds) for seconds in (1, 5, 20)]

    waiting.clock.now += 10
    waiting.held.expire()
    await loop_passes()

    assert [answer.done() for answer in answers] == [True, True, False]
    late = waiting.hold(_Pull(_queue()), -3)  # as of a clock that was set back
    await waiting.pass_seconds(2 * TICK_SECONDS)
    assert late.done()


async def test_waiting_costs_no_looks(waiting: _Waiting) -> None:
    queue = _queue()
    pulls = [_Pull(queue) for _ in range(5000)] + [_Pull(_queue("T", number)) for number in range(5000)]
    for pull in pulls:
        waiting.hold(pull, 15)

    for _ in range(3):
        await waiting.pass_seconds(4.5)
        waiting.held.check_all()
        await loop_passes()

    assert waiting.held.count == 10_000
    assert not any(pull.looks for pull in pulls)
    await waiting.pass_seconds(1.7)
    await loop_passes(200)
    assert all(pull.looks == [True] for pull in pulls)
    waiting.assert_nothing_is_left()


async def test_a_crowd_is_answered_by_and_by_in_its_order(waiting: _Waiting) -> None:
    queue = _queue()
    answers = [waiting.hold(_Pull(queue)) for _ in range(1000)]

    waiting.message(queue)
    await asyncio.sleep(0)

    done = [answer.done() for answer in answers]
    assert any(done) and not all(done)
    assert done == sorted(done, reverse=True)
    # What comes meanwhile does not have the same looked at twice.
    waiting.message(queue)
    await loop_passes(100)
    assert all(answer.done() for answer in answers)
    waiting.assert_nothing_is_left()


async def test_who_is_woken_does_not_wait_behind_a_crowd_whose_time_has_ended(waiting: _Waiting) -> None:
    crowd = [waiting.hold(_Pull(_queue("T", number)), 1) for number in range(5000)]
    queue = _queue("U")
    answer = waiting.hold(_Pull(queue))
    await waiting.pass_seconds(1.2)
    assert not all(end.done() for end in crowd)

    waiting.message(queue)
    await loop_passes()

    assert await answer == b"found"
    assert not all(end.done() for end in crowd)
    await loop_passes(100)
    assert all(end.done() for end in crowd)
    waiting.assert_nothing_is_left()


async def test_a_pull_that_wants_other_messages_waits_on(waiting: _Waiting) -> None:
    picky, easy = _Pull(_queue(), offset=5), _Pull(_queue())
    easy.queue = picky.queue
    waited, answered = waiting.hold(picky), waiting.hold(easy)

    waiting.message(picky.queue)
    await loop_passes()

    assert answered.done()
    assert not waited.done()
    for _ in range(5):
        waiting.message(picky.queue)
    await loop_passes()
    assert waited.result() == b"found"
    waiting.assert_nothing_is_left()


async def test_a_check_finds_what_came_unnoticed(waiting: _Waiting) -> None:
    pull = _Pull(_queue())
    answer = waiting.hold(pull)
    pull.queue.max_offset = 1  # nobody said so

    waiting.held.check_all()
    await loop_passes()

    assert answer.result() == b"found"


async def test_the_end_of_a_connection_takes_its_pulls_along(waiting: _Waiting) -> None:
    leaving, staying = Peer(), Peer()
    queue = _queue()
    gone = [waiting.hold(_Pull(queue), peer=leaving), waiting.hold(_Pull(_queue("U")), peer=leaving)]
    left = waiting.hold(_Pull(queue), peer=staying)

    waiting.held.connection_closed(leaving.connection)
    waiting.held.connection_closed(leaving.connection)

    assert [answer.result() for answer in gone] == [None, None]
    assert waiting.held.count == 1
    waiting.message(queue)
    await loop_passes()
    assert left.result() == b"found"
    waiting.assert_nothing_is_left()


async def test_a_connection_that_ends_while_its_pulls_are_due(waiting: _Waiting) -> None:
    peer, queue = Peer(), _queue()
    pulls = [_Pull(queue) for _ in range(500)]
    for pull in pulls:
        waiting.hold(pull, peer=peer)
    waiting.message(queue)
    await asyncio.sleep(0)

    waiting.held.connection_closed(peer.connection)
    await loop_passes(20)

    assert sum(len(pull.looks) for pull in pulls) < 500
    waiting.assert_nothing_is_left()


async def test_a_peer_that_does_not_read_is_left_alone_until_it_does(waiting: _Waiting) -> None:
    peer, pull = Peer(), _Pull(_queue())
    answer = waiting.hold(pull, peer=peer)
    peer.connection.pause_writing()

    waiting.message(pull.queue)
    await loop_passes()
    assert not answer.done()
    assert pull.looks == []

    peer.connection.resume_writing()
    waiting.held.check_all()
    await loop_passes()
    assert answer.result() == b"found"


async def test_a_peer_that_has_not_read_until_the_end_gets_no_answer(waiting: _Waiting) -> None:
    peer, pull = Peer(), _Pull(_queue())
    answer = waiting.hold(pull, 1.0, peer)
    peer.connection.pause_writing()
    waiting.message(pull.queue)

    await waiting.pass_seconds(1.5)

    assert answer.result() is None
    assert pull.looks == []
    waiting.assert_nothing_is_left()


async def test_an_error_of_one_pull_is_its_own(waiting: _Waiting) -> None:
    queue = _queue()
    refused = CommandError(ResponseCode.TOPIC_NOT_EXIST, "gone")
    broken, fine = _Pull(queue, error=refused), _Pull(queue)
    failed, answered = waiting.hold(broken), waiting.hold(fine)

    waiting.message(queue)
    await loop_passes()

    assert failed.exception() is refused
    assert answered.result() == b"found"
    waiting.assert_nothing_is_left()


async def test_an_error_at_the_end_of_the_time_is_answered_too(waiting: _Waiting) -> None:
    broken = _Pull(_queue(), error=RuntimeError("broken"))
    failed, answered = waiting.hold(broken, 1.0), waiting.hold(_Pull(_queue()), 1.0)

    await waiting.pass_seconds(1.5)

    assert isinstance(failed.exception(), RuntimeError)
    assert answered.result() == b"nothing"
    waiting.assert_nothing_is_left()


async def test_pulls_of_a_removed_topic_are_looked_at(waiting: _Waiting) -> None:
    gone = _Pull(_queue("Gone"), error=CommandError(ResponseCode.TOPIC_NOT_EXIST, "gone"))
    kept = _Pull(_queue("Kept"))
    refused, waits = waiting.hold(gone), waiting.hold(kept)

    waiting.held.topics_removed(("Gone", "Unknown"))
    waiting.held.topics_removed(())
    await loop_passes()

    assert refused.exception() is gone.error
    assert not waits.done()
    assert kept.looks == []


async def test_release_answers_all_and_holds_no_more(waiting: _Waiting) -> None:
    answers = [waiting.hold(_Pull(_queue("T", number % 3))) for number in range(200)]

    waiting.held.release_all()

    assert {answer.result() for answer in answers} == {b"nothing"}
    assert waiting.hold(_Pull(_queue())).result() == b"nothing"
    waiting.assert_nothing_is_left()


# --- looks that wait for the disk ---


class _SlowPull(_Pull):
    """A pull whose looks are promises; they are kept by hand."""

    def __init__(self, queue: ConsumeQueue) -> None:
        super().__init__(queue)
        self.promises: list[asyncio.Future[Answer]] = []

    def retry(self, time_is_up: bool) -> asyncio.Future[Answer]:  # type: ignore[override]
        self.looks.append(time_is_up)
        self.promises.append(asyncio.get_running_loop().create_future())
        return self.promises[-1]


async def test_a_look_that_waits_for_the_disk_is_the_only_one() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    for _ in range(3):
        waiting.message(pull.queue)
        await loop_passes()
    assert pull.looks == [False]
    pull.promises[0].set_result(b"found")
    assert await future == b"found"
    waiting.assert_nothing_is_left()


async def test_what_came_during_a_look_in_vain_is_looked_at() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.message(pull.queue)
    pull.promises[0].set_result(None)
    await loop_passes()
    assert pull.looks == [False, False]
    pull.promises[1].set_result(None)
    await loop_passes()
    assert pull.looks == [False, False]
    assert not future.done()
    waiting.message(pull.queue)
    await loop_passes()
    pull.promises[2].set_result(b"found")
    assert await future == b"found"
    waiting.assert_nothing_is_left()


async def test_a_pull_whose_time_ends_during_a_look_is_looked_at_for_the_last_time() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull, 5.0)
    waiting.message(pull.queue)
    await waiting.pass_seconds(10)
    assert pull.looks == [False]
    pull.promises[0].set_result(None)
    await loop_passes()
    assert pull.looks == [False, True]
    pull.promises[1].set_result(b"nothing")
    assert await future == b"nothing"
    waiting.assert_nothing_is_left()


async def test_a_look_for_a_client_that_has_gone_ends_in_nothing() -> None:
    waiting, pull, peer = _Waiting(), _SlowPull(_queue()), Peer()
    future = waiting.hold(pull, peer=peer)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.held.connection_closed(peer.connection)
    assert await future is None
    pull.promises[0].set_exception(OSError("Input/output error"))
    await loop_passes()
    waiting.assert_nothing_is_left()


async def test_a_look_that_fails_fails_the_pull() -> None:
    waiting, pull, other = _Waiting(), _SlowPull(_queue()), _SlowPull(_queue("U"))
    future, other_future = waiting.hold(pull), waiting.hold(other)
    waiting.message(pull.queue)
    waiting.message(other.queue)
    await loop_passes()
    pull.promises[0].set_exception(OSError("Input/output error"))
    other.promises[0].cancel()
    with pytest.raises(OSError, match="Input/output"):
        await future
    with pytest.raises(asyncio.CancelledError):
        await other_future
    waiting.assert_nothing_is_left()


async def test_at_the_end_looks_under_way_are_waited_for() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.held.release_all()
    assert not future.done()
    pull.promises[0].set_result(None)
    await loop_passes()
    pull.promises[1].set_result(b"nothing")
    assert await future == b"nothing"
    late = waiting.hold(pull)
    assert not late.done()
    pull.promises[2].set_result(b"nothing")
    assert await late == b"nothing"
    waiting.assert_nothing_is_left()


@pytest.mark.parametrize("news", ["reset", "topic removed"])
async def test_news_during_a_look_in_vain_are_looked_at(news: str) -> None:
    """They are no message: the queue is as it was when the look began."""
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    if news == "reset":
        waiting.held.arrived(pull.queue)
    else:
        waiting.held.topics_removed(("T",))
    await loop_passes()
    assert pull.looks == [False]
    pull.promises[0].set_result(None)
    await loop_passes()
    assert pull.looks == [False, False]
    pull.promises[1].set_result(None)
    await loop_passes()
    assert pull.looks == [False, False] and not future.done()
