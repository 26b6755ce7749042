"""Name server and broker with TLS on their own ports, and between each other."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.broker import Broker
from rmq_broker.standalone import build_standalone
from rmq_client import (
    Admin,
    ClientSettings,
    Message,
    NameServerUnreachable,
    Producer,
    PushConsumer,
    TlsFailed,
    TlsSettings,
)
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.brokers import RunningBroker, broker_configuration, running_broker
from tests.support.certificates import Certificate, make_certificate
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Certificate:
    return make_certificate(folder, "server")


@pytest.fixture(scope="module")
def own(folder: Path) -> Certificate:
    return make_certificate(folder, "client")


def _keys(certificate: Certificate, **more: Any) -> dict[str, Any]:
    """TLS only, also between broker and name server; each verifies the other."""
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate.cert_file,
        "tls.server.keyPath": certificate.key_file,
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificate.cert_file,
        **more,
    }


@asynccontextmanager
async def _cluster(folder: Path, keys: dict[str, Any]) -> AsyncIterator[tuple[str, RunningBroker]]:
    async with (
        running_namesrv(folder, **keys) as namesrv,
        running_broker(folder, namesrvAddr=namesrv.address, readyWaitMillis=10_000, **keys) as broker,
    ):
        assert broker.broker.registrar.is_announced
        yield namesrv.address, broker


async def _peer_certificate(port: int) -> bytes:
    """The certificate that a port shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    assert isinstance(shown, bytes)
    return shown


def _der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert_file.read_text())


async def test_everything_is_encrypted(tmp_path: Path, certificate: Certificate) -> None:
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    async with _cluster(tmp_path, _keys(certificate)) as (address, broker):
        async with Admin(address, settings=settings) as admin:
            await admin.create_topic("T", queues=2)
        bodies = [b"%d" % number for number in range(20)]
        async with Producer(address, group="p", settings=settings) as producer:
            await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies))
        inbox = Inbox()
        async with PushConsumer(
            address, group="g", topics=["T"], listener=inbox, consume_from="first", settings=settings
        ):
            await until(lambda: inbox.bodies == sorted(bodies), 30)
        for port in (broker.port, broker.fast_port):
            assert await _peer_certificate(port) == _der(certificate)
        async with Admin(address) as plain:
            with pytest.raises(NameServerUnreachable, match="does it accept connections without TLS"):
                await plain.topics()


async def test_certificates_of_clients(tmp_path: Path, certificate: Certificate, own: Certificate) -> None:
    """The broker has one for the name server, as each client."""
    keys = _keys(
        certificate,
        **{
            "tls.server.need.client.auth": "require",
            "tls.server.trustCertPath": own.cert_file,
            "tls.client.certPath": own.cert_file,
            "tls.client.keyPath": own.key_file,
        },
    )
    async with _cluster(tmp_path, keys) as (address, _):
        tls = TlsSettings(ca_file=certificate.cert_file, cert_file=own.cert_file, key_file=own.key_file)
        async with Admin(address, settings=ClientSettings(tls=tls)) as admin:
            await admin.create_topic("T", queues=1)
            assert "T" in await admin.topics()
        without = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
        async with Admin(address, settings=without) as admin:
            with pytest.raises((NameServerUnreachable, TlsFailed)):
                await admin.topics()


async def test_a_broker_trusts_only_the_name_server_with_its_certificate(
    tmp_path: Path, certificate: Certificate, own: Certificate
) -> None:
    async with (
        running_namesrv(tmp_path, **_keys(certificate)) as namesrv,
        running_broker(
            tmp_path,
            namesrvAddr=namesrv.address,
            **_keys(certificate, **{"tls.client.trustCertPath": own.cert_file}),
        ) as broker,
    ):
        (link,) = broker.broker.registrar.links
        await until(lambda: link.failures > 0)
        assert not link.is_registered


async def test_both_protocols_by_default(tmp_path: Path) -> None:
    """As Apache's servers, with a self-signed certificate."""
    async with _cluster(tmp_path, {}) as (address, broker):
        trusting = ClientSettings(tls=TlsSettings(verify="none"))
        async with Admin(address, settings=trusting) as admin, Admin(address) as plain:
            await admin.create_topic("T", queues=1)
            assert "T" in await plain.topics()
        assert await _peer_certificate(broker.port) == await _peer_certificate(broker.port)
        async with Admin(address, settings=ClientSettings(tls=True)) as admin:
            with pytest.raises(TlsFailed, match="not trusted: self-signed"):
                await admin.topics()


