"""TLS stripped on the way: neither a client nor a server falls back to plain text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from rmq_client import (
    Admin,
    ClientSettings,
    Message,
    Producer,
    RetryPolicy,
    TlsFailed,
    TlsSettings,
    UnreachableError,
)
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import encode_frame
from tests.support.broker_requests import create_topic, send
from tests.support.brokers import running_broker
from tests.support.certificates import Certificate, make_certificate
from tests.support.namesrv import running_namesrv
from tests.support.ports import LOOPBACK
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client
from tests.support.waiting import until

# Types of TLS records: change of cipher, alert, handshake.
_BEFORE_DATA = {0x14, 0x15, 0x16}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificates"), "servers")


def _record_types(data: bytes) -> Iterator[int]:
    """The types of the TLS records that a client has sent."""
    while data:
        yield data[0]
        data = data[5 + int.from_bytes(data[3:5]) :]


class _Stripper:
    """Takes the place of a server, answers in plain text, and keeps what clients send."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.read(65_536)
        answers = [
            RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC).response(
                ResponseCode.SUCCESS, body=b'{"topicList":["T"],"brokerDatas":[],"queueDatas":[]}'
            )
            for _ in range(4)
        ]
        for number, answer in enumerate(answers):
            answer.opaque = number
        writer.write(b"".join(map(encode_frame, answers)))
        self.heard.append(heard + await reader.read())
        writer.close()


@asynccontextmanager
async def _stripper() -> AsyncIterator[_Stripper]:
    stripper = _Stripper()
    server = await asyncio.start_server(stripper.serve, LOOPBACK, 0)
    stripper.address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield stripper


@pytest.mark.parametrize("verify", ["full", "none"])
async def test_answers_in_plain_text_are_not_believed(
    certificate: Certificate, verify: Literal["full", "none"]
) -> None:
    tls = TlsSettings(ca_file=certificate.cert_file) if verify == "full" else TlsSettings(verify="none")
    async with _stripper() as stripper, Admin(stripper.address, settings=ClientSettings(tls=tls)) as admin:
        with pytest.raises(TlsFailed, match="does the server use TLS"):
            await admin.topics()
        await until(lambda: stripper.heard)
    for heard in stripper.heard:
        assert set(_record_types(heard)) <= _BEFORE_DATA


async def test_a_broker_that_speaks_plain_text(tmp_path: Path, certificate: Certificate) -> None:
    """The name server is the real one; somebody strips TLS from the connection to the broker."""
    secured: dict[str, Any] = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate.cert_file,
        "tls.server.keyPath": certificate.key_file,
    }
    trusting: dict[str, Any] = {
        "tls.server.mode": "disabled",
        "tls.enable": "true",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": certificate.cert_file,
    }
    settings = ClientSettings(tls=TlsSettings(ca_file=certificate.cert_file))
    async with (
        running_namesrv(tmp_path, **secured) as namesrv,
        running_broker(tmp_path, namesrvAddr=namesrv.address, readyWaitMillis=10_000, **trusting) as broker,
        Producer(namesrv.address, group="p", settings=settings, retry=RetryPolicy(retries=1)) as producer,
    ):
        async with broker.client() as client:
            assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS
        with pytest.raises(UnreachableError, match="does the server use TLS"):
            await producer.send(Message("T", b"secret"))
        assert broker.store.max_phy_offset() == 0


async def test_servers_that_enforce_tls_read_no_plain_text(tmp_path: Path, certificate: Certificate) -> None:
    """On all ports, and whatever the client sends."""
    secured: dict[str, Any] = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": certificate.cert_file,
        "tls.server.keyPath": certificate.key_file,
    }
    async with (
        running_namesrv(tmp_path, **secured) as namesrv,
        running_broker(tmp_path, **secured) as broker,
    ):
        for port in (broker.port, broker.fast_port, namesrv.port):
            async with raw_client(port) as client:
                client.send(send("T"), RemotingCommand.request(RequestCode.GET_BROKER_CONFIG))
                assert await client.until_closed() == []
        dispatchers = (broker.broker.listeners.main.dispatcher, broker.broker.listeners.fast.dispatcher)
        assert not any(row.answered for dispatcher in dispatchers for row in dispatcher.registrations())
        assert broker.store.max_phy_offset() == 0
