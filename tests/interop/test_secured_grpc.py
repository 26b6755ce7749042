"""Apache's Python client for 5.x with access keys and TLS, on our broker and our proxy in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rmq_client import Credentials
from rmq_remoting.bodies.access_control import UserInfo
from tests.integration.test_grpc_access import ACCESS, ANN, PROXY, allow
from tests.interop.proxy_clients import PythonClients, Refused, python_clients
from tests.support.certificates import make_certificate
from tests.support.clusters import ClusterBroker, running_cluster
from tests.support.ports import LOOPBACK, free_port
from tests.support.running_proxy import running_proxy
from tests.support.waiting import until


@pytest.fixture(params=["local", "cluster"])
async def front(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, ClusterBroker]]:
    """The address of each form of the proxy, and the broker behind it. Ann may use T and the group G."""
    port = free_port()
    topics = {"broker-a": {"T": 1, "U": 1}}
    async with running_cluster(tmp_path, topics, grpcServerPort=port, **ACCESS) as cluster:
        tables = cluster.broker.services.access.tables
        tables.users.create(UserInfo(username=ANN.access_key, password=ANN.secret_key, user_type="Normal"))
        allow(cluster.broker, ANN.access_key, ("Topic:T", "All"), ("Group:G", "Sub"))
        if request.param == "local":
            yield f"{LOOPBACK}:{port}", cluster.broker
        else:
            async with running_proxy(cluster.address, **PROXY) as proxy:
                yield proxy.address, cluster.broker


def _clients(address: str, folder: Path, keys: Credentials) -> AbstractContextManager[PythonClients]:
    variables = {"ACCESS_KEY": keys.access_key, "SECRET_KEY": keys.secret_key}
    return python_clients(address, folder / "python", **variables)


async def test_a_user_with_rights_sends_and_consumes(
    front: tuple[str, ClusterBroker], tmp_path: Path
) -> None:
    address, _ = front
    with _clients(address, tmp_path, ANN) as clients:
        async with clients.producer("T") as producer, clients.push_consumer("G", "T") as consumer:
            await producer.send("T", "paid")
            await until(lambda: consumer.accepted == ["paid"], 30)


async def test_others_are_unauthorized(
    front: tuple[str, ClusterBroker], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's own exceptions do not have the proxy's text, so the log is asked for the cause."""
    address, broker = front
    with _clients(address, tmp_path / "wrong", Credentials("ann", "wrong")) as clients:
        with pytest.raises(Refused):
            async with clients.producer("T") as producer:
                await producer.send("T", "x")
        assert "check signature failed" in caplog.text
    with _clients(address, tmp_path / "ann", ANN) as clients:
        with pytest.raises(Refused):
            async with clients.producer("U") as producer:
                await producer.send("U", "x")
        assert "gRPC access denied user='ann'" in caplog.text
    assert broker.messages("U") == broker.messages("T") == []


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_tls_clients_send_and_consume(tmp_path: Path, mode: str) -> None:
    certificate = make_certificate(tmp_path, "server")
    files = certificate.settings
    variables = {"TLS": "true", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate.cert_file)}
    keys = {"tls.server.mode": mode, **files}
    async with running_cluster(tmp_path) as cluster, running_proxy(cluster.address, **keys) as proxy:
        with python_clients(proxy.address, tmp_path / "python", **variables) as clients:
            async with clients.producer("T") as producer, clients.push_consumer("G", "T") as consumer:
                await producer.send("T", "paid")
                await until(lambda: consumer.accepted == ["paid"], 30)
