"""Registration with name servers: at once, again and again, and whatever one of them does."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rmq_broker.registration.announcements import BrokerIdentity
from rmq_broker.registration.metrics import RegistrationCollector
from rmq_broker.registration.registrar import Registrar
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.register import RegisterBrokerBody
from rmq_remoting.bodies.route import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    TopicRouteData,
)
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.broker_tables import BrokerTables
from tests.support.ports import free_port
from tests.support.static_topics import item, mapping
from tests.support.waiting import until

_REGISTERED = "registered with name server"
_IDENTITY = BrokerIdentity("DefaultCluster", "broker-a", 0, "192.0.2.9:10911", "192.0.2.9:10912")


class _NameServer:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.known_version: DataVersion | None = None
        self.order_topics: dict[str, str] = {}
        self.refusals = 0
        self.silent = False
        self.dead: set[Connection] = set()  # connections of which nothing arrives any more
        tier = InlineTier("all", capacity=1000, max_wait_ms=60_000)
        # The address that it keeps for broker-a; None: it takes those that register.
        self.kept_address: str | None = None
        self.addresses: dict[int, str] = {}
        self.knows_members = True
        codes = (103, 104, 217, 322, 901, 904)
        dispatcher = Dispatcher()
        dispatcher.register(codes, self._answer, tier)
        self.server = RemotingServer(dispatcher)
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def of_code(self, code: RequestCode) -> list[RemotingCommand]:
        return [request for request in self.requests if request.code == code]

    def registrations(self) -> list[RegisterBrokerBody]:
        """The bodies of all registrations, checked against their headers."""
        bodies = []
        for request in self.of_code(RequestCode.REGISTER_BROKER):
            header = RegisterBrokerRequestHeader.decode(request.ext_fields)
            assert header.body_crc32 == zlib.crc32(request.body) & 0x7FFFFFFF
            decode = RegisterBrokerBody.decode_compressed if header.compressed else RegisterBrokerBody.decode
            bodies.append(decode(request.body))
        return bodies

    def tables(self) -> list[set[str]]:
        """The names of the topics of each registration."""
        return [set(body.topic_config_serialize_wrapper.topic_config_table) for body in self.registrations()]

    def _answer(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if connection in self.dead:
            return None
        self.requests.append(request)
        if self.silent:
            return None
        if request.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            return self._members(request)
        if self.refusals:
            self.refusals -= 1
            return request.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        fields, body = {}, b""
        if request.code == RequestCode.QUERY_DATA_VERSION:
            fields = {"changed": "false" if self.known_version else "true"}
            body = self.known_version.encode() if self.known_version else b""
        if request.code == RequestCode.REGISTER_BROKER:
            header = RegisterBrokerRequestHeader.decode(request.ext_fields)
            self.addresses[header.broker_id] = self.kept_address or header.broker_addr
            body = KVTable(table=self.order_topics).encode() if self.order_topics else b""
        return request.response(ResponseCode.SUCCESS, ext_fields=fields, body=body)

    def _members(self, request: RemotingCommand) -> RemotingCommand:
        if not self.knows_members:
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 901 not supported")
        group = BrokerMemberGroup(broker_addrs=self.addresses, broker_name="broker-a")
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return request.response(ResponseCode.SUCCESS, body=body.encode())


@asynccontextmanager
async def _name_server(port: int = 0) -> AsyncIterator[_NameServer]:
    name_server = _NameServer()
    name_server.port = await name_server.server.start("127.0.0.1", port)
    try:
        yield name_server
    finally:
        await name_server.server.stop()


class _Broker(BrokerTables):
    def __init__(self, addresses: str, **keys: object) -> None:
        super().__init__(namesrvAddr=addresses, **keys)
        self.registrar = Registrar(_IDENTITY, self.settings, self.settings, self.topics)


@asynccontextmanager
async def _broker(*addresses: str, **keys: object) -> AsyncIterator[_Broker]:
    broker = _Broker(";".join(addresses), **keys)
    running = asyncio.create_task(broker.registrar.run())
    try:
        yield broker
    finally:
        running.cancel()
        await asyncio.wait([running])
        await broker.registrar.stop()


def _logged(caplog: pytest.LogCaptureFixture, beginning: str) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    return [message for message in found if message.startswith(beginning)]


@pytest.fixture
def registration_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "rmq.broker.registration")
    return caplog


def _topic(name: str, **members: object) -> TopicConfig:
    return TopicConfig.model_validate({"topic_name": name, **members})


@pytest.mark.each_loop
async def test_everything_is_registered_and_unregistered() -> None:
    async with _name_server() as name_server:
        async with _broker(name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            (request,) = name_server.of_code(RequestCode.REGISTER_BROKER)
            header = RegisterBrokerRequestHeader.decode(request.ext_fields)
            assert header.broker_addr == "192.0.2.9:10911"
            assert header.ha_server_addr == "192.0.2.9:10912"
            assert (header.broker_name, header.cluster_name, header.broker_id) == (
                "broker-a",
                "DefaultCluster",
                0,
            )
            (body,) = name_server.registrations()
            wrapper = body.topic_config_serialize_wrapper
            assert wrapper.topic_config_table == {
                config.topic_name: config for config in broker.topics.configs()
            }
            assert wrapper.data_version == broker.topics.data_version
        await until(lambda: name_server.of_code(RequestCode.UNREGISTER_BROKER))
        (goodbye,) = name_server.of_code(RequestCode.UNREGISTER_BROKER)
        assert goodbye.is_oneway
        assert UnRegisterBrokerRequestHeader.decode(goodbye.ext_fields).broker_name == "broker-a"


@pytest.mark.parametrize("keys", [{}, {"compressedRegister": "true"}])
async def test_a_changed_topic_is_registered_at_once_and_alone(keys: dict[str, str]) -> None:
    async with _name_server() as name_server, _broker(name_server.address, **keys) as broker:
        await broker.registrar.wait_registered(5)
        broker.topics.update_all([(_topic("A"), {}), (_topic("B", perm=4), {})])
        assert await broker.registrar.announced()
        assert name_server.tables()[1:] == [{"A", "B"}]
        wrapper = name_server.registrations()[1].topic_config_serialize_wrapper
        assert wrapper.data_version == broker.topics.data_version
        assert wrapper.topic_config_table["B"] == broker.topics.get("B")


async def test_a_changed_topic_can_be_registered_by_request_of_its_own() -> None:
    async with (
        _name_server() as name_server,
        _broker(name_server.address, enableSingleTopicRegister="true") as broker,
    ):
        await broker.registrar.wait_registered(5)
        broker.topics.update(_topic("A", perm=4, write_queue_nums=3))
        assert await broker.registrar.announced()
        (request,) = name_server.of_code(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
        assert request.ext_fields["topic"] == "A"
        (queues,) = TopicRouteData.decode(request.body).queue_datas
        assert (queues.broker_name, queues.perm, queues.write_queue_nums) == ("broker-a", 4, 3)


async def test_changes_during_a_registration_are_sent_together() -> None:
    async with _name_server() as name_server, _broker(name_server.address) as broker:
        await broker.registrar.wait_registered(5)
        for number in range(20):
            broker.topics.update(_topic(f"T{number}"))
        assert await broker.registrar.announced()
        assert len(name_server.registrations()) <= 3
        assert set().union(*name_server.tables()[1:]) == {f"T{number}" for number in range(20)}


@pytest.mark.parametrize("why", ["deleted", "many", "broker's permission"])
async def test_changes_that_need_a_full_registration(why: str) -> None:
    async with _name_server() as name_server, _broker(name_server.address) as broker:
        broker.topics.update(_topic("A"))
        await broker.registrar.wait_registered(5)
        await broker.registrar.announced()
        if why == "deleted":
            broker.topics.delete(["A"])
        elif why == "many":
            broker.topics.update_all([(_topic(f"T{number}"), {}) for number in range(100)])
        else:
            broker.settings.broker_permission = 4
            broker.topics.next_data_version()
        assert await broker.registrar.announced()
        assert name_server.tables()[-1] == {config.topic_name for config in broker.topics.configs()}
        table = name_server.registrations()[-1].topic_config_serialize_wrapper.topic_config_table
        assert ("A" in table) == (why != "deleted")
        assert table["TBW102"].perm == (4 if why == "broker's permission" else 7)


async def test_dead_and_hanging_name_servers_do_not_delay_others() -> None:
    async with _name_server() as hanging, _name_server() as name_server:
        hanging.silent = True
        dead = f"127.0.0.1:{free_port()}"
        async with _broker(dead, hanging.address, name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            broker.topics.update(_topic("A"))
            assert await broker.registrar.announced()
            assert name_server.tables()[-1] == {"A"}
            states = [link.is_registered for link in broker.registrar.links]
            assert states == [False, False, True]
            assert broker.registrar.links[0].failures > 0


async def test_without_a_name_server_there_is_no_registration() -> None:
    async with _broker() as broker:
        assert not await broker.registrar.wait_registered(0.01)
        assert await broker.registrar.announced()
    async with _broker(f"127.0.0.1:{free_port()}") as broker:
        assert not await broker.registrar.wait_registered(0.05)
        assert await broker.registrar.announced()


async def test_a_restarted_name_server_gets_a_full_registration() -> None:
    async with _name_server() as first, _broker(first.address) as broker:
        await broker.registrar.wait_registered(5)
        broker.topics.update(_topic("A"))
        await first.server.stop()
        await until(lambda: not broker.registrar.links[0].is_registered)
        async with _name_server(first.port) as second:
            await until(lambda: broker.registrar.links[0].is_registered)
            assert "A" in second.tables()[0] and len(second.tables()[0]) == len(broker.topics)


async def test_a_lost_connection_is_reconnected_at_once() -> None:
    async with _name_server() as name_server, _broker(name_server.address) as broker:
        await broker.registrar.wait_registered(5)
        for connection in list(name_server.server.connections):
            connection.abort()
        await until(lambda: len(name_server.registrations()) == 2)
        assert name_server.tables()[0] == name_server.tables()[1]


async def _seconds_until(condition: Callable[[], bool]) -> float:
    """Wait until the condition is true; return for how long. For virtual time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not condition():
        assert loop.time() - began < 300
        await asyncio.sleep(0.5)
    return loop.time() - began


