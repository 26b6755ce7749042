"""Connections: bounds, ends, and requests in both directions; without a network, and over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher, InlineTier
from rmq_remoting.errors import (
    ConnectionClosed,
    FrameError,
    HeaderDecodeError,
    ProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from rmq_remoting.framing import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from rmq_remoting.server import RemotingServer
from tests.support.frames import binary_header, raw_frame
from tests.support.peers import Peer
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
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


# --- requests of ours ---


async def test_answers_find_who_waits_for_them() -> None:
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


async def test_both_sides_ask_at_the_same_time() -> None:
    peer = Peer(dispatcher_of_all())
    ours = request()
    future = peer.connection.send_request(ours, 3.0)
    # The peer's request may have the same number as ours.
    theirs = RemotingCommand(10, 0, ours.opaque, body=b"theirs")

    peer.send(theirs, ours.response(5), request(10))

    assert (await future).code == 5
    answer = next(each for each in peer.received if each.is_response and each.opaque == ours.opaque)
    assert answer.body == b"theirs"


@pytest.mark.virtual_time
async def test_request_times_out() -> None:
    peer, loop = Peer(), asyncio.get_running_loop()
    began = loop.time()
    late, in_time = request(), request()
    first = peer.connection.send_request(late, 3.0)
    second = peer.connection.send_request(in_time, 10.0)

    with pytest.raises(RequestTimeout, match=r"^no answer from 192\.0\.2\.1:40000 within 3 s$"):
        await first

    assert 3.0 <= loop.time() - began <= 3.2
    assert peer.connection.pending_requests == 1
    # The answer that comes after its time is dropped, and does no harm.
    peer.send(late.response(0), in_time.response(0))
    assert (await second).opaque == in_time.opaque
    await loop_passes()
    assert not [each for each in peer.received if each.is_response]
    assert peer.connection.pending_requests == 0


@pytest.mark.virtual_time
async def test_cancelled_requests_do_not_stay() -> None:
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
async def test_answer_to_a_cancelled_request_is_dropped() -> None:
    peer, asked = Peer(), request()
    peer.connection.send_request(asked, 3.0).cancel()

    peer.send(asked.response(0))

    assert peer.connection.pending_requests == 0
    assert not peer.connection.is_closed


@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "Connection reset by peer")])
async def test_lost_connection_fails_all_who_wait(error: Exception | None) -> None:
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


async def test_requests_under_way_are_bounded() -> None:
    peer = Peer(settings=ConnectionSettings(max_pending_requests=3))
    requests = [request() for _ in range(3)]
    futures = [peer.connection.send_request(each, 3.0) for each in requests]

    with pytest.raises(TooManyRequests, match=r"3 requests to 192\.0\.2\.1:40000 wait for an answer already"):
        peer.connection.send_request(request(), 3.0)

    await loop_passes()
    assert len(peer.received) == 3
    peer.send(requests[0].response(0))
    futures.append(peer.connection.send_request(request(), 3.0))
    for future in futures:
        future.cancel()


async def test_request_that_is_under_way_is_not_sent_again() -> None:
    peer, asked = Peer(), request()
    future = peer.connection.send_request(asked, 3.0)

    with pytest.raises(ValueError, match=f"request number {asked.opaque} is under way"):
        peer.connection.send_request(asked, 3.0)

    peer.send(asked.response(0))
    assert (await future).code == 0


async def test_request_that_fits_no_frame_leaves_nothing_behind() -> None:
    peer = Peer()
    with pytest.raises(ValueError, match="over the limit"):
        peer.connection.send_request(request(body=bytes(MAX_FRAME_BYTES)), 3.0)
    assert peer.connection.pending_requests == 0


async def test_reply_may_be_anything_that_behaves_like_a_future() -> None:
    class Reply:
        def __init__(self) -> None:
            self.results: list[Any] = []

        def done(self) -> bool:
            return bool(self.results)

        def set_result(self, result: RemotingCommand, /) -> None:
            self.results.append(result)

        def set_exception(self, exception: BaseException, /) -> None:
            self.results.append(exception)

    peer, asked, answered, lost = Peer(), request(), Reply(), Reply()
    peer.connection.send_frame(asked.opaque, encode_frame(asked), 3.0, answered)
    peer.connection.send_frame(asked.opaque + 1, encode_frame(asked), 3.0, lost)

    peer.send(asked.response(7))
    peer.transport.lose(None)
    await loop_passes()

    assert [answer.code for answer in answered.results] == [7]
    assert [type(error) for error in lost.results] == [ConnectionClosed]


async def test_oneway_request_is_marked() -> None:
    peer = Peer()
    peer.connection.send_oneway(request())
    await loop_passes()
    assert [each.is_oneway for each in peer.received] == [True]
    assert peer.connection.pending_requests == 0


async def test_oneway_request_to_a_peer_that_does_not_read_is_not_sent() -> None:
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

    with pytest.raises(TooManyRequests, match=r"192\.0\.2\.1:40000 does not read: 6\d\d\d bytes wait for it"):
        peer.connection.send_request(request(), 3.0)

    peer.transport.take()
    waiting.append(peer.connection.send_request(request(), 3.0))
    await loop_passes()
    assert len(peer.received) == 4
    for future in waiting:
        future.cancel()


@pytest.mark.parametrize("how", ["close", "abort", "lose"])
async def test_nothing_can_be_sent_after_the_end(how: str) -> None:
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
    # What was to be an answer is dropped silently.
    peer.connection.write(request().response(0))
    peer.connection.write_frame(b"frame")
    peer.connection.close()
    peer.connection.abort()
    await loop_passes()
    assert peer.transport.writes == []
    assert peer.statistics.closed == 1


# --- a peer that does not read ---

LOW = ConnectionSettings(write_high_bytes=256 * KIB, write_low_bytes=64 * KIB)


async def test_reading_stops_while_the_peer_does_not_read() -> None:
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


async def test_one_read_full_of_requests_does_not_fill_the_memory() -> None:
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
    # Every request was answered once, in its turn, and reading goes on.
    assert [each.opaque for each in peer.received] == [each.opaque for each in requests]
    assert peer.transport.reading


async def test_requests_that_come_while_others_are_held_wait_their_turn() -> None:
    peer = Peer(dispatcher_of_all(), LOW, taking=False)
    requests = [request(11) for _ in range(64)]
    last = request(10)
    peer.send(*requests)

    # A transport may have read more before it stopped.
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


async def test_side_that_asks_reads_on_while_its_peer_does_not() -> None:
    # Where both sides stopped reading, neither could go on.
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
async def test_a_turn_that_was_held_too_long_is_refused() -> None:
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

    # The turns after it have not waited long.
    codes = [peer.answers[each.opaque].code for each in requests]
    assert codes == [0] * served + [2] * 16 + [0] * (60 - 16 - served)


@pytest.mark.parametrize("how", ["close", "lose"])
async def test_held_requests_end_with_their_connection(how: str) -> None:
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
async def test_closing_waits_for_the_peer_to_read_but_not_for_ever() -> None:
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
async def test_closing_ends_as_soon_as_the_peer_has_read() -> None:
    peer = Peer(dispatcher_of_all(), taking=False)
    peer.send(request(11))
    peer.connection.close()
    peer.transport.take()
    await peer.connection.wait_closed()
    await asyncio.sleep(100)
    assert not peer.transport.aborted
    assert len(peer.answers) == 1


async def test_close_sends_what_is_buffered() -> None:
    peer = Peer()
    peer.connection.write(request().response(3))
    peer.connection.close()
    await peer.connection.wait_closed()
    assert [each.code for each in peer.received] == [3]


# --- bad input ---

BROKEN = {
    "over the limit": struct.pack(">iI", MAX_FRAME_BYTES - 3, 10),
    "negative length": struct.pack(">ii", -1, 0),
    "impossible length": struct.pack(">ii", 3, 0),
    "header longer than frame": struct.pack(">iI", 10, 1 << 24 | 100) + bytes(6),
    "unknown serialization": raw_frame(b"{}", serialization=9),
    "remark is no UTF-8": raw_frame(binary_header(remark=b"\xff"), serialization=1),
    "ext key is no UTF-8": raw_frame(binary_header(ext=b"\x00\x01\xff\x00\x00\x00\x01a"), serialization=1),
    "ext value is no UTF-8": raw_frame(binary_header(ext=b"\x00\x01a\x00\x00\x00\x01\xff"), serialization=1),
    "JSON is no UTF-8": raw_frame(b'{"remark":"\xff"}'),
    "no object": raw_frame(b"[1]"),
    "code is no integer": raw_frame(b'{"code":"10"}'),
    "TLS": bytes.fromhex("160301020001000001fc0303"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def reads_fields(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, ext_fields=dict(request.ext_fields), body=request.body)


def server_dispatcher() -> Dispatcher:
    dispatcher = Dispatcher()
    tier = InlineTier("inline", capacity=100, max_wait_ms=60_000)
    dispatcher.register([10], reads_fields, tier)
    dispatcher.register([11], big_answer, tier)
    return dispatcher


@asynccontextmanager
async def running_server(settings: ConnectionSettings | None = None) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(server_dispatcher(), settings=settings)
    await server.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.2)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.each_loop
async def test_broken_frame_ends_its_connection_and_no_other(
    broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server() as server, raw_client(server.port) as good, raw_client(server.port) as bad:
        before = [request(10, b"1"), RemotingCommand.request(10, body=b"2")]
        assert (await good.ask(request())).code == 0

        bad.send_bytes(b"".join(map(encode_frame, before)) + broken + encode_frame(request(10, b"after")))
        answers = await bad.until_closed()

        assert [answer.body for answer in answers] == [b"1", b"2"]
        assert server.statistics.protocol_errors == 1
        assert (await good.ask(request())).code == 0
        await until(lambda: server.statistics.closed == 1)
    assert [(record.name, record.levelno) for record in caplog.records if record.name.startswith("rmq")] == [
        ("rmq.remoting.connection", logging.WARNING)
    ]
    assert f"closing the connection of {LOOPBACK}:" in caplog.text


async def test_broken_frame_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(dispatcher_of_all())
    peer.send_bytes(BROKEN["no object"] + BROKEN["no object"])
    peer.send_bytes(BROKEN["no object"])
    peer.connection.fail(FrameError("again"))
    await loop_passes()

    assert peer.statistics.protocol_errors == 1
    assert [record.message for record in caplog.records] == [
        "closing the connection of 192.0.2.1:40000: the header is JSON, but a list and not an object"
    ]
    assert peer.statistics.closed == 1


@pytest.mark.each_loop
async def test_largest_frame_passes() -> None:
    body = bytes(MAX_FRAME_BYTES - len(encode_frame(request())))
    async with running_server() as server, raw_client(server.port) as client:
        answer = await client.ask(request(10, body))
        assert len(answer.body) == len(body)
        client.send_bytes(struct.pack(">iI", MAX_FRAME_BYTES - 3, 10))
        assert await client.until_closed() == []


@pytest.mark.each_loop
async def test_peer_that_goes_in_the_middle_of_a_frame_is_no_protocol_error() -> None:
    async with running_server() as server:
        async with raw_client(server.port) as client:
            client.send_bytes(encode_frame(request())[:-1])
            await until(lambda: server.statistics.bytes_read)
        await until(lambda: server.statistics.closed == 1)
        assert server.statistics.protocol_errors == 0
        assert server.connections == set()


# --- real sockets ---


@pytest.mark.each_loop
async def test_peer_that_sends_and_never_reads_costs_bounded_memory() -> None:
    settings = ConnectionSettings(write_high_bytes=256 * KIB, write_low_bytes=64 * KIB)
    async with running_server(settings) as server, raw_client(server.port) as good:
        frame = encode_frame(request(11))
        peer = unread_socket(server.port)
        with peer:
            sent = await fill(peer, frame * 1000)
            (connection,) = [each for each in server.connections if not each.is_writable]

            # It sends no more than what the kernel takes, and its answers wait in a bounded buffer.
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= settings.write_high_bytes + 33 * 65 * KIB
            assert server.statistics.reads_paused >= 1
            for _ in range(20):
                assert (await good.ask(request())).code == 0

            # When it reads after all, it gets its answers.
            assert sent // len(frame) > 500
            assert len(await drain(peer, 500)) >= 500


def unread_socket(port: int) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * KIB)
    peer.connect((LOOPBACK, port))
    peer.setblocking(False)
    return peer


async def fill(peer: socket.socket, data: bytes) -> int:
    """Send the same over and over until nothing is taken for a while; how many bytes were sent."""
    sent, refused = 0, 0
    while refused < 100:
        try:
            sent += peer.send(data[sent % len(data) :])
            refused = 0
        except BlockingIOError:
            refused += 1
            await asyncio.sleep(0.002)
        assert sent < 200 * KIB * KIB, "the server reads on from a peer that does not read"
    return sent


async def drain(peer: socket.socket, count: int) -> list[int]:
    loop, decoder, numbers = asyncio.get_running_loop(), FrameDecoder(), list[int]()
    async with asyncio.timeout(20):
        while len(numbers) < count:
            data = await loop.sock_recv(peer, 1024 * KIB)
            assert data, "closed"
            numbers += [command.opaque for command in decoder.feed(data)]
    return numbers


@pytest.mark.each_loop
async def test_answers_written_before_closing_arrive() -> None:
    def last_words(connection: Connection, asked: RemotingCommand) -> None:
        connection.write(asked.response(0, body=bytes(8 * KIB * KIB)))
        connection.close()
        connection.write(asked.response(1))

    dispatcher = Dispatcher()
    dispatcher.register([10], last_words, InlineTier("inline", capacity=1, max_wait_ms=1000))
    server = RemotingServer(dispatcher)
    async with raw_client(await server.start(LOOPBACK, 0)) as client:
        client.send(request())
        answers = await client.until_closed()
        assert [(answer.code, len(answer.body)) for answer in answers] == [(0, 8 * KIB * KIB)]
    await server.stop()


@pytest.mark.each_loop
async def test_writing_after_the_end_is_silent() -> None:
    async with running_server() as server:
        async with raw_client(server.port) as client:
            await client.ask(request())
            (connection,) = server.connections
        await connection.wait_closed()
        for _ in range(10):
            connection.write(request().response(0))
            await loop_passes()

        async with raw_client(server.port) as client:
            await client.ask(request())
            (connection,) = server.connections
            connection.close()
            for _ in range(10):
                connection.write(request().response(0))
                await loop_passes()
            assert await client.until_closed() == []


@pytest.mark.each_loop
async def test_connection_knows_both_addresses() -> None:
    async with running_server() as server, raw_client(server.port) as client:
        await client.ask(request())
        (connection,) = server.connections
        assert connection.remote_address == client.writer.get_extra_info("sockname")
        assert connection.local_address == (LOOPBACK, server.port)
        assert connection.peer == "{}:{}".format(*connection.remote_address)


@pytest.mark.each_loop
async def test_server_asks_its_client_on_the_same_connection() -> None:
    async with running_server() as server, raw_client(server.port) as client:
        await client.ask(request())
        (connection,) = server.connections
        question = request(40)
        future = connection.send_request(question, 3.0)
        assert (await client.receive()).opaque == question.opaque
        client.send(question.response(0, body=b"yes"), request(10, b"and I ask"))
        assert (await future).body == b"yes"
        assert (await client.receive()).body == b"and I ask"


@pytest.mark.each_loop
async def test_attributes_and_hooks() -> None:
    events: list[str] = []

    def opened(connection: Connection) -> None:
        connection.attributes["name"] = "x"
        events.append("opened")

    def closed(connection: Connection) -> None:
        assert connection.is_closed
        events.append(f"closed {connection.attributes['name']}")

    server = RemotingServer(server_dispatcher(), on_open=opened, on_close=closed)
    async with raw_client(await server.start(LOOPBACK, 0)) as client:
        await client.ask(request())
        assert events == ["opened"]
    await until(lambda: len(events) == 2)
    assert events == ["opened", "closed x"]
    await server.stop()


def test_protocol_errors_are_one_family() -> None:
    assert issubclass(FrameError, ProtocolError)
    assert issubclass(HeaderDecodeError, ProtocolError)
