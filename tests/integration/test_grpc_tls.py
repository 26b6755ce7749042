"""TLS on the gRPC port: the modes, certificates that are replaced, and the addresses of clients."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmq_proxy.apache_settings import known_keys
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.network import front as front_module
from rmq_proxy.protocol import definition_pb2 as pb
from rmq_proxy.protocol import service_pb2 as rpc
from rmq_proxy.proxy import Proxy
from rmq_proxy.tls_settings import effective_tls
from rmq_remoting.daemon.configuration import Override, SettingsError, load
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.certificates import Certificate, make_certificate
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.grpc_client import GrpcClient, grpc_client, is_served, message, resource, trusting
from tests.support.ports import LOOPBACK, free_port
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path, "server")


async def _is_served(address: str, credentials: Any = None) -> bool:
    async with grpc_client(address, credentials=credentials) as client:
        return await is_served(client)


@pytest.mark.parametrize(
    ("keys", "plain", "encrypted"),
    [
        ({}, True, True),
        ({"tls.server.mode": "permissive"}, True, True),
        ({"tls.server.mode": "enforcing"}, False, True),
        ({"tls.server.mode": "disabled"}, True, False),
    ],
)
async def test_the_mode_decides_who_is_served(
    cluster: RunningCluster, certificate: Certificate, keys: dict[str, str], plain: bool, encrypted: bool
) -> None:
    async with running_proxy(cluster.address, **certificate.settings, **keys) as proxy:
        assert await _is_served(proxy.address) is plain
        assert await _is_served(proxy.address, trusting(certificate)) is encrypted


async def test_without_a_certificate_the_port_is_in_plain_text(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:
        assert await _is_served(proxy.address)
        assert not await _speaks_tls(proxy)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_mode_without_a_certificate_has_a_self_signed_one(cluster: RunningCluster, mode: str) -> None:
    async with running_proxy(cluster.address, **{"tls.server.mode": mode}) as proxy:
        assert await _is_served(proxy.address) is (mode == "permissive")
        assert await _speaks_tls(proxy)


async def _speaks_tls(proxy: Proxy) -> bool:
    """Whether the port answers a handshake of TLS that offers HTTP/2."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, proxy.port, ssl=context)
    except (OSError, ssl.SSLError):
        return False
    tls = writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "h2"
    writer.close()
    return True


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_replaced_certificate_is_used_for_new_connections(
    cluster: RunningCluster, certificate: Certificate, tmp_path: Path, mode: str
) -> None:
    second = make_certificate(tmp_path, "second")
    files = {"tls.server.mode": mode, **certificate.settings}
    old = trusting(certificate)
    async with (
        running_proxy(cluster.address, **files) as proxy,
        grpc_client(proxy.address, credentials=old) as open_client,
    ):
        assert (await _route(open_client)).code == pb.OK
        # Between both replacements the files do not match, and the old ones stay in use.
        shutil.copy(second.cert_file, certificate.cert_file)
        await until(lambda: proxy.certificates.failed_reloads == 1)
        assert await _is_served(proxy.address, old)
        shutil.copy(second.key_file, certificate.key_file)
        await until(lambda: proxy.certificates.reloads == 1)
        assert _counted(proxy) == {"rmq_tls_reloads_total": 1, "rmq_tls_reloads_failed_total": 1}
        assert await _is_served(proxy.address, trusting(second))
        assert not await _is_served(proxy.address, old)
        assert (await _route(open_client)).code == pb.OK


def _counted(proxy: Proxy) -> dict[str, object]:
    """Return the counters of reloads of the gRPC port."""
    return {
        family.name: value
        for collector in proxy.metrics.registry.collectors()
        for family in collector.collect()
        if family.name.startswith("rmq_tls_reloads")
        for (port,), value in family.series
        if port == "grpc"
    }


async def _route(client: GrpcClient) -> pb.Status:
    answer = await client.call("QueryRoute", rpc.QueryRouteRequest(topic=resource("T")))
    status: pb.Status = answer.status
    return status


async def test_clients_may_need_a_certificate(
    cluster: RunningCluster, certificate: Certificate, tmp_path: Path
) -> None:
    own, other = make_certificate(tmp_path, "own"), make_certificate(tmp_path, "other")
    keys = {
        **certificate.settings,
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(own.cert_file),
    }
    async with running_proxy(cluster.address, **keys) as proxy:
        assert await _is_served(proxy.address, trusting(certificate, own))
        assert not await _is_served(proxy.address, trusting(certificate, other))
        assert not await _is_served(proxy.address, trusting(certificate))


async def test_an_encrypted_key_needs_its_password(cluster: RunningCluster, tmp_path: Path) -> None:
    encrypted = make_certificate(tmp_path, "encrypted", password="the-password")
    files = encrypted.settings
    async with running_proxy(cluster.address, **files, **{"tls.server.keyPassword": "the-password"}) as proxy:
        assert await _is_served(proxy.address, trusting(encrypted))
    with pytest.raises(StartError, match=r"tls.server.keyPassword"):
        async with running_proxy(cluster.address, **files):
            pass


async def test_calls_through_both_protocols_have_the_clients_address(
    cluster: RunningCluster, certificate: Certificate
) -> None:
    """The broker stores it with the message."""
    broker = cluster.broker
    async with running_proxy(cluster.address, **certificate.settings) as proxy:
        for number, credentials in enumerate((None, trusting(certificate))):
            async with grpc_client(proxy.address, credentials=credentials) as client:
                assert (await client.send(message("T", b"x"))).status.code == pb.OK
            host, port = broker.messages("T")[number].properties["__BORNHOST"].split(":")
            assert host == LOOPBACK
            assert int(port) != proxy.port


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_large_message_passes_whole(
    cluster: RunningCluster, certificate: Certificate, mode: str
) -> None:
    body = os.urandom(3 * 1024 * 1024)
    keys = {"tls.server.mode": mode, **certificate.settings}
    async with (
        running_proxy(cluster.address, **keys) as proxy,
        grpc_client(proxy.address, credentials=trusting(certificate)) as client,
    ):
        await client.consume("G", "T")
        await client.receive("G", "T")
        assert (await client.send(message("T", body))).status.code == pb.OK
        (received,) = await client.receive_all("G", "T", 1)
        assert received.body == body


