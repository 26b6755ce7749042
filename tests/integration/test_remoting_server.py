"""The listener: accepts connections, closes idle ones, stops."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import AsyncExitStack

import pytest

from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import RemotingError
from rmq_remoting.framing import encode_frame
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.ports import LOOPBACK, free_port
from tests.support.raw_client import raw_client
from tests.support.waiting import loop_passes, until

MIB = 1024 * 1024


def dispatcher() -> Dispatcher:
    """10 echoes, 11 answers with more than sockets hold."""
    made = Dispatcher()
    tier = InlineTier("inline", capacity=100, max_wait_ms=1000)
    made.register([10], lambda connection, request: request.response(0, body=request.body), tier)
    made.register([11], lambda connection, request: request.response(0, body=bytes(12 * MIB)), tier)
    return made


def request(code: int = 10) -> RemotingCommand:
    return RemotingCommand.request(code)


@pytest.mark.each_loop
async def test_the_port_is_fixed_or_assigned() -> None:
    first, second = RemotingServer(dispatcher()), RemotingServer(dispatcher())
    given = free_port()

    assert await first.start(LOOPBACK, given) == given == first.port
    assert await second.start(LOOPBACK, 0) == second.port > 0
    for server in (first, second):
        async with raw_client(server.port) as client:
            assert (await client.ask(request())).code == 0
        await server.stop()
        with pytest.raises(RemotingError, match="does not listen"):
            _ = server.port


@pytest.mark.each_loop
async def test_a_port_in_use_is_an_os_error() -> None:
    first, second = RemotingServer(dispatcher()), RemotingServer(dispatcher())
    port = await first.start(LOOPBACK, 0)
    with pytest.raises(OSError, match="in use"):
        await second.start(LOOPBACK, port)
    await second.stop()
    await first.stop()


@pytest.mark.each_loop
async def test_a_server_that_never_started_can_be_stopped() -> None:
    await RemotingServer(dispatcher()).stop()


@pytest.mark.each_loop
async def test_the_last_descriptors_are_kept_for_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that would take them are refused, with one line in the log; the others are served."""
    server = RemotingServer(dispatcher())
    await server.start(LOOPBACK, 0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(raw_client(server.port)) for _ in range(3)]
        for client in clients:
            await client.ask(request())
        most = max(connection.descriptor for connection in server.connections) + 1
        monkeypatch.setattr(resource, "getrlimit", lambda _: (most + 16, most + 16))
        refused = [await stack.enter_async_context(raw_client(server.port)) for _ in range(5)]
        for client in refused:
            assert await client.until_closed() == []
        await until(lambda: len(server.connections) == 3)
        for client in clients:
            assert (await client.ask(request())).code == 0
        assert (server.statistics.refused, server.statistics.opened) == (5, 8)
        (line,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
        assert "LimitNOFILE" in line
        monkeypatch.undo()
        async with raw_client(server.port) as client:
            assert (await client.ask(request())).code == 0
    await server.stop()


@pytest.mark.each_loop
async def test_open_connections_are_listed() -> None:
    closed: list[Connection] = []
    server = RemotingServer(dispatcher(), on_close=closed.append)
    await server.start(LOOPBACK, 0)
    async with raw_client(server.port) as first, raw_client(server.port) as second:
        await first.ask(request())
        await second.ask(request())
        assert len(server.connections) == 2
        assert (server.statistics.opened, server.statistics.closed) == (2, 0)
    await until(lambda: not server.connections)
    assert (server.statistics.opened, server.statistics.closed) == (2, 2)
    assert len(closed) == 2
    await server.stop()


@pytest.mark.each_loop
async def test_bytes_are_counted() -> None:
    server = RemotingServer(dispatcher())
    await server.start(LOOPBACK, 0)
    async with raw_client(server.port) as client:
        await client.ask(request())
        counted = server.statistics
        assert (counted.bytes_read > 80, counted.bytes_written > 80) == (True, True)
    await server.stop()


@pytest.mark.virtual_time
async def test_only_idle_connections_are_closed() -> None:
    server = RemotingServer(dispatcher(), idle_seconds=120.0)
    await server.start(LOOPBACK, 0)
    async with raw_client(server.port) as idle, raw_client(server.port) as busy:
        await idle.ask(request())
        for _ in range(11):
            await busy.ask(request())
            await asyncio.sleep(10)
        assert server.statistics.idle_closed == 0
        for _ in range(2):
            await busy.ask(request())
            await asyncio.sleep(10)

        assert await idle.until_closed() == []
        assert (await busy.ask(request())).code == 0
        assert server.statistics.idle_closed == 1
        assert len(server.connections) == 1
    await server.stop()


@pytest.mark.virtual_time
async def test_bytes_that_complete_no_command_keep_no_connection_open() -> None:
    server = RemotingServer(dispatcher(), idle_seconds=120.0)
    await server.start(LOOPBACK, 0)
    async with raw_client(server.port) as slow:
        frame = encode_frame(request())
        for byte in frame[:13]:
            assert server.statistics.idle_closed == 0
            slow.send_bytes(bytes([byte]))
            await asyncio.sleep(10)
        assert await slow.until_closed() == []
        assert server.statistics.idle_closed == 1
    await server.stop()


@pytest.mark.virtual_time
async def test_an_idle_connection_that_does_not_read_is_aborted() -> None:
    settings = ConnectionSettings(write_high_bytes=MIB, write_low_bytes=1000, linger_seconds=5.0)
    server = RemotingServer(dispatcher(), settings=settings, idle_seconds=120.0)
    await server.start(LOOPBACK, 0)
    peer = unread_socket(server.port)
    with peer:
        await asyncio.get_running_loop().sock_sendall(peer, encode_frame(request(11)))
        await until(lambda: server.statistics.reads_paused, timeout_seconds=100)

        await asyncio.sleep(140)

        assert server.statistics.idle_closed == 1
        assert server.statistics.closed == 1
        assert not server.connections
    await server.stop()


def unread_socket(port: int) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    peer.connect((LOOPBACK, port))
    peer.setblocking(False)
    return peer


@pytest.mark.each_loop
async def test_stop_accepting_keeps_open_connections() -> None:
    server = RemotingServer(dispatcher())
    port = await server.start(LOOPBACK, 0)
    async with raw_client(port) as client:
        await client.ask(request())

        server.stop_accepting()
        await loop_passes()

        assert (await client.ask(request())).code == 0
        with pytest.raises(OSError):
            await asyncio.open_connection(LOOPBACK, port)
        await server.stop()
        assert await client.until_closed() == []


@pytest.mark.each_loop
async def test_stop_sends_buffered_frames_and_aborts_peers_that_do_not_read() -> None:
    server = RemotingServer(dispatcher())
    port = await server.start(LOOPBACK, 0)
    deaf = unread_socket(port)
    with deaf:
        await asyncio.get_running_loop().sock_sendall(deaf, encode_frame(request(11)))
        async with raw_client(port) as reading:
            reading.send(request(11))
            await until(lambda: server.statistics.reads_paused == 2)
            answers = asyncio.ensure_future(reading.until_closed())

            await server.stop(grace_seconds=2)

            assert [len(answer.body) for answer in await answers] == [12 * MIB]
        await until(lambda: server.statistics.closed == 2)
        assert not server.connections


@pytest.mark.each_loop
async def test_a_connection_accepted_during_the_stop_is_aborted() -> None:
    server = RemotingServer(dispatcher())
    port = await server.start(LOOPBACK, 0)
    peers = [socket.create_connection((LOOPBACK, port)) for _ in range(20)]
    # The listener sees them in the loop's next pass, and their connections are made some passes later.
    await loop_passes(1)

    await server.stop(grace_seconds=0.2)

    await loop_passes(10)
    await until(lambda: not server.connections)
    assert server.statistics.opened == server.statistics.closed
    for peer in peers:
        peer.close()


@pytest.mark.each_loop
async def test_a_server_restarts_on_its_port() -> None:
    server = RemotingServer(dispatcher())
    port = await server.start(LOOPBACK, 0)
    async with raw_client(port) as client:
        await client.ask(request())
        await server.stop()
        assert await client.until_closed() == []

    assert await server.start(LOOPBACK, port) == port
    async with raw_client(port) as client:
        assert (await client.ask(request())).code == 0
    await server.stop()


@pytest.mark.each_loop
async def test_many_concurrent_connections() -> None:
    server = RemotingServer(dispatcher())
    port = await server.start(LOOPBACK, 0)

    async def one() -> int:
        async with raw_client(port) as client:
            return (await client.ask(request())).code

    assert await asyncio.gather(*[one() for _ in range(200)]) == [0] * 200
    await until(lambda: not server.connections)
    assert server.statistics.opened == 200
    await server.stop()


@pytest.mark.each_loop
@pytest.mark.parametrize("own_bound", [64 * 1024, 64 * MIB], ids=["above own bound", "below own bound"])
async def test_peers_that_do_not_read_hold_a_bounded_number_of_bytes(
    caplog: pytest.LogCaptureFixture, own_bound: int
) -> None:
    """Beyond the bound the connections with the most unsent bytes are closed; others are served."""
    settings = ConnectionSettings(write_high_bytes=own_bound, write_low_bytes=16 * 1024)
    server = RemotingServer(dispatcher(), settings=settings, max_unsent_bytes=16 * MIB)
    await server.start(LOOPBACK, 0)
    async with AsyncExitStack() as stack:
        deaf = [await stack.enter_async_context(raw_client(server.port)) for _ in range(3)]
        for client, size in zip(deaf, (12, 14, 15), strict=True):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(RemotingCommand.request(10, body=bytes(size * MIB)))
        honest = await stack.enter_async_context(raw_client(server.port))
        await until(lambda: server.statistics.unread_closed == 2, 10)
        assert (await honest.ask(request())).code == 0
        assert sum(connection.unsent_bytes for connection in server.connections) <= 16 * MIB
        await until(lambda: len(server.connections) == 2)
        assert "peers do not read their responses" in caplog.text
    await server.stop()


@pytest.mark.each_loop
async def test_the_kernel_holds_few_bytes_for_a_peer_that_does_not_read() -> None:
    """The bytes in the kernel count towards no bound, and go with the connection when it is aborted."""
    loop = asyncio.get_running_loop()
    server = RemotingServer(dispatcher())
    await server.start(LOOPBACK, 0)
    with unread_socket(server.port) as deaf:
        await loop.sock_sendall(deaf, encode_frame(request(11)))
        await until(lambda: server.statistics.reads_paused)
        (connection,) = server.connections
        assert connection.unsent_bytes > 11 * MIB

        connection.abort()

        await until(lambda: server.statistics.closed)
        with pytest.raises(ConnectionResetError):
            while await loop.sock_recv(deaf, MIB):
                pass
    await server.stop()