@pytest.mark.virtual_time
async def test_a_connection_that_is_dead_without_notice_is_replaced() -> None:
    """The broker notices it by the time-out of its next registration."""
    async with _name_server() as name_server, _broker(name_server.address) as broker:
        await broker.registrar.wait_registered(5)
        link = broker.registrar.links[0]
        name_server.dead = set(name_server.server.connections)
        period_and_timeout = (30 + 24) * 1.0
        assert await _seconds_until(lambda: not link.is_registered) <= period_and_timeout + 1
        assert await _seconds_until(lambda: link.is_registered) < 5
        assert (len(name_server.registrations()), link.failures) == (2, 1)


@pytest.mark.virtual_time
async def test_one_of_two_name_servers_is_away_for_ten_minutes(
    registration_log: pytest.LogCaptureFixture,
) -> None:
    """One warning, bounded retries, and a registration with everything soon after its return."""
    async with (
        _name_server() as first,
        _name_server() as other,
        _broker(first.address, other.address) as broker,
    ):
        away, there = broker.registrar.links
        await _seconds_until(lambda: away.is_registered and there.is_registered)
        registration_log.clear()
        await first.server.stop()
        topics = len(broker.topics)
        for number in range(5):
            broker.topics.update(_topic(f"T{number}"))
            await asyncio.sleep(120)
            assert not away.is_registered
            assert there.is_registered and there.announced_version == broker.topics.version
        assert 600 / 5 - 10 <= away.failures <= 600 / 5 + 10
        assert there.failures == 0
        (warning,) = _logged(registration_log, "not registered with name server")
        assert first.address in warning
        async with _name_server(first.port) as again:
            assert await _seconds_until(lambda: away.is_registered) < 10
            assert len(again.tables()[0]) == topics + 5
        assert len(_logged(registration_log, _REGISTERED)) == 1


