"""Connections over real sockets: broken input, back-pressure, both directions, the end."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.frames import binary_header, raw_frame
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
from tests.support.rows import each_row
from tests.support.waiting import loop_passes, until

KIB = 1024


def big_answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return request.response(0, body=bytes(64 * KIB))


def request(code: int = 10, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, body=body, serialization=Serialization.BINARY)


# --- broken input ---

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


@each_row("damage", BROKEN)
@pytest.mark.each_loop
async def test_a_broken_frame_ends_only_its_own_connection(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server() as server, raw_client(server.port) as good, raw_client(server.port) as bad:
        before = [request(10, b"1"), RemotingCommand.request(10, body=b"2")]
        assert (await good.ask(request())).code == 0

        bad.send_bytes(
            b"".join(map(encode_frame, before)) + BROKEN[damage] + encode_frame(request(10, b"after"))
        )
        answers = await bad.until_closed()

        assert [answer.body for answer in answers] == [b"1", b"2"]
        assert server.statistics.protocol_errors == 1
        assert (await good.ask(request())).code == 0
        await until(lambda: server.statistics.closed == 1)
    assert [(record.name, record.levelno) for record in caplog.records if record.name.startswith("rmq")] == [
        ("rmq_remoting.connection", logging.WARNING)
    ]
    assert f"connection closed, protocol error of the peer peer={LOOPBACK}:" in caplog.text


@pytest.mark.each_loop
async def test_the_largest_frame_is_accepted() -> None:
    body = bytes(MAX_FRAME_BYTES - len(encode_frame(request())))
    async with running_server() as server, raw_client(server.port) as client:
        answer = await client.ask(request(10, body))
        assert len(answer.body) == len(body)
        client.send_bytes(struct.pack(">iI", MAX_FRAME_BYTES - 3, 10))
        assert await client.until_closed() == []


@pytest.mark.each_loop
async def test_a_peer_that_leaves_in_the_middle_of_a_frame_is_no_protocol_error() -> None:
    async with running_server() as server:
        async with raw_client(server.port) as client:
            client.send_bytes(encode_frame(request())[:-1])
            await until(lambda: server.statistics.bytes_read)
        await until(lambda: server.statistics.closed == 1)
        assert server.statistics.protocol_errors == 0
        assert server.connections == set()


# --- both directions, back-pressure, the end ---


@pytest.mark.each_loop
async def test_a_peer_that_sends_and_never_reads_costs_bounded_memory() -> None:
    settings = ConnectionSettings(write_high_bytes=256 * KIB, write_low_bytes=64 * KIB)
    async with running_server(settings) as server, raw_client(server.port) as good:
        frame = encode_frame(request(11))
        peer = unread_socket(server.port)
        with peer:
            sent = await fill(peer, frame * 1000)
            (connection,) = [each for each in server.connections if not each.is_writable]

            # The server stops reading, and the responses wait in a bounded buffer.
            assert connection.unsent_bytes <= settings.write_high_bytes + 33 * 65 * KIB
            assert server.statistics.reads_paused >= 1
            for _ in range(20):
                assert (await good.ask(request())).code == 0

            # The responses arrive once the peer reads.
            assert sent // len(frame) > 500
            assert len(await drain(peer, 500)) >= 500


def unread_socket(port: int) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * KIB)
    peer.connect((LOOPBACK, port))
    peer.setblocking(False)
    return peer


async def fill(peer: socket.socket, data: bytes) -> int:
    """Send `data` again and again until the kernel takes nothing for a while; return the bytes sent."""
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
async def test_responses_written_before_closing_arrive() -> None:
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
async def test_a_write_after_the_end_is_dropped_silently() -> None:
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
async def test_a_connection_knows_both_addresses() -> None:
    async with running_server() as server, raw_client(server.port) as client:
        await client.ask(request())
        (connection,) = server.connections
        assert connection.remote_address == client.writer.get_extra_info("sockname")
        assert connection.local_address == (LOOPBACK, server.port)
        assert connection.peer == "{}:{}".format(*connection.remote_address)


@pytest.mark.each_loop
async def test_a_server_sends_requests_to_its_client_on_the_same_connection() -> None:
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
async def test_attributes_and_the_callbacks_of_opening_and_closing() -> None:
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
