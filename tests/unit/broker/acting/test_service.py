"""A replica acts while it has the smallest id and does not hear its master."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rmq_broker.acting.hand_back import HandBack
from rmq_broker.acting.service import ActingService
from rmq_broker.acting.smallest_broker import SmallestBroker
from rmq_broker.master_services import MasterServices, MasterServicesError
from rmq_broker.registration.announcements import BrokerIdentity
from rmq_broker.registration.registrar import Registrar
from rmq_broker.replication.following import FollowerStatus
from rmq_broker.replication.service import ReplicationService
from rmq_remoting.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import ConnectError
from tests.support.broker_tables import BrokerTables

_IDENTITY = BrokerIdentity("C", "broker-a", 1, "b:10911", "b:10912")


class _NameServers(RemotingClient):
    """Name servers that know the members of the group; `is_old`: as before 5.0."""

    def __init__(self) -> None:
        super().__init__()
        self.members: dict[int, str] = {}
        self.is_old = False
        self.away: set[str] = set()

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        if address in self.away:
            raise ConnectError(f"cannot connect to {address}: refused")
        if command.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            if self.is_old:
                return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
            group = BrokerMemberGroup(broker_addrs=self.members, broker_name="broker-a")
            body = GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()
            return command.response(ResponseCode.SUCCESS, body=body)
        assert command.ext_fields["topic"] == "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        broker = BrokerData(broker_name="broker-a", broker_addrs=self.members)
        return command.response(ResponseCode.SUCCESS, body=TopicRouteData(broker_datas=[broker]).encode())


class _Services:
    """The switch of a master's services."""

    def __init__(self) -> None:
        self.are_running = False
        self.switches: list[str] = []
        self.problem = ""

    async def start(self) -> None:
        if self.problem:
            raise MasterServicesError(self.problem)
        self.are_running = True
        self.switches.append("start")

    async def stop(self) -> None:
        self.are_running = False
        self.switches.append("stop")


class _Replica:
    """A replica of broker-a with the id 1 and two name servers."""

    def __init__(self) -> None:
        tables = BrokerTables(enableSlaveActingMaster="true", brokerRole="SLAVE", brokerId=1)
        self.clock, settings = tables.clock, tables.settings
        self.name_servers, self.services = _NameServers(), _Services()
        registrar = Registrar(_IDENTITY, settings, settings, tables.topics)
        registrar.client = self.name_servers
        registrar.links = [SimpleNamespace(address=name) for name in ("n1", "n2")]  # type: ignore[misc]
        self.following = FollowerStatus()
        replication = SimpleNamespace(follower=SimpleNamespace(status=self.following))
        clock = self.clock
        self.smallest = SmallestBroker(1, is_enabled=True, clock=lambda: clock() / 1000)
        self.acting = ActingService(
            settings,
            self.smallest,
            cast(MasterServices, self.services),
            registrar,
            cast(ReplicationService, replication),
            cast(HandBack, None),
            self.clock,
        )


@pytest.fixture
async def replica() -> _Replica:
    return _Replica()


@pytest.mark.parametrize("is_old", [False, True])
async def test_it_acts_while_the_master_is_away(replica: _Replica, is_old: bool) -> None:
    replica.name_servers.is_old = is_old
    for members, acts in (
        ({0: "a", 1: "b"}, False),
        ({1: "b"}, True),
        ({1: "b", 2: "c"}, True),
        ({}, True),
        ({0: "a", 1: "b"}, False),
    ):
        replica.name_servers.members = members
        await replica.acting.look()
        assert replica.services.are_running is replica.smallest.acts is acts
    assert replica.services.switches == ["start", "stop"]


async def test_the_next_name_server_is_asked_if_one_is_away(replica: _Replica) -> None:
    replica.name_servers.members = {1: "b"}
    replica.name_servers.away = {"n1"}
    await replica.acting.look()
    assert replica.smallest.acts
    replica.name_servers.away = {"n1", "n2"}
    await replica.acting.look()
    assert replica.smallest.acts


async def test_it_does_not_act_while_it_hears_its_master(replica: _Replica) -> None:
    replica.name_servers.members = {1: "b"}
    replica.following.is_connected, replica.following.last_read_ms = True, replica.clock()
    await replica.acting.look()
    assert not replica.smallest.acts
    replica.clock.pass_seconds(9.9)  # twice haSendHeartbeatInterval
    await replica.acting.look()
    assert not replica.smallest.acts
    replica.clock.pass_seconds(0.1)
    await replica.acting.look()
    assert replica.smallest.acts
    replica.following.last_read_ms = replica.clock()
    await replica.acting.look()
    assert not replica.smallest.acts


async def test_a_switch_that_fails_is_tried_again(
    replica: _Replica, caplog: pytest.LogCaptureFixture
) -> None:
    replica.name_servers.members = {1: "b"}
    replica.services.problem = "a queue is damaged"
    for _ in range(3):
        await replica.acting.look()
    assert not replica.smallest.acts
    assert [each.message for each in caplog.records if "switch" in each.message] == [
        "switch of the master's services failed, retrying cause=a queue is damaged"
    ]
    replica.services.problem = ""
    await replica.acting.look()
    assert replica.smallest.acts
