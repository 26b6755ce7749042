"""Held pulls: what wakes them, when their time ends, and that they leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmq_broker.delivery.turns import ITEMS_PER_SLICE
from rmq_broker.delivery.waiting_requests import (
    MAX_BYTES,
    STILL_WAITING,
    TICK_SECONDS,
    LookResult,
    held_bytes,
)
from rmq_broker.pulling.held_pulls import HeldPulls
from rmq_broker.store.api import ConsumeQueue
from rmq_remoting.answers import Answer
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.peers import Peer
from tests.support.waiting import loop_passes


class _Seconds:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _queue(topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
    return ConsumeQueue(Path("nowhere"), topic, queue_id, 6000)


@dataclass(eq=False)
class _Pull:
    """A pull of the messages from `offset` on; `looks` holds for each look whether its time was up."""

    queue: ConsumeQueue
    offset: int = 0
    looks: list[bool] = field(default_factory=list)
    error: Exception | None = None

    def look_again(self, time_is_up: bool) -> LookResult:
        self.looks.append(time_is_up)
        if self.error is not None:
            raise self.error
        if self.queue.max_offset > self.offset:
            return b"found"
        return b"nothing" if time_is_up else STILL_WAITING


class _Waiting:
    """Held pulls and their clock."""

    def __init__(self) -> None:
        self.clock = _Seconds()
        self.held = HeldPulls(self.clock)

    def hold(
        self, pull: _Pull, wait_seconds: float = 15.0, peer: Peer | None = None, size_bytes: int = 0
    ) -> asyncio.Future[Answer]:
        connection = (peer or Peer()).connection
        return self.held.hold(connection, pull.queue, wait_seconds, pull.look_again, size_bytes)

    def message(self, queue: ConsumeQueue) -> None:
        queue.max_offset += 1
        self.held.arrived(queue)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, with a call of `expire` in each tick."""
        end = self.clock.now + seconds
        while self.clock.now < end - 1e-9:
            self.clock.now += TICK_SECONDS
            self.held.expire()
            await loop_passes()

    def assert_nothing_is_left(self) -> None:
        """No table and no queue of the held pulls has an entry."""
        assert self.held.count == 0 and self.held.size_bytes == 0
        tables = {name: value for name, value in vars(self.held).items() if isinstance(value, Collection)}
        assert tables and not any(tables.values()), tables


@pytest.fixture
async def waiting() -> _Waiting:
    return _Waiting()


async def test_a_message_wakes_the_pulls_of_its_queue(waiting: _Waiting) -> None:
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


async def test_a_message_for_which_nobody_waits_leaves_nothing(waiting: _Waiting) -> None:
    queue = _queue()
    waiting.message(queue)
    await loop_passes()
    waiting.assert_nothing_is_left()


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 1.0, 15.0, 30.0])
async def test_a_pull_is_answered_when_its_time_ends(waiting: _Waiting, wait_seconds: float) -> None:
    pull = _Pull(_queue())
    answer = waiting.hold(pull, wait_seconds)
    began = waiting.clock.now

    while not answer.done():
        await waiting.pass_seconds(TICK_SECONDS)

    assert wait_seconds <= waiting.clock.now - began <= wait_seconds + 2.001 * TICK_SECONDS
    assert answer.result() == b"nothing"
    assert pull.looks == [True]
    waiting.assert_nothing_is_left()


async def test_expired_pulls_are_answered_after_a_jump_of_the_clock(waiting: _Waiting) -> None:
    answers = [waiting.hold(_Pull(_queue()), seconds) for seconds in (1, 5, 20)]

    waiting.clock.now += 10
    waiting.held.expire()
    await loop_passes()

    assert [answer.done() for answer in answers] == [True, True, False]
    late = waiting.hold(_Pull(_queue()), -3)  # the clock was set back
    await waiting.pass_seconds(2 * TICK_SECONDS)
    assert late.done()


