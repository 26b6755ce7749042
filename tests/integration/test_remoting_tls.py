"""Connections over TLS: the same answers as without TLS, and errors that name their cause."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_remoting.client import ClientTls, RemotingClient
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import ConnectionSettings
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import ConnectError, RequestError, TlsError, TooManyRequests
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.certificates import Certificate, make_certificate
from tests.support.ports import LOOPBACK
from tests.support.proxy import FaultProxy, fault_proxy
from tests.support.waiting import until

pytestmark = pytest.mark.each_loop

_MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "server")


@pytest.fixture(autouse=True)
def refused_handshakes(loop_errors: list[dict[str, Any]]) -> Iterator[None]:
    """The servers here are asyncio's, whose loop tells of handshakes that clients end."""
    yield
    told = "Error on transport creation for incoming connection"
    loop_errors[:] = [context for context in loop_errors if context["message"] != told]


@asynccontextmanager
async def plain_server() -> AsyncIterator[RemotingServer]:
    """Answers 10 with its body, and 12 never."""
    dispatcher = Dispatcher()
    tier = InlineTier("inline", capacity=1000, max_wait_ms=1000)
    dispatcher.register([10], lambda connection, asked: asked.response(0, body=asked.body), tier)
    dispatcher.register([12], lambda connection, asked: None, tier)
    server = RemotingServer(dispatcher)
    await server.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.2)


@asynccontextmanager
async def tls_server(context: ssl.SSLContext) -> AsyncIterator[FaultProxy]:
    async with plain_server() as server, fault_proxy(LOOPBACK, server.port, tls=context) as proxy:
        yield proxy


@asynccontextmanager
async def tls_client(
    trusted: Path | None, *, server_name: str | None = None, own: Certificate | None = None, **options: Any
) -> AsyncIterator[RemotingClient]:
    context = ssl.create_default_context(cafile=trusted)
    if own is not None:
        context.load_cert_chain(own.cert_file, own.key_file)
    client = RemotingClient(tls=ClientTls(context, server_name), **options)
    try:
        yield client
    finally:
        await client.stop(grace_seconds=1.0)


@pytest.mark.parametrize("size", [0, 100, 8 * _MEBIBYTE])
async def test_requests_are_answered(certificate: Certificate, size: int) -> None:
    async with (
        tls_server(certificate.server_context()) as server,
        tls_client(certificate.cert_file) as client,
    ):
        asked = [RemotingCommand.request(10, body=bytes([number]) * size) for number in range(4)]
        answers = await asyncio.gather(*(client.request(server.address, one, 30.0) for one in asked))
        assert [answer.body for answer in answers] == [one.body for one in asked]
        await client.oneway(server.address, RemotingCommand.request(12))
        assert server.accepted == 1


async def test_a_certificate_that_nobody_trusts(certificate: Certificate) -> None:
    async with (
        tls_server(certificate.server_context()) as server,
        tls_client(None, first_backoff_seconds=100.0) as client,
    ):
        problem = (
            f"cannot connect to {server.address}: its certificate is not trusted: self-signed certificate"
        )
        with pytest.raises(TlsError, match=problem):
            await client.connect(server.address)
        # Who comes too early for the next attempt learns it, too.
        with pytest.raises(TlsError, match=problem + ".*; next attempt in "):
            await client.connect(server.address)


async def test_a_certificate_for_somebody_else(tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other", "DNS:brokers.example")
    async with tls_server(other.server_context()) as server:
        async with tls_client(other.cert_file) as client:
            with pytest.raises(TlsError, match="not trusted: IP address mismatch"):
                await client.connect(server.address)
        async with tls_client(other.cert_file, server_name="brokers.example") as client:
            answer = await client.request(server.address, RemotingCommand.request(10, body=b"x"), 5.0)
            assert answer.body == b"x"


async def test_a_server_that_wants_to_know_who_it_is(certificate: Certificate, tmp_path: Path) -> None:
    own = make_certificate(tmp_path, "client")
    async with tls_server(certificate.server_context(client_ca=own.cert_file)) as server:
        async with tls_client(certificate.cert_file, own=own) as client:
            answer = await client.request(server.address, RemotingCommand.request(10, body=b"x"), 5.0)
            assert answer.body == b"x"
        async with tls_client(certificate.cert_file) as client:
            # With TLS 1.3 that comes to light after the handshake.
            with pytest.raises(RequestError, match=r"ended|cannot connect"):
                await client.request(server.address, RemotingCommand.request(10), 5.0)


async def test_a_server_that_does_not_speak_tls(certificate: Certificate) -> None:
    async with plain_server() as server, tls_client(certificate.cert_file) as client:
        with pytest.raises(ConnectError, match="does the server use TLS") as failed:
            await client.connect(f"{LOOPBACK}:{server.port}")
        assert "cannot connect to 127.0.0.1:" in str(failed.value)


async def test_a_server_that_says_nothing(certificate: Certificate) -> None:
    async with (
        tls_server(certificate.server_context()) as server,
        fault_proxy(LOOPBACK, server.port) as silent,
        tls_client(certificate.cert_file, connect_timeout_seconds=0.1) as client,
    ):
        silent.stall()
        with pytest.raises(ConnectError, match=r"no connection within 0\.1 s"):
            await client.connect(silent.address)


async def test_a_peer_that_does_not_read_holds_up_one_way_requests(certificate: Certificate) -> None:
    settings = ConnectionSettings(write_high_bytes=256 * 1024, write_low_bytes=64 * 1024)
    async with (
        tls_server(certificate.server_context()) as server,
        tls_client(certificate.cert_file, settings=settings) as client,
    ):
        connection = await client.connect(server.address)
        server.stall()

        async def send_until_full() -> None:
            while True:
                connection.send_oneway(RemotingCommand.request(12, body=bytes(256 * 1024)))
                await asyncio.sleep(0)

        with pytest.raises(TooManyRequests, match="does not read"):
            await asyncio.wait_for(send_until_full(), 10)
        assert not connection.is_writable
        server.resume()
        await asyncio.wait_for(connection.drain(), 10)
        assert connection.is_writable
        answer = await connection.send_request(RemotingCommand.request(10, body=b"x"), 5.0)
        assert answer.body == b"x"


async def test_the_end_is_seen_and_the_next_request_connects_anew(certificate: Certificate) -> None:
    async with (
        tls_server(certificate.server_context()) as server,
        tls_client(certificate.cert_file) as client,
    ):
        await client.request(server.address, RemotingCommand.request(10), 5.0)
        server.cut()
        await until(lambda: client.existing(server.address) is None)
        await client.request(server.address, RemotingCommand.request(10), 5.0)
        assert server.accepted == 2


async def test_stopping_does_not_wait_for_a_peer_that_does_not_say_good_bye(certificate: Certificate) -> None:
    async with tls_server(certificate.server_context()) as server:
        client = RemotingClient(tls=ClientTls(ssl.create_default_context(cafile=certificate.cert_file)))
        connection = await client.connect(server.address)
        server.stall()
        await asyncio.wait_for(client.stop(grace_seconds=0.1), 20)
        await asyncio.wait_for(connection.wait_closed(), 20)
        server.resume()
