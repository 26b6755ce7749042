"""Plain text and TLS on one port of a server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmq_remoting.admission import Admission, ConnectionLimits
from rmq_remoting.client import ClientTls, RemotingClient
from rmq_remoting.command import RemotingCommand
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.protocol_detection import ServerTls, TlsMode, TlsUnavailable
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.certificates import Certificate, make_certificate
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
from tests.support.waiting import until

pytestmark = pytest.mark.each_loop

_MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "server")


def _request(body: bytes = b"", opaque: int = 1) -> RemotingCommand:
    return RemotingCommand(code=10, flag=0, opaque=opaque, body=body)


@asynccontextmanager
async def _server(
    certificate: Certificate | None,
    mode: TlsMode = TlsMode.PERMISSIVE,
    *,
    handshake_seconds: float = 5.0,
    client_ca: Path | None = None,
    admission: Admission | None = None,
    idle_seconds: float = 120.0,
) -> AsyncIterator[RemotingServer]:
    """A server that answers requests 10 with their bodies."""

    async def context() -> ssl.SSLContext:
        if certificate is None:
            raise TlsUnavailable("this server has no certificate")
        return certificate.server_context(client_ca)

    dispatcher = Dispatcher()
    tier = InlineTier("inline", capacity=1000, max_wait_ms=1000)
    dispatcher.register([10], lambda connection, asked: asked.response(0, body=asked.body), tier)
    server = RemotingServer(
        dispatcher,
        tls=ServerTls(mode, context, handshake_seconds),
        admission=admission,
        idle_seconds=idle_seconds,
    )
    await server.start(LOOPBACK, 0)
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.2)


def _client_context(certificate: Certificate, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificate.cert_file)
    if own is not None:
        context.load_cert_chain(own.cert_file, own.key_file)
    return context


@asynccontextmanager
async def _tls_client(context: ssl.SSLContext) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(tls=ClientTls(context))
    try:
        yield client
    finally:
        await client.stop()


class _Handshake:
    """A client's side of TLS, whose bytes a test sends as it likes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=LOOPBACK)

    def hello(self) -> bytes:
        """The first bytes of the client."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise AssertionError("the handshake needs an answer")

    async def finish(self, reader: asyncio.StreamReader) -> None:
        """Complete the handshake; the client's last bytes wait for `send`."""
        while True:
            self._incoming.write(await reader.read(65_536))
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                assert not self._outgoing.pending

    def send(self, data: bytes) -> bytes:
        """The encrypted bytes, behind the rest of the handshake."""
        self._tls.write(data)
        return self._outgoing.read()

    async def receive(self, reader: asyncio.StreamReader) -> bytes:
        """The next decrypted bytes."""
        while True:
            try:
                return self._tls.read(65_536)
            except ssl.SSLWantReadError:
                self._incoming.write(await reader.read(65_536))


@pytest.mark.parametrize("size", [0, 100, 8 * _MEBIBYTE])
async def test_both_protocols_are_served_on_one_port(certificate: Certificate, size: int) -> None:
    body = bytes(size)
    async with (
        _server(certificate) as server,
        _tls_client(_client_context(certificate)) as secure,
        raw_client(server.port) as plain,
    ):
        address = f"{LOOPBACK}:{server.port}"
        assert (await secure.request(address, _request(body), 20)).body == body
        if size <= _MEBIBYTE:
            assert (await plain.ask(_request(body))).body == body
            assert server.open_connections == 2
        assert (server.tls_statistics.handshakes, server.tls_statistics.failed_handshakes) == (1, 0)


async def test_many_clients_shake_hands_at_once(certificate: Certificate) -> None:
    async with _server(certificate) as server:
        context, address = _client_context(certificate), f"{LOOPBACK}:{server.port}"

        async def ask(number: int) -> bytes:
            async with _tls_client(context) as client:
                answer = await client.request(address, _request(b"%d" % number), 20)
                return answer.body or b""

        assert await asyncio.gather(*map(ask, range(40))) == [b"%d" % number for number in range(40)]
        assert server.tls_statistics.handshakes == 40
        await until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("piece", [1, 100, 10_000])
async def test_a_hello_in_pieces_and_a_request_right_behind_the_handshake(
    certificate: Certificate, piece: int
) -> None:
    async with _server(certificate) as server:
        reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
        client = _Handshake(_client_context(certificate))
        hello = client.hello()
        for at in range(0, len(hello), piece):
            writer.write(hello[at : at + piece])
            await asyncio.sleep(0)  # a write of its own
        await client.finish(reader)
        frame = encode_frame(_request(b"early"))
        writer.write(client.send(frame + encode_frame(_request(b"too", opaque=2))))
        decoder, answers = FrameDecoder(), list[RemotingCommand]()
        async with asyncio.timeout(10):
            while len(answers) < 2:
                answers += decoder.feed(await client.receive(reader))
        assert [answer.body for answer in answers] == [b"early", b"too"]
        writer.transport.abort()