async def test_waiting_pulls_do_not_look(waiting: _Waiting) -> None:
    queue = _queue()
    pulls = [_Pull(queue) for _ in range(5000)] + [_Pull(_queue("T", number)) for number in range(5000)]
    for pull in pulls:
        waiting.hold(pull, 15)

    for _ in range(3):
        await waiting.pass_seconds(4.5)
        await waiting.held.check_all()
        await loop_passes()

    assert waiting.held.count == 10_000
    assert not any(pull.looks for pull in pulls)
    await waiting.pass_seconds(1.7)
    await loop_passes(200)
    assert all(pull.looks == [True] for pull in pulls)
    waiting.assert_nothing_is_left()


async def test_a_thousand_woken_pulls_are_answered_in_slices_in_their_order(waiting: _Waiting) -> None:
    queue = _queue()
    answers = [waiting.hold(_Pull(queue)) for _ in range(1000)]

    waiting.message(queue)
    await asyncio.sleep(0)

    done = [answer.done() for answer in answers]
    assert any(done) and not all(done)
    assert done == sorted(done, reverse=True)
    # A message that arrives meanwhile does not make them look twice.
    waiting.message(queue)
    await loop_passes(100)
    assert all(answer.done() for answer in answers)
    waiting.assert_nothing_is_left()


async def test_a_woken_pull_does_not_wait_behind_thousands_of_expired_ones(waiting: _Waiting) -> None:
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


async def test_a_pull_whose_filter_rejects_the_message_waits_on(waiting: _Waiting) -> None:
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


async def test_the_check_finds_messages_without_a_wake_up(waiting: _Waiting) -> None:
    pull = _Pull(_queue())
    answer = waiting.hold(pull)
    pull.queue.max_offset = 1  # without a call of `arrived`

    await waiting.held.check_all()
    await loop_passes()

    assert answer.result() == b"found"


async def test_a_closed_connection_ends_its_pulls(waiting: _Waiting) -> None:
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


async def test_a_connection_that_closes_while_its_pulls_are_due(waiting: _Waiting) -> None:
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


async def test_pulls_of_a_client_that_does_not_read_look_once_it_reads(waiting: _Waiting) -> None:
    peer, pull = Peer(), _Pull(_queue())
    answer = waiting.hold(pull, peer=peer)
    peer.connection.pause_writing()

    waiting.message(pull.queue)
    await loop_passes()
    assert not answer.done()
    assert pull.looks == []

    peer.connection.resume_writing()
    await waiting.held.check_all()
    await loop_passes()
    assert answer.result() == b"found"


async def test_a_client_that_does_not_read_until_the_time_ends_gets_no_answer(waiting: _Waiting) -> None:
    peer, pull = Peer(), _Pull(_queue())
    answer = waiting.hold(pull, 1.0, peer)
    peer.connection.pause_writing()
    waiting.message(pull.queue)

    await waiting.pass_seconds(1.5)

    assert answer.result() is None
    assert pull.looks == []
    waiting.assert_nothing_is_left()


async def test_an_error_of_one_pull_does_not_affect_others(waiting: _Waiting) -> None:
    queue = _queue()
    refused = CommandError(ResponseCode.TOPIC_NOT_EXIST, "gone")
    broken, fine = _Pull(queue, error=refused), _Pull(queue)
    failed, answered = waiting.hold(broken), waiting.hold(fine)

    waiting.message(queue)
    await loop_passes()

    assert failed.exception() is refused
    assert answered.result() == b"found"
    waiting.assert_nothing_is_left()


async def test_an_error_of_the_last_look_fails_the_pull(waiting: _Waiting) -> None:
    broken = _Pull(_queue(), error=RuntimeError("broken"))
    failed, answered = waiting.hold(broken, 1.0), waiting.hold(_Pull(_queue()), 1.0)

    await waiting.pass_seconds(1.5)

    assert isinstance(failed.exception(), RuntimeError)
    assert answered.result() == b"nothing"
    waiting.assert_nothing_is_left()


