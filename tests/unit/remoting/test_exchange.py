"""The exchange: bytes, back-pressure and the time in; requests to run and replies out. No loop, no socket."""

from __future__ import annotations

import pytest

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import FrameError, RequestTimeout
from rmq_remoting.exchange import Exchange
from rmq_remoting.framing import MAX_FRAME_BYTES, encode_frame
from rmq_remoting.request_turns import MAX_WAITING_REQUESTS, TURN_REQUESTS
from tests.support.frames import raw_frame
from tests.support.replies import RecordingReply

BROKEN = raw_frame(b"{}", serialization=9)


def exchange_of(*, takes_turns: bool = True) -> Exchange:
    return Exchange(
        max_frame_bytes=MAX_FRAME_BYTES,
        max_header_bytes=MAX_FRAME_BYTES,
        max_pending_requests=100,
        takes_turns=takes_turns,
    )


def request(opaque: int, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(10, 0, opaque, body=body, serialization=Serialization.BINARY)


def stream(*commands: RemotingCommand) -> bytes:
    return b"".join(map(encode_frame, commands))


def numbers(commands: list[RemotingCommand]) -> list[int]:
    return [command.opaque for command in commands]


def next_numbers(exchange: Exchange) -> list[int] | None:
    turn = exchange.next_turn()
    return None if turn is None else numbers(turn[0])


@pytest.mark.parametrize("chunk_bytes", [1, 7, 1_000_000])
def test_both_directions_in_one_stream(chunk_bytes: int) -> None:
    exchange = exchange_of()
    reply = RecordingReply()
    exchange.pending.add(1, reply, 3.0, 0.0)
    data = stream(request(1, b"of the peer"), request(1).response(5), request(2))

    ran: list[RemotingCommand] = []
    for start in range(0, len(data), chunk_bytes):
        ran += exchange.receive(data[start : start + chunk_bytes], float(start))

    assert [(command.opaque, command.body) for command in ran] == [(1, b"of the peer"), (2, b"")]
    assert reply.codes == [5]
    assert exchange.failure is None


def test_a_late_response_reaches_no_request_of_the_same_number() -> None:
    exchange, late, fresh = exchange_of(), RecordingReply(), RecordingReply()
    exchange.pending.add(1, late, 3.0, 0.0)
    exchange.pending.expire(3.0)
    exchange.pending.add(2, fresh, 3.0, 3.0)
    exchange.receive(stream(request(1).response(7), request(2).response(8)), 4.0)
    assert [type(error) for error in late.errors] == [RequestTimeout]
    assert (late.codes, fresh.codes) == ([], [8])


def test_more_requests_than_a_turn_wait_for_the_next() -> None:
    exchange = exchange_of()
    read = [request(number) for number in range(TURN_REQUESTS + 2)]
    assert numbers(exchange.receive(stream(*read), 1.0)) == list(range(TURN_REQUESTS))
    assert exchange.has_turn
    assert exchange.wants_data
    assert exchange.next_turn() is not None
    assert not exchange.has_turn


def test_responses_are_no_part_of_a_turn() -> None:
    exchange = exchange_of()
    replies = [RecordingReply() for _ in range(3 * TURN_REQUESTS)]
    for number, reply in enumerate(replies):
        exchange.pending.add(number, reply, 3.0, 0.0)
    responses = [request(number).response(0) for number in range(3 * TURN_REQUESTS)]
    assert numbers(exchange.receive(stream(*responses, request(99)), 1.0)) == [99]
    assert all(reply.codes == [0] for reply in replies)


def test_a_peer_that_does_not_read_has_no_turn_and_is_not_read_from() -> None:
    exchange = exchange_of()
    exchange.receive(stream(*[request(number) for number in range(TURN_REQUESTS + 1)]), 1.0)
    exchange.peer_reads = False
    assert not exchange.wants_data
    assert not exchange.has_turn
    assert next_numbers(exchange) is None
    # The transport may have read more before it stopped.
    assert exchange.receive(stream(request(100)), 2.0) == []
    exchange.peer_reads = True
    assert exchange.wants_data
    assert next_numbers(exchange) == [TURN_REQUESTS]
    assert next_numbers(exchange) == [100]
    assert next_numbers(exchange) is None


def test_a_peer_with_many_requests_in_a_pool_has_no_turn() -> None:
    exchange = exchange_of()
    exchange.is_busy = True
    assert exchange.receive(stream(request(1), request(2)), 1.0) == []
    assert not exchange.has_turn
    assert next_numbers(exchange) is None
    assert exchange.wants_data
    exchange.is_busy = False
    assert next_numbers(exchange) == [1, 2]
    assert numbers(exchange.receive(stream(request(3)), 2.0)) == [3]


def test_reading_stops_while_too_many_requests_wait() -> None:
    exchange = exchange_of()
    exchange.receive(stream(*[request(0)] * (TURN_REQUESTS + MAX_WAITING_REQUESTS)), 1.0)
    assert exchange.wants_data
    exchange.receive(stream(request(1)), 2.0)
    assert not exchange.wants_data
    exchange.next_turn()
    assert exchange.wants_data


def test_a_client_runs_all_requests_at_once_and_always_reads() -> None:
    exchange = exchange_of(takes_turns=False)
    read = [request(number) for number in range(10 * TURN_REQUESTS)]
    exchange.peer_reads = False
    assert numbers(exchange.receive(stream(*read), 1.0)) == numbers(read)
    assert exchange.wants_data
    assert not exchange.has_turn


def test_requests_before_a_protocol_error_run_and_later_bytes_are_ignored() -> None:
    exchange = exchange_of()
    assert numbers(exchange.receive(stream(request(1)) + BROKEN + stream(request(2)), 1.0)) == [1]
    assert isinstance(exchange.failure, FrameError)
    assert exchange.receive(stream(request(3)), 2.0) == []


def test_waiting_requests_survive_a_protocol_error_behind_them() -> None:
    exchange = exchange_of()
    read = [request(number) for number in range(TURN_REQUESTS + 2)]
    exchange.receive(stream(*read), 1.0)
    assert exchange.receive(BROKEN, 2.0) == []
    assert exchange.failure is not None
    assert next_numbers(exchange) == [TURN_REQUESTS, TURN_REQUESTS + 1]
