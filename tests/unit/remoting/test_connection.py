"""Connections without a network: requests of both directions, back-pressure, and their end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rmq_remoting.answers import Answer
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import ConnectionClosed, FrameError, RequestTimeout, TooManyRequests
from rmq_remoting.framing import MAX_FRAME_BYTES, encode_frame
from rmq_remoting.tiers import InlineTier
from tests.support.frames import decode_all, raw_frame
from tests.support.peers import Peer
from tests.support.replies import RecordingReply
from tests.support.waiting import loop_passes, until

KIB = 1024


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, body=request.body)


def big_answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, body=bytes(64 * KIB))


def dispatcher_of_all() -> Dispatcher:
    """10 echoes, 11 answers with 64 KiB."""
    dispatcher = Dispatcher()
    tier = InlineTier("inline", capacity=100, max_wait_ms=60_000)
    dispatcher.register([10], echo, tier)
    dispatcher.register([11], big_answer, tier)
    return dispatcher


def request(code: int = 10, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, body=body, serialization=Serialization.BINARY)


# --- requests of this side ---


async def test_responses_complete_their_requests() -> None:
    peer = Peer()
    requests = [request() for _ in range(3)]
    futures = [peer.connection.send_request(each, 3.0) for each in requests]
    await loop_passes()
    assert [each.opaque for each in peer.received] == [each.opaque for each in requests]
    assert len(peer.transport.writes) == 1

    peer.send(requests[2].response(2), requests[0].response(0))

    assert [future.done() for future in futures] == [True, False, True]
    assert ((await futures[0]).code, (await futures[2]).code) == (0, 2)
    assert peer.connection.pending_requests == 1
    peer.send(requests[1].response(1))
    assert (await futures[1]).code == 1


async def test_many_requests_leave_in_parts_for_the_peer_to_begin() -> None:
    peer = Peer()
    for _ in range(80):
        peer.connection.send_request(request(), 3.0)
    assert [len(decode_all(each)) for each in peer.transport.writes] == [32, 32]
    await loop_passes()
    assert [len(decode_all(each)) for each in peer.transport.writes] == [32, 32, 16]


async def test_both_sides_send_requests_at_the_same_time() -> None:
    peer = Peer(dispatcher_of_all())
    own = request()
    future = peer.connection.send_request(own, 3.0)
    # The peer's request may have the same number as that of this side.
    of_the_peer = RemotingCommand(10, 0, own.opaque, body=b"of the peer")

    peer.send(of_the_peer, own.response(5), request(10))

    assert (await future).code == 5
    answer = next(each for each in peer.received if each.is_response and each.opaque == own.opaque)
    assert answer.body == b"of the peer"


@pytest.mark.virtual_time
async def test_a_request_times_out() -> None:
    peer, loop = Peer(), asyncio.get_running_loop()
    began = loop.time()
    late, in_time = request(), request()
    first = peer.connection.send_request(late, 3.0)
    second = peer.connection.send_request(in_time, 10.0)

    with pytest.raises(RequestTimeout, match=r"^no response from 192\.0\.2\.1:40000 within 3 s$"):
        await first

    assert 3.0 <= loop.time() - began <= 3.2
    assert peer.connection.pending_requests == 1
    # A response that arrives after the time-out is dropped.
    peer.send(late.response(0), in_time.response(0))
    assert (await second).opaque == in_time.opaque
    await loop_passes()
    assert not [each for each in peer.received if each.is_response]
    assert peer.connection.pending_requests == 0


@pytest.mark.virtual_time
async def test_cancelled_requests_are_dropped_within_a_sweep() -> None:
    peer = Peer()
    futures = [peer.connection.send_request(request(), 1000.0) for _ in range(50)]
    for future in futures[1:]:
        future.cancel()

    await asyncio.sleep(0.25)

    assert peer.connection.pending_requests == 1
    futures[0].cancel()
    await asyncio.sleep(0.25)
    assert peer.connection.pending_requests == 0
    assert peer.connection._sweeper is None


@pytest.mark.virtual_time
async def test_a_response_to_a_cancelled_request_is_dropped() -> None:
    peer, asked = Peer(), request()
    peer.connection.send_request(asked, 3.0).cancel()

    peer.send(asked.response(0))

    assert peer.connection.pending_requests == 0
    assert not peer.connection.is_closed


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "Connection reset by peer")])
async def test_a_lost_connection_fails_its_pending_requests(error: Exception | None) -> None:
    peer = Peer()
    futures = [peer.connection.send_request(request(), 3.0) for _ in range(3)]
    done = request()
    answered = peer.connection.send_request(done, 3.0)
    peer.send(done.response(0))

    peer.transport.lose(error)

    for future in futures:
        with pytest.raises(ConnectionClosed, match=r"the connection to 192\.0\.2\.1:40000 ended") as caught:
            await future
        assert ("reset by peer" in str(caught.value)) == (error is not None)
    assert (await answered).code == 0
    assert peer.connection.pending_requests == 0
    assert peer.connection.is_closed
    await peer.connection.wait_closed()


async def test_pending_requests_are_bounded() -> None:
    peer = Peer(settings=ConnectionSettings(max_pending_requests=3))
    requests = [request() for _ in range(3)]
    futures = [peer.connection.send_request(each, 3.0) for each in requests]

    with pytest.raises(
        TooManyRequests, match=r"3 requests to 192\.0\.2\.1:40000 wait for a response already"
    ):
        peer.connection.send_request(request(), 3.0)

    await loop_passes()
    assert len(peer.received) == 3
    peer.send(requests[0].response(0))
    futures.append(peer.connection.send_request(request(), 3.0))
    for future in futures:
        future.cancel()


async def test_a_pending_request_is_not_sent_again() -> None:
    peer, asked = Peer(), request()
    future = peer.connection.send_request(asked, 3.0)

    with pytest.raises(ValueError, match=f"request number {asked.opaque} to .* is pending already"):
        peer.connection.send_request(asked, 3.0)

    peer.send(asked.response(0))
    assert (await future).code == 0


async def test_a_request_too_large_for_a_frame_does_not_stay_pending() -> None:
    peer = Peer()
    with pytest.raises(ValueError, match="over the limit"):
        peer.connection.send_request(request(body=bytes(MAX_FRAME_BYTES)), 3.0)
    assert peer.connection.pending_requests == 0


async def test_a_reply_need_not_be_a_future() -> None:
    peer, asked, answered, lost = Peer(), request(), RecordingReply(), RecordingReply()
    peer.connection.send_frame(asked.opaque, encode_frame(asked), 3.0, answered)
    peer.connection.send_frame(asked.opaque + 1, encode_frame(asked), 3.0, lost)

    peer.send(asked.response(7))
    peer.transport.lose(None)
    await loop_passes()

    assert answered.codes == [7]
    assert [type(error) for error in lost.errors] == [ConnectionClosed]


async def test_a_oneway_request_is_marked() -> None:
    peer = Peer()
    peer.connection.send_oneway(request())
    await loop_passes()
    assert [each.is_oneway for each in peer.received] == [True]
    assert peer.connection.pending_requests == 0


async def test_a_oneway_request_to_a_peer_that_does_not_read_is_refused() -> None:
    peer = Peer(settings=ConnectionSettings(write_high_bytes=1000, write_low_bytes=100), taking=False)
    peer.connection.send_oneway(request(body=bytes(2000)))
    await loop_passes()

    with pytest.raises(TooManyRequests, match=r"192\.0\.2\.1:40000 does not read"):
        peer.connection.send_oneway(request())

    peer.transport.take()
    peer.connection.send_oneway(request())
    await loop_passes()
    assert len(peer.received) == 2


async def test_requests_to_a_peer_that_does_not_read_are_bounded() -> None:
    settings = ConnectionSettings(write_high_bytes=1000, write_low_bytes=100, max_unsent_bytes=5000)
    peer = Peer(settings=settings, taking=False)
    waiting = []
    for _ in range(3):
        waiting.append(peer.connection.send_request(request(body=bytes(2000)), 3.0))
        await loop_passes()

    with pytest.raises(
        TooManyRequests,
        match=r"192\.0\.2\.1:40000 does not read: 6\d\d\d bytes wait to be sent, the limit is 5000",
    ):
        peer.connection.send_request(request(), 3.0)

    peer.transport.take()
    waiting.append(peer.connection.send_request(request(), 3.0))
    await loop_passes()
    assert len(peer.received) == 4
    for future in waiting:
        future.cancel()


@pytest.mark.parametrize("how", ["close", "abort", "lose"])
async def test_nothing_is_sent_after_the_end(how: str) -> None:
    peer = Peer()
    if how == "lose":
        peer.transport.lose(None)
    else:
        getattr(peer.connection, how)()
    await loop_passes()

    with pytest.raises(ConnectionClosed, match="has ended"):
        peer.connection.send_request(request(), 3.0)
    with pytest.raises(ConnectionClosed, match="has ended"):
        peer.connection.send_oneway(request())
    # Responses are dropped silently.
    peer.connection.write(request().response(0))
    peer.connection.write_frame(b"frame")
    peer.connection.close()
    peer.connection.abort()
    await loop_passes()
    assert peer.transport.writes == []
    assert peer.statistics.closed == 1


# --- a peer that does not read ---

LOW = ConnectionSettings(write_high_bytes=256 * KIB, write_low_bytes=64 * KIB)


async def test_reading_pauses_while_the_peer_does_not_read() -> None:
    peer = Peer(dispatcher_of_all(), LOW, taking=False)
    requests = [request(11) for _ in range(4)]

    for each in requests:
        assert peer.transport.reading
        peer.send(each)

    assert not peer.transport.reading
    assert not peer.connection.is_writable
    assert peer.statistics.reads_paused == 1
    drained = asyncio.ensure_future(peer.connection.drain())
    await loop_passes()
    assert not drained.done()
    peer.transport.take()
    await drained
    assert peer.transport.reading
    assert peer.connection.is_writable
    assert len(peer.answers) == 4


async def test_responses_to_one_large_read_are_bounded() -> None:
    peer = Peer(dispatcher_of_all(), LOW, taking=False)
    requests = [request(11) for _ in range(600)]  # 38 MiB of answers
    room = LOW.write_high_bytes + 32 * 65 * KIB

    peer.send(*requests)

    turns = 0
    while not peer.transport.reading:
        turns += 1
        peer.transport.take(once=True)
        await loop_passes()
    assert turns > 10
    assert peer.transport.most_buffered_bytes <= room
    # Each request was answered once and in order, and reading has resumed.
    assert [each.opaque for each in peer.received] == [each.opaque for each in requests]
    assert peer.transport.reading


async def test_later_requests_wait_behind_waiting_ones() -> None:
    peer = Peer(dispatcher_of_all(), LOW, taking=False)
    requests = [request(11) for _ in range(64)]
    last = request(10)
    peer.send(*requests)

    # The transport may have read more before it stopped.
    asked = request()
    future = peer.connection.send_request(asked, 3.0)
    peer.send(last, asked.response(0))
    assert future.done()
    assert last.opaque not in peer.answers

    peer.transport.take()
    await until(lambda: len(peer.answers) == 65)
    assert [each.opaque for each in peer.received if each.is_response] == [
        each.opaque for each in [*requests, last]
    ]


async def test_a_client_reads_on_while_its_server_does_not() -> None:
    # If both sides stopped reading, neither could go on.
    peer = Peer(dispatcher_of_all(), replace(LOW, stops_reading=False), taking=False)
    asked = request(body=bytes(300 * KIB))
    future = peer.connection.send_request(asked, 3.0)
    await loop_passes()
    assert not peer.connection.is_writable

    questions = [request(10) for _ in range(100)]
    peer.send(*questions, asked.response(0))

    assert peer.transport.reading
    assert (await future).code == 0
    assert set(peer.answers) == {each.opaque for each in questions}
    peer.transport.take()
    assert peer.connection.is_writable
    assert peer.statistics.reads_paused == 0


@pytest.mark.virtual_time
async def test_a_turn_that_waited_too_long_is_refused() -> None:
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(loop.time)
    dispatcher.register([11], big_answer, InlineTier("inline", capacity=100, max_wait_ms=200))
    peer = Peer(dispatcher, LOW, taking=False)
    requests = [request(11) for _ in range(60)]
    peer.send(*requests)
    served = len(peer.answers)

    await asyncio.sleep(0.3)
    peer.transport.take()
    await until(lambda: len(peer.answers) == len(requests))

    # Later turns did not wait long: time behind requests of the same connection does not count.
    codes = [peer.answers[each.opaque].code for each in requests]
    assert codes == [0] * served + [2] * 16 + [0] * (60 - 16 - served)


@pytest.mark.parametrize("how", ["close", "lose"])
async def test_waiting_requests_are_dropped_with_their_connection(how: str) -> None:
    ran = []

    def note(connection: Connection, asked: RemotingCommand) -> RemotingCommand:
        ran.append(asked)
        return big_answer(connection, asked)

    dispatcher = Dispatcher()
    dispatcher.register([11], note, InlineTier("inline", capacity=100, max_wait_ms=60_000))
    peer = Peer(dispatcher, LOW, taking=False)
    peer.send(*[request(11) for _ in range(100)])
    run = len(ran)
    assert run < 100

    if how == "close":
        peer.connection.close()
        peer.transport.take()
    else:
        peer.transport.lose(None)

    await until(lambda: peer.statistics.closed)
    await loop_passes()
    assert len(ran) == run


@pytest.mark.virtual_time
async def test_closing_waits_a_bounded_time_for_the_peer_to_read() -> None:
    peer = Peer(dispatcher_of_all(), ConnectionSettings(linger_seconds=5.0), taking=False)
    peer.send(request(11))
    pending = peer.connection.send_request(request(), 1000.0)
    await loop_passes()

    peer.connection.close()
    await asyncio.sleep(4.9)
    assert peer.statistics.closed == 0
    assert not peer.transport.aborted
    await asyncio.sleep(0.2)

    assert peer.transport.aborted
    assert peer.statistics.closed == 1
    with pytest.raises(ConnectionClosed):
        await pending


@pytest.mark.virtual_time
async def test_closing_ends_once_the_peer_has_read() -> None:
    peer = Peer(dispatcher_of_all(), taking=False)
    peer.send(request(11))
    peer.connection.close()
    peer.transport.take()
    await peer.connection.wait_closed()
    await asyncio.sleep(100)
    assert not peer.transport.aborted
    assert len(peer.answers) == 1


async def test_close_sends_buffered_frames() -> None:
    peer = Peer()
    peer.connection.write(request().response(3))
    peer.connection.close()
    await peer.connection.wait_closed()
    assert [each.code for each in peer.received] == [3]


# --- a peer that breaks the protocol ---


async def test_a_protocol_error_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(dispatcher_of_all())
    peer.send_bytes(raw_frame(b"[1]") + raw_frame(b"[1]"))
    peer.send_bytes(raw_frame(b"[1]"))
    peer.connection.fail(FrameError("again"))
    await loop_passes()

    assert peer.statistics.protocol_errors == 1
    assert [record.message for record in caplog.records] == [
        "connection closed, protocol error of the peer peer=192.0.2.1:40000 errors=1 cause=the header is "
        "JSON, but a list and not an object"
    ]
    assert peer.statistics.closed == 1


async def test_protocol_errors_of_many_connections_are_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peers = [Peer(dispatcher_of_all()) for _ in range(5)]
    for peer in peers:
        peer.connection.statistics = peers[0].statistics
        peer.send_bytes(raw_frame(b"[1]"))

    assert peers[0].statistics.protocol_errors == 5
    assert len(caplog.records) == 1


def deferring(futures: list[asyncio.Future[Answer]]) -> Dispatcher:
    """10 is answered once the next future of `futures` ends."""

    def later(connection: Connection, request: RemotingCommand) -> asyncio.Future[Answer]:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    dispatcher = Dispatcher()
    dispatcher.register([10], later, InlineTier("inline", capacity=100, max_wait_ms=60_000))
    return dispatcher


@pytest.mark.virtual_time
async def test_deferred_answers_leave_before_a_protocol_error_closes() -> None:
    futures: list[asyncio.Future[Answer]] = []
    peer = Peer(deferring(futures))
    first, second = request(), request()
    peer.send_bytes(encode_frame(first) + encode_frame(second) + raw_frame(b"[1]"))
    peer.send(request())  # after the error: not run
    await loop_passes()
    assert (peer.statistics.protocol_errors, peer.statistics.closed, len(futures)) == (1, 0, 2)

    futures[0].set_result(first.response(0))
    await asyncio.sleep(1)
    assert peer.statistics.closed == 0
    futures[1].set_exception(ValueError("planted"))
    await peer.connection.wait_closed()

    assert [each.code for each in peer.received] == [0, 1]
    await asyncio.sleep(100)
    assert not peer.transport.aborted


@pytest.mark.virtual_time
async def test_a_protocol_error_waits_a_bounded_time_for_deferred_answers() -> None:
    futures: list[asyncio.Future[Answer]] = []
    peer = Peer(deferring(futures), ConnectionSettings(linger_seconds=5.0))
    late = request()
    peer.send_bytes(encode_frame(late) + raw_frame(b"[1]"))

    await asyncio.sleep(4.9)
    assert peer.statistics.closed == 0
    await asyncio.sleep(0.2)

    assert peer.statistics.closed == 1
    futures[0].set_result(late.response(0))
    await loop_passes()
    assert peer.received == []