async def test_a_client_that_says_nothing_is_closed(
    cluster: RunningCluster, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "_FIRST_BYTE_SECONDS", 0.05)
    async with running_proxy(cluster.address, **certificate.settings) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        monkeypatch.undo()
        assert await _is_served(proxy.address)


async def test_connections_end_with_the_proxy(cluster: RunningCluster, certificate: Certificate) -> None:
    async with running_proxy(cluster.address, **certificate.settings) as proxy:
        reader, writer = await asyncio.open_connection(LOOPBACK, proxy.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        assert await reader.read(9)  # the settings of the server
        port = proxy.port
    async with asyncio.timeout(20):
        while await reader.read(1000):
            pass
    writer.close()
    with socket.socket() as again:
        assert again.connect_ex((LOOPBACK, port)) != 0


async def test_an_ipv6_address_is_served_and_reported(
    cluster: RunningCluster, certificate: Certificate, tmp_path: Path
) -> None:
    broker = cluster.broker
    loopback6 = make_certificate(tmp_path, "six", "IP:::1")
    for keys in ({}, loopback6.settings):
        async with running_proxy(cluster.address, bindAddress="::1", **keys) as proxy:
            assert proxy.address == f"[::1]:{proxy.port}"
            async with grpc_client(proxy.address) as client:
                assert (await client.send(message("T", b"x"))).status.code == pb.OK
            assert broker.messages("T")[-1].properties["__BORNHOST"].startswith("[::1]:")
            if keys:
                assert await _is_served(proxy.address, trusting(loopback6))


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
async def test_all_interfaces_are_those_of_both_kinds(
    cluster: RunningCluster, tmp_path: Path, mode: str
) -> None:
    both = make_certificate(tmp_path, "both", "IP:127.0.0.1,IP:::1")
    keys = {"bindAddress": "::", "tls.server.mode": mode, **both.settings}
    credentials = None if mode == "disabled" else trusting(both)
    async with running_proxy(cluster.address, **keys) as proxy:
        for host in (LOOPBACK, "[::1]"):
            assert await _is_served(f"{host}:{proxy.port}", credentials)


# --- the broker itself ---


@pytest.mark.parametrize("source", ["broker", "file"])
async def test_a_broker_that_enforces_tls_does_so_on_its_grpc_port(
    certificate: Certificate, tmp_path: Path, source: str
) -> None:
    """The certificate is the broker's, unless the proxy's file names another one."""
    other = make_certificate(tmp_path, "other")
    port, file = free_port(), tmp_path / "rmq-proxy.json"
    file.write_text(json.dumps(other.settings if source == "file" else {}))
    keys: dict[str, Any] = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate.cert_file,
        "tls.server.keyPath": certificate.key_file,
        "grpcServerPort": port,
        "proxyConfigPath": file,
        # The name server of the test has no TLS of its own.
        "tls.enable": "true",
    }
    shown = other if source == "file" else certificate
    async with running_cluster(tmp_path, **keys) as cluster:
        address = f"{LOOPBACK}:{port}"
        assert not await _is_served(address)
        assert await _is_served(address, trusting(shown))
        async with grpc_client(address, credentials=trusting(shown)) as client:
            assert (await client.send(message("T", b"x"))).status.code == pb.OK
        assert [each.body for each in cluster.broker.messages("T")] == [b"x"]


# --- settings ---


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"tlsTestModeEnable": "false"}, "tlsTestModeEnable=false needs a certificate"),
        ({"tlsKeyPath": "k.pem"}, "without tlsCertPath"),
        ({"tls.server.mode": "enforcing", "tls.protocols": "TLSv1.3"}, "cannot follow tls.ciphers"),
        ({"tlsCertPath": "c.pem", "tls.ciphers": "ECDHE"}, "cannot follow tls.ciphers"),
        (
            {
                "tlsCertPath": "c.pem",
                "tls.server.need.client.auth": "optional",
                "tls.server.trustCertPath": "t.pem",
            },
            "set none or require",
        ),
        ({"tls.server.need.client.auth": "require"}, "trustCertPath"),
    ],
)
def test_protection_that_the_port_cannot_give_is_refused(
    keys: Mapping[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    overrides = [Override(key, value) for key, value in keys.items()]
    with pytest.raises(SettingsError, match=problem):
        load(ProxyDaemonSettings, overrides=overrides, known_keys=known_keys)


def test_files_below_rocketmq_home_are_used_without_the_test_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    settings = load(ProxyDaemonSettings, overrides=[Override("tlsTestModeEnable", "false")]).settings
    effective = effective_tls(settings, settings)
    assert effective.tls_server_cert_path == tmp_path / "conf" / "tls" / "rocketmq.crt"
    assert effective.tls_server_key_path == tmp_path / "conf" / "tls" / "rocketmq.key"


async def test_files_that_cannot_be_used_are_named(cluster: RunningCluster, tmp_path: Path) -> None:
    keys = {"tlsCertPath": str(tmp_path / "missing.pem")}
    with pytest.raises(StartError, match=r"missing.pem cannot be used"):
        async with running_proxy(cluster.address, **keys):
            pass
