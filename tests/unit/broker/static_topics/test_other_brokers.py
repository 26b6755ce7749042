"""Requests to other brokers of a static topic: their addresses, time-outs and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rmq_broker.static_topics.other_brokers import OtherBrokers
from rmq_remoting.bodies.route import BrokerData, TopicRouteData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, ConnectError, RequestTimeout
from tests.support.broker_settings import broker_settings


class _Client(RemotingClient):
    """A client whose peers are functions by address; `asked` holds the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[str, Callable[[RemotingCommand], RemotingCommand]] = {"ns1": self._route}
        self.route, self.broker_id = {"B": "b:1"}, 0
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.closed: list[str] = []

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        self.asked.append((address, command))
        await asyncio.sleep(0)
        peer = self.peers.get(address)
        if peer is None:
            raise ConnectError(f"cannot connect to {address}")
        return peer(command)

    def close_address(self, address: str) -> None:
        self.closed.append(address)

    def _route(self, command: RemotingCommand) -> RemotingCommand:
        brokers = [
            BrokerData(broker_name=name, broker_addrs={self.broker_id: address})
            for name, address in self.route.items()
        ]
        return command.response(ResponseCode.SUCCESS, body=TopicRouteData(broker_datas=brokers).encode())


def _answers(command: RemotingCommand) -> RemotingCommand:
    return command.response(ResponseCode.SUCCESS, ext_fields={"offset": "7"})


def _is_late(command: RemotingCommand) -> RemotingCommand:
    raise RequestTimeout("late")


class _Brokers:
    def __init__(self, *name_servers: str) -> None:
        self.now = 0.0
        self.client = _Client()
        self.client.peers["b:1"] = _answers
        self.others = OtherBrokers(broker_settings(), self.client, name_servers, lambda: self.now)

    async def ask(self) -> RemotingCommand:
        return await self.others.ask("S", "B", RequestCode.GET_MAX_OFFSET, {"topic": "S"})


async def test_the_address_comes_from_the_route_and_is_kept_for_a_while() -> None:
    brokers = _Brokers("ns0", "ns1")  # the first one is away
    assert (await brokers.ask()).ext_fields == {"offset": "7"}
    await brokers.ask()
    assert [address for address, _ in brokers.client.asked] == ["ns0", "ns1", "b:1", "b:1"]
    assert brokers.client.asked[-1][1].ext_fields == {"topic": "S", "bname": "B"}
    brokers.now = 31.0
    await brokers.ask()
    assert len(brokers.client.asked) == 7


async def test_a_failed_connection_asks_for_the_address_again() -> None:
    brokers = _Brokers("ns1")
    await brokers.ask()
    brokers.client.route["B"] = "b:2"
    del brokers.client.peers["b:1"]
    with pytest.raises(CommandError, match=r"broker B, .* cannot be asked: cannot connect to b:1") as refused:
        await brokers.ask()
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    brokers.client.peers["b:2"] = _answers
    await brokers.ask()
    assert brokers.client.asked[-1][0] == "b:2"


async def test_a_connection_is_given_up_after_three_late_responses() -> None:
    brokers = _Brokers("ns1")
    brokers.client.peers["b:1"] = _is_late
    for closed in ([], [], ["b:1"]):
        with pytest.raises(CommandError, match=r"no response within 3000 ms \(forwardTimeout\)"):
            await brokers.ask()
        assert brokers.client.closed == closed
    brokers.client.peers["b:1"] = _answers
    await brokers.ask()


@pytest.mark.parametrize(
    ("name_servers", "route", "problem"),
    [
        ((), {}, r"the route of static topic S is unknown: no name server is set \(namesrvAddr\)"),
        (("ns0",), {}, "the route of static topic S is unknown: cannot connect to ns0"),
        (("ns1",), {"A": "a:1"}, "broker B, .* is not in the topic's route"),
    ],
)
async def test_a_broker_that_cannot_be_found_is_named(
    name_servers: tuple[str, ...], route: dict[str, str], problem: str
) -> None:
    brokers = _Brokers(*name_servers)
    brokers.client.route = route
    with pytest.raises(CommandError, match=problem):
        await brokers.ask()


async def test_a_replica_is_asked_while_its_master_is_away() -> None:
    brokers = _Brokers("ns1")
    brokers.client.broker_id = 2
    assert (await brokers.ask()).ext_fields == {"offset": "7"}
