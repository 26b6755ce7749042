"""Connections to addresses: shared, reopened, abandoned."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rmq_remoting.admission import Admission, ConnectionLimits
from rmq_remoting.client import RemotingClient, split_address
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.connection import Connection, ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import ConnectError, ConnectionClosed, RequestError, RequestTimeout, TooManyRequests
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.rows import each_row
from tests.support.waiting import loop_passes, until

pytestmark = pytest.mark.each_loop


class Held:
    """A processor whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self._futures: list[asyncio.Future[Any]] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> asyncio.Future[Any]:
        self.requests.append(request)
        self._futures.append(asyncio.get_running_loop().create_future())
        return self._futures[-1]

    def let_go(self) -> None:
        for future, request in zip(self._futures, self.requests, strict=True):
            if not future.done():
                future.set_result(request.response(0))


class Server:
    """A server of ours: 10 echoes, 11 holds, 12 counts one-way requests."""

    def __init__(self, **options: Any) -> None:
        self.held = Held()
        self.oneway: list[RemotingCommand] = []
        dispatcher = Dispatcher()
        tier = InlineTier("inline", capacity=1000, max_wait_ms=1000)
        dispatcher.register([10, 200_050], lambda connection, asked: asked.response(0, body=asked.body), tier)
        dispatcher.register([11], self.held, tier)
        dispatcher.register([12], lambda connection, asked: self.oneway.append(asked), tier)
        self.listener = RemotingServer(dispatcher, **options)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.listener.port}"