async def test_pulls_of_a_deleted_topic_look_again(waiting: _Waiting) -> None:
    gone = _Pull(_queue("Gone"), error=CommandError(ResponseCode.TOPIC_NOT_EXIST, "gone"))
    kept = _Pull(_queue("Kept"))
    refused, waits = waiting.hold(gone), waiting.hold(kept)

    waiting.held.topics_removed(("Gone", "Unknown"))
    waiting.held.topics_removed(())
    await loop_passes()

    assert refused.exception() is gone.error
    assert not waits.done()
    assert kept.looks == []


async def test_release_answers_all_pulls_and_holds_no_more(waiting: _Waiting) -> None:
    answers = [waiting.hold(_Pull(_queue("T", number % 3))) for number in range(200)]

    waiting.held.release_all()

    assert {answer.result() for answer in answers} == {b"nothing"}
    assert waiting.hold(_Pull(_queue())).result() == b"nothing"
    waiting.assert_nothing_is_left()


# --- looks that wait for a disk ---


class _SlowPull(_Pull):
    """A pull whose looks are futures that a test completes."""

    def __init__(self, queue: ConsumeQueue) -> None:
        super().__init__(queue)
        self.results: list[asyncio.Future[LookResult]] = []

    def look_again(  # type: ignore[override]
        self, time_is_up: bool
    ) -> asyncio.Future[LookResult]:
        self.looks.append(time_is_up)
        self.results.append(asyncio.get_running_loop().create_future())
        return self.results[-1]


async def test_a_pull_does_not_look_twice_at_a_time() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    for _ in range(3):
        waiting.message(pull.queue)
        await loop_passes()
    assert pull.looks == [False]
    pull.results[0].set_result(b"found")
    assert await future == b"found"
    waiting.assert_nothing_is_left()


async def test_a_message_that_arrives_during_a_look_wakes_the_pull_again() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.message(pull.queue)
    pull.results[0].set_result(STILL_WAITING)
    await loop_passes()
    assert pull.looks == [False, False]
    pull.results[1].set_result(STILL_WAITING)
    await loop_passes()
    assert pull.looks == [False, False]
    assert not future.done()
    waiting.message(pull.queue)
    await loop_passes()
    pull.results[2].set_result(b"found")
    assert await future == b"found"
    waiting.assert_nothing_is_left()


async def test_a_pull_whose_time_ends_during_a_look_looks_for_the_last_time() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull, 5.0)
    waiting.message(pull.queue)
    await waiting.pass_seconds(10)
    assert pull.looks == [False]
    pull.results[0].set_result(STILL_WAITING)
    await loop_passes()
    assert pull.looks == [False, True]
    pull.results[1].set_result(b"nothing")
    assert await future == b"nothing"
    waiting.assert_nothing_is_left()


async def test_a_look_for_a_client_that_disconnected_leaves_nothing() -> None:
    waiting, pull, peer = _Waiting(), _SlowPull(_queue()), Peer()
    future = waiting.hold(pull, peer=peer)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.held.connection_closed(peer.connection)
    assert await future is None
    pull.results[0].set_exception(OSError("Input/output error"))
    await loop_passes()
    waiting.assert_nothing_is_left()


async def test_a_failed_look_fails_the_pull() -> None:
    waiting, pull, other = _Waiting(), _SlowPull(_queue()), _SlowPull(_queue("U"))
    future, other_future = waiting.hold(pull), waiting.hold(other)
    waiting.message(pull.queue)
    waiting.message(other.queue)
    await loop_passes()
    pull.results[0].set_exception(OSError("Input/output error"))
    other.results[0].cancel()
    with pytest.raises(OSError, match="Input/output"):
        await future
    with pytest.raises(asyncio.CancelledError):
        await other_future
    waiting.assert_nothing_is_left()


async def test_release_waits_for_looks_under_way() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    waiting.held.release_all()
    assert not future.done()
    pull.results[0].set_result(STILL_WAITING)
    await loop_passes()
    pull.results[1].set_result(b"nothing")
    assert await future == b"nothing"
    late = waiting.hold(pull)
    assert not late.done()
    pull.results[2].set_result(b"nothing")
    assert await late == b"nothing"
    waiting.assert_nothing_is_left()