async def test_plain_text_is_refused_where_tls_is_enforced(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with _server(certificate, TlsMode.ENFORCING) as server:
        for _ in range(3):
            async with raw_client(server.port) as plain:
                plain.send(_request())
                assert await plain.until_closed() == []
        async with _tls_client(_client_context(certificate)) as secure:
            answer = await secure.request(f"{LOOPBACK}:{server.port}", _request(b"x"), 10)
            assert answer.body == b"x"
        assert server.tls_statistics.plain_refused == 3
        (line,) = [record.getMessage() for record in caplog.records if "plain text" in record.getMessage()]
        assert "tls.server.mode is enforcing; let the client use TLS" in line


async def test_a_server_without_tls_says_what_it_received(caplog: pytest.LogCaptureFixture) -> None:
    async with _server(None, TlsMode.DISABLED) as server, raw_client(server.port) as client:
        client.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        assert await client.until_closed() == []
        assert "TLS handshake" in caplog.text


async def test_a_server_without_a_certificate_refuses_tls(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async with _server(None) as server, raw_client(server.port) as client:
        client.send_bytes(_Handshake(_client_context(certificate)).hello())
        assert await client.until_closed() == []
        assert server.tls_statistics.failed_handshakes == 1
        assert "TLS handshake failed" in caplog.text
        assert "this server has no certificate" in caplog.text
        async with raw_client(server.port) as plain:
            assert (await plain.ask(_request(b"x"))).body == b"x"


@pytest.mark.parametrize("rest", [b"", b"\x00" * 300, b"\x16\x03\x01\x00\x05garbage"])
async def test_a_handshake_that_breaks_off_or_fails_ends_its_connection(
    certificate: Certificate, rest: bytes
) -> None:
    async with _server(certificate, handshake_seconds=0.3) as server, raw_client(server.port) as client:
        client.send_bytes(b"\x16\x03\x01\x00\xff" + rest)
        assert not [answer for answer in await client.until_closed() if answer.code == 0]
        await until(lambda: server.open_connections == 0)
        assert server.tls_statistics.failed_handshakes == 1


async def test_a_client_that_leaves_during_the_handshake_is_forgotten(certificate: Certificate) -> None:
    async with _server(certificate) as server:
        for _ in range(5):
            async with raw_client(server.port) as client:
                client.send_bytes(_Handshake(_client_context(certificate)).hello())
                await until(lambda: server.open_connections == 1)
            await until(lambda: server.open_connections == 0)
        assert server.tls_statistics.handshakes == 0


async def test_clients_may_need_a_certificate(certificate: Certificate, tmp_path: Path) -> None:
    own, other = make_certificate(tmp_path, "client"), make_certificate(tmp_path, "other")
    async with _server(certificate, client_ca=own.cert_file) as server:
        address = f"{LOOPBACK}:{server.port}"
        async with _tls_client(_client_context(certificate, own)) as client:
            assert (await client.request(address, _request(b"x"), 10)).body == b"x"
        for wrong in (None, other):
            async with _tls_client(_client_context(certificate, wrong)) as client:
                with pytest.raises(Exception, match=r"connection|TLS"):
                    await client.request(address, _request(b"x"), 10)
        await until(lambda: server.tls_statistics.failed_handshakes == 2)


async def test_connections_without_a_first_byte_are_closed(certificate: Certificate) -> None:
    async with _server(certificate, idle_seconds=0.2) as server, raw_client(server.port) as client:
        await until(lambda: server.open_connections == 1)
        assert await client.until_closed() == []
        assert server.statistics.idle_closed == 1
        await until(lambda: server.open_connections == 0)


async def test_a_stop_ends_connections_in_every_state(certificate: Certificate) -> None:
    async with _server(certificate) as server:
        silent = await asyncio.open_connection(LOOPBACK, server.port)
        halfway = await asyncio.open_connection(LOOPBACK, server.port)
        halfway[1].write(_Handshake(_client_context(certificate)).hello())
        await until(lambda: server.open_connections == 2)
        await halfway[0].read(1)
        await server.stop()
        assert await silent[0].read() == b""
        await until(lambda: server.open_connections == 0)
        for _, writer in (silent, halfway):
            writer.transport.abort()


@pytest.mark.parametrize("is_detected", [True, False], ids=["detection", "plain only"])
@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        (ConnectionLimits(in_all=3), "too many connections most=3; raise maxConnections"),
        (ConnectionLimits(in_all=4), "too many connections of this host most=3"),
        (ConnectionLimits(per_host=3), "raise maxConnectionsPerHost"),
    ],
)
async def test_connections_beyond_the_limits_are_refused(
    certificate: Certificate,
    caplog: pytest.LogCaptureFixture,
    limits: ConnectionLimits,
    advice: str,
    is_detected: bool,
) -> None:
    mode = TlsMode.PERMISSIVE if is_detected else TlsMode.DISABLED
    async with _server(certificate, mode, admission=Admission(limits)) as server:
        kept = [await asyncio.open_connection(LOOPBACK, server.port) for _ in range(3)]
        await until(lambda: server.open_connections == 3)
        for _ in range(2):
            async with raw_client(server.port) as refused:
                assert await refused.until_closed() == []
        assert server.statistics.refused == 2
        assert advice in caplog.text
        kept[0][1].transport.abort()
        await until(lambda: server.open_connections == 2)
        async with raw_client(server.port) as client:
            assert (await client.ask(_request(b"x"))).body == b"x"
        for _, writer in kept:
            writer.transport.abort()
        await until(lambda: server.open_connections == 0)
        await asyncio.gather(*(writer.wait_closed() for _, writer in kept), return_exceptions=True)