@asynccontextmanager
async def running_server(**options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    await server.listener.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        server.held.let_go()
        await server.listener.stop(grace_seconds=0.2)


@asynccontextmanager
async def running_client(
    dispatcher: Dispatcher | None = None, **options: Any
) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(dispatcher, **options)
    try:
        yield client
    finally:
        await client.stop(grace_seconds=0.2)


@asynccontextmanager
async def behind_proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(LOOPBACK, server.listener.port) as proxy:
        yield proxy


def request(code: int = 10, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(code, body=body)


# --- requests ---


@pytest.mark.parametrize("serialization", Serialization)
async def test_a_request_is_answered(serialization: Serialization) -> None:
    async with running_server() as server, running_client() as client:
        asked = RemotingCommand.request(10, {"a": "b"}, b"body", serialization=serialization)

        answer = await client.request(server.address, asked, 3.0)

        assert (answer.code, answer.body, answer.serialization) == (0, b"body", serialization)


async def test_a_code_over_16_bits_is_always_sent_as_json() -> None:
    async with running_server() as server, running_client() as client:
        asked = RemotingCommand.request(200_050, body=b"pop", serialization=Serialization.BINARY)
        answer = await client.request(server.address, asked, 3.0)
        assert (answer.code, answer.body, answer.serialization) == (0, b"pop", Serialization.JSON)


async def test_a_refusal_is_a_response() -> None:
    async with running_server() as server, running_client() as client:
        answer = await client.request(server.address, request(4711), 3.0)
        assert (answer.code, answer.remark) == (3, "request code 4711 is not supported by this server")


async def test_requests_share_their_connection() -> None:
    async with running_server() as server, running_client() as client:
        answers = await asyncio.gather(
            *[client.request(server.address, request(body=b"%d" % number), 3.0) for number in range(500)]
        )
        assert [answer.body for answer in answers] == [b"%d" % number for number in range(500)]
        assert server.listener.statistics.opened == 1
        assert client.addresses() == [server.address]


async def test_oneway_request() -> None:
    async with running_server() as server, running_client() as client:
        await client.oneway(server.address, request(12, b"x"))
        await until(lambda: server.oneway)
        assert server.oneway[0].is_oneway
        assert server.oneway[0].body == b"x"


async def test_a_server_sends_requests_to_its_client() -> None:
    dispatcher = Dispatcher()
    dispatcher.register(
        [40],
        lambda connection, asked: asked.response(0, body=b"client"),
        InlineTier("inline", capacity=10, max_wait_ms=1000),
    )
    async with running_server() as server, running_client(dispatcher) as client:
        await client.request(server.address, request(), 3.0)
        (connection,) = server.listener.connections

        answer = await connection.send_request(request(40), 3.0)

        assert answer.body == b"client"
        refused = await connection.send_request(request(39), 3.0)
        assert refused.code == 3


async def test_a_late_response_is_dropped() -> None:
    async with running_server() as server, running_client() as client:
        with pytest.raises(RequestTimeout, match=r"within 0\.2 s$"):
            await client.request(server.address, request(11), 0.2)
        server.held.let_go()
        assert (await client.request(server.address, request(), 3.0)).code == 0
        assert client.dispatcher.unsupported_requests == 0
        assert server.listener.dispatcher.unsupported_requests == 0


async def test_a_cancelled_request_does_not_stay_pending() -> None:
    async with running_server() as server, running_client() as client:
        caller = asyncio.ensure_future(client.request(server.address, request(11), 100.0))
        await until(lambda: server.held.requests)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

        connection = client.existing(server.address)
        assert connection is not None
        await until(lambda: connection.pending_requests == 0)


async def test_pending_requests_are_bounded() -> None:
    settings = ConnectionSettings(max_pending_requests=2)
    async with running_server() as server, running_client(settings=settings) as client:
        callers = [
            asyncio.ensure_future(client.request(server.address, request(11), 100.0)) for _ in range(2)
        ]
        await until(lambda: len(server.held.requests) == 2)
        with pytest.raises(TooManyRequests):
            await client.request(server.address, request(), 3.0)
        server.held.let_go()
        await asyncio.gather(*callers)
        assert (await client.request(server.address, request(), 3.0)).code == 0


# --- connecting ---


async def test_concurrent_callers_share_one_attempt_to_connect() -> None:
    async with running_server() as server, running_client() as client:
        connections = await asyncio.gather(*[client.connect(server.address) for _ in range(20)])

        assert len(set(connections)) == 1
        assert await client.connect(server.address) is connections[0]
        assert client.existing(server.address) is connections[0]
        await client.request(server.address, request(), 3.0)
        assert server.listener.statistics.opened == 1


async def test_a_failed_attempt_to_connect_is_shared() -> None:
    address = f"{LOOPBACK}:{free_port()}"
    async with running_client() as client:
        results = await asyncio.gather(*[client.connect(address) for _ in range(5)], return_exceptions=True)
    assert {type(result) for result in results} == {ConnectError}
    assert all(str(result).startswith(f"cannot connect to {address}: ") for result in results)


async def test_a_cancelled_caller_does_not_cancel_the_connect_of_others() -> None:
    async with running_server() as server, running_client() as client:
        first = asyncio.ensure_future(client.connect(server.address))
        second = asyncio.ensure_future(client.connect(server.address))
        await loop_passes(1)
        first.cancel()
        assert not (await second).is_closed
        with pytest.raises(asyncio.CancelledError):
            await first


def _is_connecting() -> bool:
    return any(task.get_name().startswith("connect ") for task in asyncio.all_tasks())


async def test_a_connect_whose_callers_are_all_cancelled_ends_silently() -> None:
    async with running_client() as client:
        caller = asyncio.ensure_future(client.connect(f"{LOOPBACK}:{free_port()}"))
        await loop_passes(1)
        caller.cancel()
        await until(lambda: not _is_connecting())


async def test_the_error_has_address_and_cause() -> None:
    address = f"{LOOPBACK}:{free_port()}"
    async with running_client() as client:
        with pytest.raises(
            ConnectError, match=f"^cannot connect to {address}: .*(refused|Connect call failed)"
        ):
            await client.request(address, request(), 3.0)
        assert client.existing(address) is None
        assert client.addresses() == []


async def test_a_connect_times_out() -> None:
    # A listener whose backlog is full lets nobody in.
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with running_client(connect_timeout_seconds=0.1) as client:
            with pytest.raises(
                ConnectError, match=f"^cannot connect to {address}: no connection within 0.1 s$"
            ):
                await client.connect(address)
        for filler in fillers:
            filler.close()


@each_row("port", ["", "x", "0", "65536", "-1", "²", "١", "9 876", "1" * 5000])
async def test_an_invalid_port_is_refused(port: str) -> None:
    async with running_client() as client:
        with pytest.raises(ConnectError, match="is not an address of the form host:port"):
            await client.connect(f"host:{port}")


@pytest.mark.parametrize("address", ["", "host", ":9876", ":"])
async def test_an_invalid_address_is_refused(address: str) -> None:
    async with running_client() as client:
        with pytest.raises(ConnectError, match="is not an address of the form host:port"):
            await client.connect(address)


@pytest.mark.parametrize("host", ["x" * 70, "a..b"])
async def test_an_unknown_host(host: str) -> None:
    async with running_client() as client:
        with pytest.raises(ConnectError, match=r"^cannot connect to "):
            await client.connect(f"{host}:9876")


def test_addresses_are_split() -> None:
    assert split_address("10.0.0.1:9876") == ("10.0.0.1", 9876)
    assert split_address("[::1]:65535") == ("::1", 65_535)
    assert split_address("broker-a.example:1") == ("broker-a.example", 1)


# --- backing off ---


@pytest.mark.virtual_time
class TestBackoff:
    """In virtual time; refused at once by a port that nobody listens on."""

    async def test_the_delay_doubles_up_to_its_bound_less_a_random_part(self) -> None:
        address = f"{LOOPBACK}:{free_port()}"
        async with running_client(first_backoff_seconds=0.5, max_backoff_seconds=3.0) as client:
            backoffs = []
            for _ in range(6):
                with pytest.raises(ConnectError, match="cannot connect"):
                    await client.connect(address)
                with pytest.raises(
                    ConnectError, match=f"^cannot connect to {address}: .*; next attempt in "
                ) as caught:
                    await client.connect(address)
                backoffs.append(float(str(caught.value).split()[-2]))
                await asyncio.sleep(backoffs[-1] + 0.01)
        longest = [0.5, 1.0, 2.0, 3.0, 3.0, 3.0]
        assert all(most / 2 <= seconds <= most for seconds, most in zip(backoffs, longest, strict=True))
        assert backoffs != longest

    async def test_an_address_unreachable_for_days_is_still_tried(self) -> None:
        address = f"{LOOPBACK}:{free_port()}"
        async with running_client(first_backoff_seconds=0.05, max_backoff_seconds=0.1) as client:
            for _ in range(1200):
                with pytest.raises(ConnectError, match="cannot connect"):
                    await client.connect(address)
                await asyncio.sleep(0.11)

    async def test_success_ends_the_backoff(self) -> None:
        async with running_client(first_backoff_seconds=1.0) as client:
            server = Server()
            port = free_port()
            address = f"{LOOPBACK}:{port}"
            for _ in range(2):
                with pytest.raises(ConnectError, match="cannot connect"):
                    await client.connect(address)
                await asyncio.sleep(2.1)
            await server.listener.start(LOOPBACK, port)
            await client.request(address, request(), 3.0)
            await server.listener.stop()
            await until(lambda: client.existing(address) is None)

            with pytest.raises(ConnectError, match="cannot connect"):
                await client.connect(address)
            with pytest.raises(ConnectError, match=r"next attempt in (0\.[5-9].|1\.00) s$"):
                await client.connect(address)

    async def test_an_address_that_nobody_asks_for_is_forgotten(self) -> None:
        addresses = [f"{LOOPBACK}:{free_port()}" for _ in range(3)]
        async with running_client() as client:
            for address in addresses:
                with pytest.raises(ConnectError):
                    await client.connect(address)
                await asyncio.sleep(59)
            assert set(client._unreachable) == set(addresses[1:])

    async def test_each_address_has_its_own_backoff(self) -> None:
        async with running_client(first_backoff_seconds=100.0) as client, running_server() as server:
            with pytest.raises(ConnectError):
                await client.connect(f"{LOOPBACK}:{free_port()}")
            assert (await client.request(server.address, request(), 3.0)).code == 0


# --- a bad network ---


async def test_a_cut_connection_fails_its_requests_and_is_reopened() -> None:
    lost: list[str] = []
    async with (
        running_server() as server,
        behind_proxy(server) as proxy,
        running_client(on_close=lost.append) as client,
    ):
        callers = [asyncio.ensure_future(client.request(proxy.address, request(11), 100.0)) for _ in range(3)]
        await until(lambda: len(server.held.requests) == 3)

        proxy.cut()

        results = await asyncio.gather(*callers, return_exceptions=True)
        assert {type(result) for result in results} == {ConnectionClosed}
        assert lost == [proxy.address]
        assert client.existing(proxy.address) is None
        assert (await client.request(proxy.address, request(), 3.0)).code == 0
        assert proxy.accepted == 2


async def test_a_connection_cut_within_a_response() -> None:
    async with running_server() as server, behind_proxy(server) as proxy, running_client() as client:
        await client.request(proxy.address, request(), 3.0)
        proxy.cut_after_bytes = 1000

        with pytest.raises(ConnectionClosed):
            await client.request(proxy.address, request(body=bytes(5000)), 3.0)

        assert (await client.request(proxy.address, request(body=bytes(5000)), 3.0)).code == 0
        assert client.statistics.protocol_errors == 0


async def test_a_stalled_network_is_a_time_out_and_recovers() -> None:
    async with running_server() as server, behind_proxy(server) as proxy, running_client() as client:
        await client.request(proxy.address, request(), 3.0)
        proxy.stall()
        with pytest.raises(RequestTimeout):
            await client.request(proxy.address, request(), 0.2)
        proxy.resume()
        assert (await client.request(proxy.address, request(), 3.0)).code == 0
        assert proxy.accepted == 1


async def test_oneway_requests_to_a_stalled_peer_are_bounded() -> None:
    settings = ConnectionSettings(write_high_bytes=100_000, write_low_bytes=1000)
    async with (
        running_server() as server,
        behind_proxy(server) as proxy,
        running_client(settings=settings) as client,
    ):
        await client.connect(proxy.address)
        proxy.stall()
        with pytest.raises(TooManyRequests, match="does not read"):
            for _ in range(10_000):
                await client.oneway(proxy.address, request(12, bytes(50_000)))
                await loop_passes(1)
        connection = client.existing(proxy.address)
        assert connection is not None
        proxy.resume()
        await asyncio.wait_for(connection.drain(), 20)
        await client.oneway(proxy.address, request(12))


async def test_a_server_with_another_protocol_is_disconnected() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(talk, LOOPBACK, 0)
    address = f"{LOOPBACK}:{listener.sockets[0].getsockname()[1]}"
    async with running_client() as client:
        with pytest.raises(ConnectionClosed):
            await client.request(address, request(), 3.0)
        assert client.statistics.protocol_errors == 1
        assert client.existing(address) is None
    listener.close()
    await loop_passes()


# --- the end ---


async def test_a_closed_address_is_reconnected() -> None:
    async with running_server() as server, running_client() as client:
        first = await client.connect(server.address)
        client.close_address(server.address)
        client.close_address("other:1")
        assert client.existing(server.address) is None
        assert await client.connect(server.address) is not first
        await first.wait_closed()


async def test_the_end_of_an_old_connection_does_not_affect_the_new_one() -> None:
    async with running_server() as server, behind_proxy(server) as proxy, running_client() as client:
        old = await client.connect(proxy.address)
        proxy.stall()
        for _ in range(10):
            old.write(request(body=bytes(1_000_000)))
        await loop_passes()
        client.close_address(proxy.address)  # ends when the peer has read all that
        new = await client.connect(proxy.address)

        old.abort()
        await old.wait_closed()
        await loop_passes()

        assert client.existing(proxy.address) is new
        proxy.resume()
        assert (await client.request(proxy.address, request(), 3.0)).code == 0


async def test_stop_aborts_old_connections_that_are_still_closing() -> None:
    async with running_server() as server, behind_proxy(server) as proxy:
        client = RemotingClient()
        old = await client.connect(proxy.address)
        proxy.stall()
        for _ in range(10):
            old.write(request(body=bytes(1_000_000)))
        await loop_passes()
        client.close_address(proxy.address)

        await client.stop(grace_seconds=0.1)

        await asyncio.wait_for(old.wait_closed(), 20)


async def test_stop_ends_requests_and_refuses_new_ones() -> None:
    async with running_server() as server:
        client = RemotingClient()
        caller = asyncio.ensure_future(client.request(server.address, request(11), 100.0))
        await until(lambda: server.held.requests)

        await client.stop()

        with pytest.raises(ConnectionClosed):
            await caller
        with pytest.raises(ConnectError, match="this client has been stopped"):
            await client.request(server.address, request(), 3.0)
        assert client.addresses() == []
        await client.stop()
        await until(lambda: not server.listener.connections)


@pytest.mark.parametrize("passes", range(6))
async def test_stop_while_connecting(passes: int) -> None:
    async with running_server() as server:
        client = RemotingClient()
        callers = [asyncio.ensure_future(client.connect(server.address)) for _ in range(3)]
        await loop_passes(passes)

        await client.stop()

        assert not _is_connecting()
        for result in await asyncio.gather(*callers, return_exceptions=True):
            # Not a CancelledError: nobody cancelled the callers.
            assert isinstance(result, Connection | RequestError)
            if isinstance(result, Connection):
                assert result.is_closed
        assert client.addresses() == []
        await until(lambda: not server.listener.connections)


async def test_a_caller_cancelled_during_the_stop_is_cancelled() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1)
        client = RemotingClient()
        caller = asyncio.ensure_future(client.connect("{}:{}".format(*listener.getsockname())))
        await loop_passes(1)
        caller.cancel()
        await client.stop()
        with pytest.raises(asyncio.CancelledError):
            await caller


# --- servers of the same process ---


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Server, RemotingClient]]:
    """A server, and a client that reaches it without a socket."""
    async with (
        running_server() as server,
        running_client(links={server.address: server.listener.link}) as client,
    ):
        yield server, client


