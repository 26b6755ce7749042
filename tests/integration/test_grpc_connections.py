"""The bound of connections to the gRPC port, and to the remoting port of the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from rmq_proxy.network import ports
from rmq_proxy.network.ports import GrpcPorts
from rmq_remoting.daemon.tls_settings import TlsSettings
from rmq_remoting.protocol_detection import TlsMode
from tests.support.certificates import make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, is_served
from tests.support.ports import LOOPBACK, free_port
from tests.support.running_proxy import remoting_port, running_proxy
from tests.support.waiting import until, until_answer


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@asynccontextmanager
async def _client(address: str) -> AsyncIterator[GrpcClient]:
    """A client with a connection of its own."""
    # Channels of one process share their connections by default.
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield GrpcClient(channel, "client-1", "5.0.7")


async def _check_limit_of_two(address: str) -> None:
    async with _client(address) as third:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                assert await is_served(await stack.enter_async_context(_client(address)))
            assert not await is_served(third)
            assert not await is_served(third)
        # There is room again.
        assert await until_answer(lambda: is_served(third), 20)


@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_connections_beyond_the_limit_are_closed(
    cluster: RunningCluster, tmp_path: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = make_certificate(tmp_path, "server").settings if mode == "permissive" else {}
    keys = {"grpcConnectionsMaxNum": 2, "tls.server.mode": mode, **files}
    async with running_proxy(cluster.address, **keys) as proxy:
        await _check_limit_of_two(proxy.address)
    refusals = [each for each in caplog.records if "gRPC connections refused" in each.getMessage()]
    # gRPC's own listener refuses without a word.
    assert len(refusals) == (mode == "permissive")


async def test_the_limit_counts_in_a_broker(tmp_path: Path) -> None:
    file, port = tmp_path / "rmq-proxy.json", free_port()
    file.write_text('{"grpcConnectionsMaxNum": 2}')
    async with running_cluster(tmp_path, grpcServerPort=port, proxyConfigPath=file):
        await _check_limit_of_two(f"{LOOPBACK}:{port}")


async def test_a_connection_behind_a_front_ends_although_its_client_has_vanished(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The server ends it, and the client never does."""
    keys = {
        "grpcClientIdleTimeMills": 100,
        "grpcConnectionsMaxNum": 1,
        **make_certificate(tmp_path, "server").settings,
    }
    async with running_proxy(cluster.address, **keys) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        # A whole connection of HTTP/2 without calls: the preface and empty settings.
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        async with asyncio.timeout(20):
            while await reader.read(1000):
                pass
        async with _client(proxy.address) as client:
            assert await until_answer(lambda: is_served(client), 20)
        writer.close()


@pytest.mark.parametrize(
    ("mode", "descriptors", "most"),
    [
        (TlsMode.DISABLED, 1000.0, 750),
        (TlsMode.ENFORCING, 1000.0, 750),
        (TlsMode.PERMISSIVE, 1000.0, 250),
        (TlsMode.DISABLED, float("inf"), 2**31 - 1),
    ],
)
def test_open_files_limit_the_connections_by_default(
    mode: TlsMode, descriptors: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "most_descriptor", lambda: descriptors)
    settings = TlsSettings(tls_server_mode=mode)
    assert GrpcPorts(settings, 1.0).most_connections == most
    assert GrpcPorts(settings, 1.0, 7).most_connections == 7


@pytest.mark.parametrize(
    ("key", "advice"),
    [("maxConnections", "raise maxConnections"), ("maxConnectionsPerHost", "raise maxConnectionsPerHost")],
)
async def test_the_remoting_port_has_limits_of_its_own(
    cluster: RunningCluster, key: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_proxy(cluster.address, **{key: 1}) as proxy:
        first, writer = await asyncio.open_connection(LOOPBACK, remoting_port(proxy))
        second, other = await asyncio.open_connection(LOOPBACK, remoting_port(proxy))
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await second.read() == b""
        await until(lambda: advice in caplog.text)
        assert not first.at_eof()
        writer.close()
        other.close()
