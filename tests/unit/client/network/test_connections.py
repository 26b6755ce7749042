"""Requests that wait for a connection, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rmq_client.network.connections import BrokerConnections
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import ConnectError, RequestError
from tests.support.loops import VirtualTimeLoop

_ADDRESS = "host:10911"


class _Connection:
    """Records sent requests."""

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}
        self.sent: list[tuple[int, float]] = []

    def send_frame(self, opaque: int, frame: bytes, timeout_seconds: float, reply: object) -> None:
        self.sent.append((opaque, timeout_seconds))


class _Client:
    """Connects when a test lets it."""

    def __init__(self) -> None:
        self.connection = _Connection()
        self.connecting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def existing(self, address: str) -> None:
        return None

    async def connect(self, address: str) -> _Connection:
        await self.connecting
        return self.connection


async def _send_heartbeat(address: str) -> None:
    pass


def _connections() -> tuple[BrokerConnections, _Client]:
    client = _Client()
    return BrokerConnections(client, _send_heartbeat), client  # type: ignore[arg-type]


def _reply() -> asyncio.Future[RemotingCommand | None]:
    return asyncio.get_running_loop().create_future()


def _run(test: object) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(test)  # type: ignore[arg-type]


def test_the_wait_for_a_connection_ends_with_the_request_timeout() -> None:
    async def test() -> None:
        connections, client = _connections()
        loop = asyncio.get_running_loop()
        began, short, long = loop.time(), _reply(), _reply()
        connections.post(_ADDRESS, 1, b"", 1.0, short)
        connections.post(_ADDRESS, 2, b"", 5.0, long)
        with pytest.raises(ConnectError, match=r"no connection to host:10911 within 1 s: not sent"):
            await short
        assert loop.time() - began == pytest.approx(1.0)
        assert not long.done()

        client.connecting.set_result(None)
        await asyncio.sleep(0.5)
        ((opaque, timeout_seconds),) = client.connection.sent
        assert opaque == 2, "expired requests are not sent"
        assert timeout_seconds == pytest.approx(4.0)
        await connections.stop()

    _run(test())


def test_a_failed_connection_fails_all_waiting_requests() -> None:
    async def test() -> None:
        connections, client = _connections()
        replies = [_reply(), _reply()]
        for number, reply in enumerate(replies):
            connections.post(_ADDRESS, number, b"", 3.0, reply)
        client.connecting.set_exception(ConnectError("refused"))
        for reply in replies:
            with pytest.raises(RequestError, match="refused"):
                await reply
        await connections.stop()

    _run(test())
