"""Apache's clients over TLS with this project's name server and broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_client import Admin, ClientSettings, TlsSettings
from tests.interop.checks import bodies_of, check_sends_and_consumes, expected_bodies
from tests.interop.clusters import Own, flawless_cluster
from tests.interop.foreign import JavaClient
from tests.support.certificates import Certificate, make_certificate
from tests.support.toolchain import JavaProgram

_TRUSTING = {"tls.enable": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Certificate:
    return make_certificate(folder, "servers")


@pytest.fixture(scope="module")
def client_certificate(folder: Path) -> Certificate:
    """For the Java client and the broker; the key is in the form that Java reads, PKCS#8."""
    return make_certificate(folder, "clients")


@pytest.fixture(scope="module")
def secured(certificate: Certificate, client_certificate: Certificate, folder: Path) -> Iterator[Own]:
    """Servers that need TLS and a certificate of each client, by the file that Apache's servers read."""
    file = folder / "tls.properties"
    file.write_text(
        f"tls.test.mode.enable=false\n"
        f"tls.server.certPath={certificate.cert_file}\n"
        f"tls.server.keyPath={certificate.key_file}\n"
        f"tls.server.need.client.auth=require\n"
        f"tls.server.authClient=true\n"
        f"tls.server.trustCertPath={client_certificate.cert_file}\n"
        f"tls.client.certPath={client_certificate.cert_file}\n"
        f"tls.client.keyPath={client_certificate.key_file}\n"
        f"tls.client.authServer=true\n"
        f"tls.client.trustCertPath={certificate.cert_file}\n"
    )
    settings = {"tls.config.file": str(file), "tls.server.mode": "enforcing"}
    with flawless_cluster(settings, settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plain() -> Iterator[Own]:
    """Servers as a client sees them through somebody who strips TLS."""
    settings = {"tls.server.mode": "disabled"}
    with flawless_cluster(settings, settings) as cluster:
        yield cluster


@pytest.fixture
def verifying(certificate: Certificate, client_certificate: Certificate) -> dict[str, str]:
    """System properties of a Java client that verifies the servers and shows its certificate."""
    return {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(certificate.cert_file),
        "tls.client.certPath": str(client_certificate.cert_file),
        "tls.client.keyPath": str(client_certificate.key_file),
    }


@pytest.fixture
async def secured_topic(
    secured: Own, certificate: Certificate, client_certificate: Certificate, name: str
) -> str:
    tls = TlsSettings(
        ca_file=certificate.cert_file,
        cert_file=client_certificate.cert_file,
        key_file=client_certificate.key_file,
    )
    async with Admin(secured[0].address, settings=ClientSettings(tls=tls)) as admin:
        await admin.create_topic(name, queues=4)
    return name


@pytest.mark.java
@pytest.mark.parametrize("header", ["JSON", "ROCKETMQ"])
async def test_java_with_a_certificate(
    java_program: JavaProgram,
    secured: Own,
    verifying: dict[str, str],
    secured_topic: str,
    tmp_path: Path,
    header: str,
) -> None:
    client = JavaClient(
        java_program, secured[0].address, tmp_path / "java", header=header, properties=verifying
    )
    await check_sends_and_consumes(client, secured_topic)
    with client.shell() as shell:
        (await shell.run("send", topic=secured_topic, count=3, size=100_000, tag="large")).check()
        (await shell.run("send", topic=secured_topic, count=50, mode="async", tag="async")).check()
        pulled = await shell.run("pull", topic=secured_topic, group="p", tag="large", count=3)
        assert bodies_of(pulled.check()) == expected_bodies(3, 100_000)
        route = await shell.admin("examineTopicRouteInfo", topic=secured_topic)
        assert route.check()


@pytest.mark.java
@pytest.mark.parametrize("wrong", ["plain text", "no certificate", "another authority"])
async def test_java_is_refused(
    java_program: JavaProgram,
    secured: Own,
    verifying: dict[str, str],
    client_certificate: Certificate,
    secured_topic: str,
    tmp_path: Path,
    wrong: str,
) -> None:
    properties = dict(verifying)
    if wrong == "plain text":
        properties = {}
    elif wrong == "no certificate":
        del properties["tls.client.certPath"], properties["tls.client.keyPath"]
    else:
        properties["tls.client.trustCertPath"] = str(client_certificate.cert_file)
    client = JavaClient(java_program, secured[0].address, tmp_path / "java", properties=properties)
    refused = await client.run("send", topic=secured_topic, count=1)
    assert refused.error is not None


@pytest.mark.java
async def test_java_never_falls_back_to_plain_text(
    java_program: JavaProgram, plain: Own, verifying: dict[str, str], name: str, tmp_path: Path
) -> None:
    """With TLS enabled it does not fall back to plain text, if that is all that servers speak."""
    async with Admin(plain[0].address) as admin:
        await admin.create_topic(name, queues=1)
    for properties in (verifying, _TRUSTING):
        client = JavaClient(java_program, plain[0].address, tmp_path / "java", properties=properties)
        refused = await client.run("send", topic=name, count=1)
        assert refused.error is not None
    async with Admin(plain[0].address) as admin:
        (stats,) = (await admin.topic_stats(name)).values()
        assert stats.max_offset == 0
    (await JavaClient(java_program, plain[0].address, tmp_path / "java").run("send", topic=name)).check()


@pytest.mark.java
async def test_java_by_default(java_program: JavaProgram, own: Own, own_topic: str, tmp_path: Path) -> None:
    """A broker without any setting serves Java clients with TLS beside those without, as Apache's does."""
    client = JavaClient(java_program, own[0].address, tmp_path / "java", properties=_TRUSTING)
    await check_sends_and_consumes(client, own_topic)


@pytest.mark.java
async def test_mqadmin(
    java_program: JavaProgram, secured: Own, verifying: dict[str, str], secured_topic: str, tmp_path: Path
) -> None:
    java = JavaClient(java_program, secured[0].address, tmp_path / "mqadmin", properties=verifying)
    with java.shell() as shell:
        listed = (await shell.mqadmin("topicList")).check()
        assert secured_topic in listed.text
        assert (await shell.mqadmin("clusterList")).check().rows