async def test_a_link_carries_requests_without_a_socket() -> None:
    async with linked() as (server, client):
        body = bytes(3_000_000)
        answer = await client.request(server.address, request(body=body), 3.0)
        assert answer.body == body
        (connection,) = server.listener.connections
        assert (connection.descriptor, connection.peer) == (-1, f"{LOOPBACK}:0")
        assert connection.local_address == (LOOPBACK, server.listener.port)
        await client.oneway(server.address, request(12))
        await until(lambda: len(server.oneway) == 1)


async def test_the_end_of_a_client_ends_its_link() -> None:
    async with linked() as (server, client):
        await client.request(server.address, request(), 3.0)
        await client.stop()
        await until(lambda: not server.listener.connections)
        assert server.listener.statistics.closed == 1


async def test_a_server_that_stops_ends_its_links() -> None:
    async with linked() as (server, client):
        waiting = asyncio.ensure_future(client.request(server.address, request(11), 3.0))
        await until(lambda: len(server.held.requests) == 1)
        address = server.address
        await server.listener.stop(grace_seconds=0.2)
        with pytest.raises(ConnectionClosed):
            await waiting
        with pytest.raises(ConnectError, match=f"cannot connect to {address}: .*accepts no connections"):
            await client.request(address, request(), 3.0)


async def test_a_link_that_was_closed_is_opened_again() -> None:
    async with linked() as (server, client):
        await client.request(server.address, request(), 3.0)
        client.close_address(server.address)
        assert (await client.request(server.address, request(), 3.0)).code == 0
        assert server.listener.statistics.opened == 2


async def test_links_count_as_connections_of_their_host() -> None:
    limits = ConnectionLimits(per_host=1)
    async with running_server(admission=Admission(limits)) as server:
        links = {server.address: server.listener.link}
        async with running_client(links=links) as first, running_client(links=links) as second:
            await first.request(server.address, request(), 3.0)
            with pytest.raises(RequestError):
                await second.request(server.address, request(), 3.0)
        await until(lambda: not server.listener.connections)
        async with running_client(links=links) as third:
            assert (await third.request(server.address, request(), 3.0)).code == 0