async def test_a_refused_registration_is_retried() -> None:
    async with _name_server() as name_server:
        name_server.refusals = 1
        async with _broker(name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            assert len(name_server.registrations()) == 2
            # A name server that has forgotten the broker refuses a single topic: it then gets all of them.
            name_server.refusals = 1
            broker.topics.update(_topic("A"))
            await until(lambda: len(name_server.registrations()) == 4)
            assert name_server.tables()[2] == {"A"}
            assert len(name_server.tables()[3]) == len(broker.topics)


async def test_order_topics_are_taken_from_the_name_server() -> None:
    async with _name_server() as name_server:
        name_server.order_topics = {"A": "broker-a:4", "Unknown": "broker-a:4"}
        broker = _Broker(name_server.address)
        broker.topics.update(_topic("A"))
        running = asyncio.create_task(broker.registrar.run())
        await broker.registrar.wait_registered(5)
        assert broker.topics.is_order("A")
        assert await broker.registrar.announced()
        running.cancel()
        await asyncio.wait([running])
        await broker.registrar.stop()


@pytest.mark.virtual_time
async def test_registration_is_repeated_every_thirty_seconds() -> None:
    async with _name_server() as name_server, _broker(name_server.address) as broker:
        await broker.registrar.wait_registered(5)
        for repetitions in range(1, 4):
            assert len(name_server.registrations()) == repetitions
            await asyncio.sleep(30.1)
        assert len(set(map(len, name_server.tables()))) == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("newest", [True, False])
async def test_without_force_only_outdated_name_servers_get_a_registration(newest: bool) -> None:
    keys = {"forceRegister": "false"}
    async with _name_server() as name_server, _broker(name_server.address, **keys) as broker:
        await broker.registrar.wait_registered(5)
        name_server.known_version = broker.topics.data_version if newest else DataVersion(counter=99)
        await asyncio.sleep(60.2)
        assert len(name_server.of_code(RequestCode.QUERY_DATA_VERSION)) == 2
        assert len(name_server.registrations()) == (1 if newest else 3)


async def test_registration_in_parts() -> None:
    keys = {"enableSplitRegistration": "true", "splitRegistrationSize": "5"}
    async with _name_server() as name_server, _broker(name_server.address, **keys) as broker:
        await broker.registrar.wait_registered(5)
        tables = name_server.tables()
        assert len(tables) == -(-len(broker.topics) // 5) and max(map(len, tables)) == 5
        assert set().union(*tables) == {config.topic_name for config in broker.topics.configs()}
        versions = [
            body.topic_config_serialize_wrapper.data_version.counter for body in name_server.registrations()
        ]
        assert versions == sorted(set(versions))
        assert versions[-1] == broker.topics.data_version.counter


async def test_heartbeats_are_sent_if_enabled() -> None:
    async with _name_server() as name_server:
        async with _broker(name_server.address) as broker:
            await broker.registrar.wait_registered(5)
            broker.registrar.heartbeat()
        keys = {"enableSlaveActingMaster": "true", "compatibleWithOldNameSrv": "false"}
        async with _broker(name_server.address, **keys) as broker:
            await broker.registrar.wait_registered(5)
            broker.registrar.heartbeat()
            await until(lambda: name_server.of_code(RequestCode.BROKER_HEARTBEAT))
            (beat,) = name_server.of_code(RequestCode.BROKER_HEARTBEAT)
            assert beat.is_oneway
            assert BrokerHeartbeatRequestHeader.decode(beat.ext_fields).broker_addr == "192.0.2.9:10911"
            request = name_server.of_code(RequestCode.REGISTER_BROKER)[-1]
            header = RegisterBrokerRequestHeader.decode(request.ext_fields)
            assert (header.enable_acting_master, header.heartbeat_timeout_ms) == (True, 10_000)
            broker.settings.compatible_with_old_name_srv = True
            broker.registrar.heartbeat()
            await until(lambda: name_server.of_code(RequestCode.QUERY_DATA_VERSION))


# --- another broker of the same name ---

_OTHER = "192.0.2.7:10911"
_OWN = "192.0.2.9:10911"


@pytest.mark.virtual_time
async def test_a_registration_that_the_name_server_ignores_is_an_error(
    registration_log: pytest.LogCaptureFixture,
) -> None:
    async with _name_server() as name_server:
        name_server.kept_address = _OTHER
        name_server.addresses = {0: _OTHER}
        async with _broker(name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            (link,) = broker.registrar.links
            assert not link.is_registered and broker.registrar.conflicts == [_OTHER]
            await asyncio.sleep(60.2)
            assert len(name_server.registrations()) == 3
            (error,) = _logged(registration_log, "route conflict")
            assert f"broker=broker-a holder={_OTHER} address={_OWN}" in error
            assert "ignored this broker's registration" in error and "Set another brokerName" in error
            assert not _logged(registration_log, _REGISTERED)

            name_server.kept_address = None
            name_server.addresses.clear()
            await asyncio.sleep(30.1)
            assert link.is_registered and broker.registrar.conflicts == []
            assert len(_logged(registration_log, _REGISTERED)) == 1


@pytest.mark.virtual_time
async def test_a_route_taken_over_is_an_error_until_the_other_broker_stays_away(
    registration_log: pytest.LogCaptureFixture,
) -> None:
    async with _name_server() as name_server:
        name_server.addresses = {0: _OTHER}
        async with _broker(name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            (link,) = broker.registrar.links
            assert link.is_registered and broker.registrar.conflicts == [_OTHER]
            (error,) = _logged(registration_log, "route conflict")
            assert "replaced its address by this broker's" in error
            assert not _logged(registration_log, _REGISTERED)
            await asyncio.sleep(30.1)
            assert broker.registrar.conflicts == []
            assert len(_logged(registration_log, _REGISTERED)) == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("keys", [{}, {"forceRegister": "false"}])
async def test_a_route_lost_to_another_broker_is_an_error(
    keys: dict[str, str], registration_log: pytest.LogCaptureFixture
) -> None:
    async with _name_server() as name_server, _broker(name_server.address, **keys) as broker:
        await broker.registrar.wait_registered(5)
        name_server.known_version = broker.topics.data_version
        assert broker.registrar.conflicts == []
        name_server.addresses[0] = _OTHER
        await asyncio.sleep(30.1)
        assert broker.registrar.conflicts == [_OTHER]
        assert len(_logged(registration_log, "route conflict")) == 1
        assert name_server.addresses == {0: _OWN}, "as Apache's broker, it goes on registering"


async def test_name_servers_that_cannot_be_asked_are_registered_with(
    registration_log: pytest.LogCaptureFixture,
) -> None:
    async with _name_server() as name_server:
        name_server.knows_members = False
        name_server.addresses = {0: _OTHER}
        async with _broker(name_server.address) as broker:
            assert await broker.registrar.wait_registered(5)
            assert broker.registrar.links[0].is_registered
            assert len(_logged(registration_log, _REGISTERED)) == 1


async def test_metrics_tell_registration_and_conflict() -> None:
    async with _name_server() as taken, _name_server() as free:
        taken.kept_address = _OTHER
        taken.addresses = {0: _OTHER}
        async with _broker(taken.address, free.address) as broker:
            await until(lambda: broker.registrar.links[1].is_registered and broker.registrar.conflicts)
            found = {
                family.name: dict(family.series)
                for family in RegistrationCollector(broker.registrar).collect()
            }
            assert found == {
                "rmq_name_server_registered": {(taken.address,): 0, (free.address,): 1},
                "rmq_name_server_route_conflict": {(taken.address,): 1, (free.address,): 0},
            }


@pytest.mark.parametrize("keys", [{}, {"compressedRegister": "true"}, {"enableSingleTopicRegister": "true"}])
async def test_a_static_topic_is_registered_with_its_logical_queues(keys: dict[str, str]) -> None:
    async with _name_server() as name_server, _broker(name_server.address, **keys) as broker:
        await broker.registrar.wait_registered(5)
        broker.topics.update_static(_topic("S"), mapping("broker-a", {3: [item("broker-a", 1)]}, total=4))
        assert await broker.registrar.announced()
        broker.topics.delete(["TBW102"])  # needs a registration of all topics
        assert await broker.registrar.announced()
        for body in name_server.registrations()[1:]:
            infos = body.topic_config_serialize_wrapper.topic_queue_mapping_info_map
            assert {name: (info.current_id_map, info.total_queues) for name, info in infos.items()} == {
                "S": ({3: 1}, 4)
            }