async def test_tls_without_a_certificate_can_be_switched_off(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"tls.test.mode.enable": "false"}
    async with running_namesrv(tmp_path, **keys) as namesrv:
        trusting = ClientSettings(tls=TlsSettings(verify="none"))
        async with Admin(namesrv.address, settings=trusting) as admin:
            with pytest.raises(NameServerUnreachable, match="TLS"):
                await admin.topics()
        async with Admin(namesrv.address) as admin:
            assert isinstance(await admin.topics(), list)


def _copy(certificate: Certificate, folder: Path) -> Certificate:
    folder.mkdir(exist_ok=True)
    copied = Certificate(folder / "server.crt", folder / "server.key")
    shutil.copy(certificate.cert_file, copied.cert_file)
    shutil.copy(certificate.key_file, copied.key_file)
    return copied


def _contexts_of(broker: Broker) -> tuple[int, int]:
    contexts = broker.listeners.contexts
    return contexts.reloads, contexts.failed_reloads


async def test_changed_files_are_loaded_without_a_restart(
    tmp_path: Path, certificate: Certificate, own: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the change of the certificate and that of the key, the old ones stay in use."""
    used = _copy(certificate, tmp_path / "used")
    async with running_broker(tmp_path, **_keys(used)) as broker:
        contexts = broker.broker.listeners.contexts
        assert await _peer_certificate(broker.port) == _der(certificate)
        async with broker.client() as _:
            shutil.copy(own.cert_file, used.cert_file)
            await contexts.check()
            assert _contexts_of(broker.broker) == (0, 1)
            assert "the key is not that of the certificate" in caplog.text
            assert await _peer_certificate(broker.port) == _der(certificate)
            await contexts.check()
            assert _contexts_of(broker.broker) == (0, 1)
            used.key_file.unlink()
            await contexts.check()
            shutil.copy(own.key_file, used.key_file)
            await contexts.check()
            assert _contexts_of(broker.broker) == (1, 1)
            assert await _peer_certificate(broker.port) == _der(own)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tls.server.certPath": "/nowhere/server.crt"}, "tls.server.certPath=/nowhere/server.crt"),
        ({"tls.server.keyPath": "{other}"}, "the key is not that of the certificate"),
        ({"tls.server.certPath": "{garbage}"}, "cannot be used"),
        ({"tls.client.trustCertPath": "{garbage}"}, "tls.client.trustCertPath={garbage} cannot be used"),
        ({"tls.ciphers": "nonsense"}, "tls.ciphers=nonsense: no cipher suite"),
    ],
)
async def test_files_that_cannot_be_used_refuse_the_start(
    tmp_path: Path, certificate: Certificate, own: Certificate, changes: dict[str, str], reason: str
) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    names = {"other": str(own.key_file), "garbage": str(garbage)}
    given = {key: value.format(**names) for key, value in changes.items()}
    broker = RunningBroker(broker_configuration(tmp_path, **_keys(certificate, **given)))
    with pytest.raises(StartError) as refused:
        await broker.build()
    assert reason.format(**names) in str(refused.value)
    await broker.stop()


async def test_keys_with_passwords(tmp_path: Path) -> None:
    locked = make_certificate(tmp_path, "locked", password="opensesame")
    async with running_broker(
        tmp_path, **_keys(locked, **{"tls.server.keyPassword": "opensesame"})
    ) as broker:
        assert await _peer_certificate(broker.port) == _der(locked)
        assert "opensesame" not in str(broker.configuration.to_properties())
    for password in ("", "wrong"):
        other = RunningBroker(
            broker_configuration(tmp_path, **_keys(locked, **{"tls.server.keyPassword": password}))
        )
        with pytest.raises(StartError, match="keyPassword" if not password else "cannot be used"):
            await other.build()
        await other.stop()


async def test_a_standalone_broker_has_the_same_tls_for_its_name_server(
    tmp_path: Path, certificate: Certificate
) -> None:
    supervisor = TaskSupervisor(lambda name, error: None)
    configuration = broker_configuration(tmp_path, **_keys(certificate))
    standalone = await build_standalone(configuration, supervisor, namesrv_port=0)
    try:
        assert not (await standalone.start()).route_held_by
        settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
        async with Admin(f"{LOOPBACK}:{standalone.namesrv.port}", settings=settings) as admin:
            await admin.create_topic("T", queues=1)
            assert "T" in await admin.topics()
        assert {"tls-files", "namesrv-tls-files"} <= set(supervisor.names)
    finally:
        await standalone.stop()
        await supervisor.stop()
