"""The network between the hosts of a test does what it is told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import cast

import pytest

from tests.cluster.hosts import need_hosts
from tests.cluster.network import Network
from tests.cluster.switch import Fault, Rules, route_of

_A, _B = "10.77.0.1", "10.77.0.2"
_SEED = 7


def _packet(source: str, to: str, content: bytes = b"") -> bytes:
    return b"\x45" + bytes(11) + socket.inet_aton(source) + socket.inet_aton(to) + content


def test_a_packet_goes_to_its_destination() -> None:
    rules = Rules([_A, _B], _SEED)
    assert route_of(_packet(_A, _B)) == (_A, _B)
    assert rules.take(_packet(_A, _B), 0.0) == _B
    assert rules.take(_packet(_A, "10.77.0.9"), 0.0) is None
    assert rules.take(b"\x60" + bytes(39), 0.0) is None  # IPv6
    assert rules.counts[_A, _B].forwarded == 1


def test_a_cut_of_one_direction_leaves_the_other() -> None:
    rules = Rules([_A, _B], _SEED)
    rules.set({(_A, _B): Fault(is_cut=True)})
    assert rules.take(_packet(_A, _B), 0.0) is None
    assert rules.take(_packet(_B, _A), 0.0) == _A
    rules.set({})
    assert rules.take(_packet(_A, _B), 0.0) == _B
    assert (rules.counts[_A, _B].cut, rules.counts[_A, _B].forwarded) == (1, 1)


def test_loss_takes_its_share_and_the_same_packets_for_the_same_seed() -> None:
    def taken(seed: int) -> list[bool]:
        rules = Rules([_A, _B], seed)
        rules.set({(_A, _B): Fault(loss=0.3)})
        return [rules.take(_packet(_A, _B), 0.0) is None for _ in range(10_000)]

    assert taken(1) == taken(1) != taken(2)
    assert 2_800 < sum(taken(1)) < 3_200


def test_delayed_packets_come_in_order_and_not_before_their_time() -> None:
    rules = Rules([_A, _B], _SEED)
    rules.set({(_A, _B): Fault(delay_seconds=0.2)})
    for number in range(3):
        assert rules.take(_packet(_A, _B, b"%d" % number), 1.0) is None
    assert rules.wait_seconds(1.0) == pytest.approx(0.2)
    assert rules.due(1.1) == []
    assert [due.packet[-1:] for due in rules.due(1.21)] == [b"0", b"1", b"2"]
    assert rules.wait_seconds(1.21) is None


def test_more_delayed_packets_than_the_bound_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster.switch._MOST_DELAYED", 2)
    rules = Rules([_A, _B], _SEED)
    rules.set({(_A, _B): Fault(delay_seconds=0.2)})
    for _ in range(3):
        rules.take(_packet(_A, _B), 1.0)
    assert rules.counts[_A, _B].overflowed == 1
    assert len(rules.due(2.0)) == 2


# --- on real hosts ---


@pytest.fixture
def network() -> Iterator[Network]:
    need_hosts()
    with Network(["a", "b"], _SEED) as network:
        yield network


class _Echo(asyncio.Protocol):
    """Returns what it gets."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def test_faults_show_in_tcp_connections_between_hosts(network: Network) -> None:
    one, other = network.hosts["a"], network.hosts["b"]
    listening, connecting, echo = other.socket(), one.socket(), _Echo()
    listening.bind((other.address, 9000))
    connecting.setblocking(False)
    server = await asyncio.get_running_loop().create_server(lambda: echo, sock=listening)
    await asyncio.get_running_loop().sock_connect(connecting, (other.address, 9000))
    reader, writer = await asyncio.open_connection(sock=connecting)

    async def seconds_of_echo(size: int) -> float:
        began = time.monotonic()
        writer.write(b"x" * size)
        async with asyncio.timeout(60):
            await reader.readexactly(size)
        return time.monotonic() - began

    try:
        assert await seconds_of_echo(1_000_000) < 5

        network.set(dict.fromkeys(network.both("a"), Fault(delay_seconds=0.05)))
        assert await seconds_of_echo(1) >= 0.1

        network.set({("a", "b"): Fault(is_cut=True)})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(seconds_of_echo(1), 0.3)
        counts = network.set(dict.fromkeys(network.both("a"), Fault(loss=0.2)))
        assert counts["a", "b"].cut > 0
        assert counts["b", "a"].cut == 0
        await asyncio.wait_for(reader.readexactly(1), 60)  # retransmitted
        await seconds_of_echo(50_000)
        assert network.heal()["a", "b"].lost > 0
    finally:
        server.close()
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(echo.ended.wait(), 20)
