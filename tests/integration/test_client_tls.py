"""The SDK over TLS: everything works as without, and errors name their cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq_client import (
    Admin,
    ClientSettings,
    Message,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    PushConsumer,
    RawPuller,
    SimpleConsumer,
    TlsFailed,
    TlsSettings,
    blocking,
)
from tests.support.certificates import Certificate, make_certificate
from tests.support.fronts import fronted_cluster, needs_fronts
from tests.support.namesrv import running_namesrv
from tests.support.push_consumers import Inbox
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.waiting import until

pytestmark = needs_fronts

_MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "servers")


@pytest.fixture
async def address(tmp_path: Path, certificate: Certificate) -> AsyncIterator[str]:
    async with fronted_cluster(tmp_path, tls=certificate.server_context()) as address:
        yield address


async def test_sending_and_all_consumers_over_tls(address: str, certificate: Certificate) -> None:
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    async with Admin(address, settings=settings) as admin:
        await admin.create_topic("T", queues=2)
    bodies = sorted([b"%d" % number for number in range(20)] + [b"x" * 3 * _MEBIBYTE])
    async with Producer(address, group="p", compression=None, settings=settings) as producer:
        results = await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies))
    inbox = Inbox()
    async with PushConsumer(
        address, group="g", topics=["T"], listener=inbox, consume_from="first", settings=settings
    ):
        await until(lambda: inbox.bodies == bodies, 30)
    async with PullConsumer(address, group="l", consume_from="first", settings=settings) as puller:
        await puller.assign(await puller.queues("T"))
        pulled: list[bytes] = []
        async with asyncio.timeout(30):
            while len(pulled) < len(bodies):
                pulled += [message.body for message in await puller.poll()]
    assert sorted(pulled) == bodies
    async with SimpleConsumer(
        address, group="s", topics=["T"], consume_from="first", settings=settings
    ) as consumer:
        (message,) = await consumer.receive(1, timeout_seconds=10)
        await consumer.ack(message)
    async with RawPuller(address, group="r", settings=settings) as raw:
        assert (await raw.pull(results[0].queue, results[0].queue_offset)).body


def test_the_blocking_classes_accept_the_same_settings(certificate: Certificate, tmp_path: Path) -> None:
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    with asyncio.Runner() as runner:
        cluster = fronted_cluster(tmp_path, tls=certificate.server_context())
        address = runner.run(cluster.__aenter__())

        def use() -> list[str]:
            with blocking.Admin(address, settings=settings) as admin:
                admin.create_topic("T", queues=1)
                return admin.topics()

        try:
            assert "T" in runner.run(asyncio.to_thread(use))
        finally:
            runner.run(cluster.__aexit__(None, None, None))


async def test_untrusted_servers_raise_tls_failed(address: str) -> None:
    async with Admin(address, settings=ClientSettings(tls=True)) as admin:
        with pytest.raises(TlsFailed, match=r"no TLS with any name server .* not trusted: self-signed"):
            await admin.topics()


async def test_a_name_server_that_does_not_speak_tls(tmp_path: Path, certificate: Certificate) -> None:
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    keys: dict[str, Any] = {"tls.server.mode": "disabled"}
    async with (
        running_namesrv(tmp_path, **keys) as namesrv,
        Admin(namesrv.address, settings=settings) as admin,
    ):
        with pytest.raises(NameServerUnreachable, match="does the server use TLS"):
            await admin.topics()


async def test_a_name_server_that_requires_tls(address: str) -> None:
    async with Admin(address) as admin:
        with pytest.raises(NameServerUnreachable, match="does it accept connections without TLS"):
            await admin.topics()
