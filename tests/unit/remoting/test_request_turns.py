"""Turns of a peer's requests: their size, their order, and what counts as waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.command import RemotingCommand
from rmq_remoting.request_turns import TURN_REQUESTS, RequestTurns


def requests(count: int, first: int = 0) -> list[RemotingCommand]:
    return [RemotingCommand(10, 0, number) for number in range(first, first + count)]


def test_a_read_of_one_turn_runs_at_once() -> None:
    turns, read = RequestTurns(), requests(TURN_REQUESTS)
    assert turns.take(read, 1.0) == read
    assert turns.waiting == 0
    assert turns.next() is None


def test_a_longer_read_runs_turn_by_turn() -> None:
    turns, read = RequestTurns(), requests(2 * TURN_REQUESTS + 3)
    assert turns.take(read, 1.0) == read[:TURN_REQUESTS]
    assert turns.waiting == TURN_REQUESTS + 3
    assert turns.next() == (read[TURN_REQUESTS : 2 * TURN_REQUESTS], 1.0)
    assert turns.next() == (read[2 * TURN_REQUESTS :], 1.0)
    assert turns.waiting == 0
    assert turns.next() is None


def test_later_reads_wait_behind_earlier_requests() -> None:
    turns, read, later = RequestTurns(), requests(TURN_REQUESTS + 1), requests(1, first=100)
    turns.take(read, 1.0)
    assert turns.take(later, 2.0) == []
    assert turns.next() == (read[TURN_REQUESTS:], 1.0)
    assert turns.next() == (later, 2.0)


def test_the_time_behind_own_requests_is_no_wait() -> None:
    turns, read = RequestTurns(), requests(3 * TURN_REQUESTS)
    turns.take(read, 1.0)
    turns.ended(5.0)
    assert turns.next() == (read[TURN_REQUESTS : 2 * TURN_REQUESTS], 5.0), "since the end of the turn before"
    late = requests(1, first=100)
    turns.take(late, 8.0)
    turns.ended(7.0)
    assert turns.next() == (read[2 * TURN_REQUESTS :], 7.0)
    assert turns.next() == (late, 8.0), "since the read, which was later than the end of a turn"


def test_drop_leaves_nothing() -> None:
    turns = RequestTurns()
    turns.take(requests(100), 1.0)
    turns.drop()
    assert turns.waiting == 0
    assert turns.next() is None
    assert len(turns.take(requests(1), 2.0)) == 1


@given(st.lists(st.integers(1, 3 * TURN_REQUESTS) | st.none(), max_size=20))
def test_each_request_runs_once_and_in_order(steps: list[int | None]) -> None:
    turns, sent, ran = RequestTurns(), 0, list[int]()

    def run(batch: list[RemotingCommand]) -> None:
        assert len(batch) <= TURN_REQUESTS
        ran.extend(command.opaque for command in batch)

    for now, count in enumerate(steps):
        if count is None:
            turn = turns.next()
            run([] if turn is None else turn[0])
        else:
            run(turns.take(requests(count, first=sent), now))
            sent += count
        assert turns.waiting == sent - len(ran)
    while (turn := turns.next()) is not None:
        run(turn[0])
    assert ran == list(range(sent))


def test_the_oldest_request_of_some_codes_is_told() -> None:
    turns = RequestTurns()
    turns.take(requests(TURN_REQUESTS), 1.0)
    assert turns.oldest(frozenset({10, 11})) is None
    turns.take(requests(TURN_REQUESTS + 1), 2.0)
    turns.take([RemotingCommand(11, 0, 1)], 3.0)
    assert turns.oldest(frozenset({10})) == 2.0
    assert turns.oldest(frozenset({11})) == 3.0
    assert turns.oldest(frozenset({12})) is None
    turns.ended(2.5)
    assert turns.oldest(frozenset({10})) == 2.5, "time behind the connection's own requests does not count"