@pytest.mark.parametrize("reason", ["reset", "topic deleted"])
async def test_a_wake_up_without_a_message_during_a_look_counts(reason: str) -> None:
    """The end of the queue shows no difference: the wake-up itself has to be remembered."""
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull)
    waiting.message(pull.queue)
    await loop_passes()
    if reason == "reset":
        waiting.held.arrived(pull.queue)
    else:
        waiting.held.topics_removed(("T",))
    await loop_passes()
    assert pull.looks == [False]
    pull.results[0].set_result(STILL_WAITING)
    await loop_passes()
    assert pull.looks == [False, False]
    pull.results[1].set_result(STILL_WAITING)
    await loop_passes()
    assert pull.looks == [False, False] and not future.done()


async def test_a_last_look_without_an_answer_ends_the_pull() -> None:
    waiting, pull = _Waiting(), _SlowPull(_queue())
    future = waiting.hold(pull, 1.0)
    await waiting.pass_seconds(1.5)
    assert pull.looks == [True]
    pull.results[0].set_result(STILL_WAITING)
    assert await future is None
    waiting.assert_nothing_is_left()


async def test_one_connection_cannot_have_all_places() -> None:
    waiting, greedy, modest = _Waiting(), Peer(), Peer()
    request = RemotingCommand.request(11)

    def fill(peer: Peer) -> int:
        count = 0
        while waiting.held.has_share(peer.connection, request, 400):
            waiting.hold(_Pull(_queue()), peer=peer)
            count += 1
        return count

    assert fill(greedy) == 200, "half of all places"
    assert fill(modest) == 64
    assert waiting.held.refused == 2
    waiting.held.connection_closed(greedy.connection)
    assert fill(modest) == 136


async def test_the_bytes_of_held_pulls_are_bounded() -> None:
    waiting, greedy, modest = _Waiting(), Peer(), Peer()
    large = RemotingCommand.request(11, body=bytes(MAX_BYTES // 32))
    large.raw_ext = bytes(MAX_BYTES // 32)
    size_bytes = held_bytes(large)
    assert size_bytes == MAX_BYTES // 16
    held = []
    while waiting.held.has_share(greedy.connection, large, 1000):
        held.append(waiting.hold(_Pull(_queue()), peer=greedy, size_bytes=size_bytes))
    assert len(held) == 8, "half of all bytes"
    assert not waiting.held.has_share(modest.connection, large, 1000), "a share that is used at once"
    assert waiting.held.has_share(modest.connection, RemotingCommand.request(11), 1000)
    await waiting.pass_seconds(16)
    assert all(future.done() for future in held)
    assert waiting.held.has_share(greedy.connection, large, 1000)
    waiting.assert_nothing_is_left()


async def test_thousands_of_pulls_of_a_closed_connection_are_dropped_in_slices() -> None:
    waiting, peer, queue = _Waiting(), Peer(), _queue()
    pulls = [_Pull(queue) for _ in range(1000)]
    futures = [waiting.hold(pull, peer=peer) for pull in pulls]
    waiting.held.connection_closed(peer.connection)
    waiting.message(queue)
    dropped = [sum(future.done() for future in futures)]
    while waiting.held.count:
        await asyncio.sleep(0)
        dropped.append(sum(future.done() for future in futures))
    assert dropped == [256, 512, 768, 1000]
    await loop_passes(1000 // 64)
    assert not any(pull.looks for pull in pulls), "a pull that nobody waits for looks no more"
    waiting.assert_nothing_is_left()


async def test_other_requests_run_while_many_queues_are_checked() -> None:
    waiting = _Waiting()
    pulls = [_Pull(_queue("T", number)) for number in range(1000)]
    for pull in pulls:
        waiting.hold(pull)
    pulls[-1].queue.max_offset += 1  # without a wake-up
    check = asyncio.create_task(waiting.held.check_all())
    passes = 0
    while not check.done():
        await asyncio.sleep(0)
        passes += 1
    assert passes >= 1000 // ITEMS_PER_SLICE
    await loop_passes()
    assert [len(pull.looks) for pull in pulls] == [0] * 999 + [1]
