"""gRPC on the proxy's remoting port: Apache's enableRemotingLocalProxyGrpc."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rmq_client import ClientSettings, Message, Producer, TlsSettings
from rmq_proxy.network.front import Entrance, Front
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.proxy import Proxy
from tests.support.certificates import Certificate, make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import grpc_client, message, resource, trusting
from tests.support.ports import LOOPBACK
from tests.support.running_proxy import remoting_port, running_proxy

pytestmark = pytest.mark.each_loop


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path, "server")


def _keys(certificate: Certificate, mode: str) -> dict[str, str]:
    return {**certificate.settings, "tls.server.mode": mode}


async def _is_served(proxy: Proxy, credentials: Any = None) -> bool:
    async with grpc_client(proxy.remoting_address, credentials=credentials) as client:
        try:
            answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("T")), 5.0)
        except grpc.aio.AioRpcError:
            return False
    (broker,) = {each.broker.name for each in answer.message_queues}
    return bool(broker == "broker-a")


async def _send(proxy: Proxy, tls: TlsSettings | None = None) -> None:
    settings = ClientSettings() if tls is None else ClientSettings(tls=tls)
    async with Producer(proxy.remoting_address, group="p", settings=settings) as producer:
        await producer.send(Message("T", b"by a remoting client"))


@pytest.mark.parametrize(
    ("mode", "plain", "encrypted"),
    [("permissive", True, True), ("enforcing", False, True), ("disabled", True, False)],
)
async def test_the_port_takes_grpc_as_the_mode_of_tls_allows(
    cluster: RunningCluster, certificate: Certificate, mode: str, plain: bool, encrypted: bool
) -> None:
    async with running_proxy(cluster.address, **_keys(certificate, mode)) as proxy:
        assert await _is_served(proxy) is plain
        assert await _is_served(proxy, trusting(certificate)) is encrypted
        await _send(proxy, None if plain else TlsSettings(ca_file=certificate.cert_file))


async def test_the_port_takes_both_protocols_without_a_certificate(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:
        assert await _is_served(proxy)
        await _send(proxy)


async def test_the_setting_turns_it_off(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address, enableRemotingLocalProxyGrpc=False) as proxy:
        assert not await _is_served(proxy)
        await _send(proxy)


async def test_a_port_that_needs_certificates_of_clients_takes_no_grpc(
    cluster: RunningCluster, certificate: Certificate, tmp_path: Path
) -> None:
    own = make_certificate(tmp_path, "own")
    keys = {
        **_keys(certificate, "enforcing"),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(own.cert_file),
    }
    shown = grpc.ssl_channel_credentials(
        certificate.cert_file.read_bytes(), own.key_file.read_bytes(), own.cert_file.read_bytes()
    )
    tls = TlsSettings(ca_file=certificate.cert_file, cert_file=own.cert_file, key_file=own.key_file)
    async with running_proxy(cluster.address, **keys) as proxy:
        assert not await _is_served(proxy, shown)
        await _send(proxy, tls)


@pytest.mark.parametrize("mode", ["permissive", "enforcing", "disabled"])
async def test_brokers_get_the_address_of_the_client(
    cluster: RunningCluster, certificate: Certificate, mode: str
) -> None:
    credentials = None if mode == "disabled" else trusting(certificate)
    async with running_proxy(cluster.address, **_keys(certificate, mode)) as proxy:
        async with grpc_client(proxy.remoting_address, credentials=credentials) as client:
            assert (await client.send(message("T", b"x"))).status.code == pb.OK
            (stored,) = cluster.broker.messages("T")
            host, _, port = stored.properties["__BORNHOST"].rpartition(":")
        assert host == LOOPBACK
        assert int(port) not in (proxy.port, remoting_port(proxy))


async def test_connections_end_with_the_proxy(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, remoting_port(proxy))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        assert await reader.read(9)  # the settings of the server
    async with asyncio.timeout(20):
        while await reader.read(1000):
            pass
    writer.close()


async def test_a_grpc_server_that_does_not_answer_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = ssl.create_default_context()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # without an answer to the handshake
        writer.close()

    async with await asyncio.start_server(accept, LOOPBACK, 0) as silent:
        entrance = Entrance(LOOPBACK, silent.sockets[0].getsockname()[1], context)
        front = Front(entrance, entrance, connect_timeout_seconds=0.05, most_connections=10)
        reader, writer = await asyncio.open_connection(LOOPBACK, await front.listen(LOOPBACK, 0))
        writer.write(b"PRI")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        front.close()
    assert "gRPC connection dropped cause=TimeoutError" in caplog.text
