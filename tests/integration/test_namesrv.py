"""A whole name server and this project's client, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.register import RegisterBrokerBody
from rmq_remoting.bodies.static_topic import TopicConfigAndMappingSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import encode_frame
from rmq_remoting.server import RemotingServer
from rmq_remoting.tiers import InlineTier
from tests.support.frames import GoldenFrame, decode_one, golden_frames
from tests.support.namesrv import namesrv_configuration, running_namesrv
from tests.support.waiting import until

CLUSTER = "DefaultCluster"
_TIMEOUT_SECONDS = 5.0
_VERSION_4_9_3 = 399


@dataclass(slots=True)
class Asker:
    """A client of one name server that speaks one serialization."""

    client: RemotingClient
    address: str
    serialization: Serialization

    async def ask(
        self, code: RequestCode, body: bytes = b"", *, version: int = 479, **fields: Any
    ) -> RemotingCommand:
        """The response to a request."""
        ext_fields = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand.request(code, ext_fields, body, serialization=self.serialization)
        request.version = version
        return await self.client.request(self.address, request, _TIMEOUT_SECONDS)

    async def get(self, code: RequestCode, body: bytes = b"", **fields: Any) -> RemotingCommand:
        """The response to a request that has to succeed."""
        response = await self.ask(code, body, **fields)
        assert response.code == ResponseCode.SUCCESS, response
        return response

    async def json(self, code: RequestCode, **fields: Any) -> Any:
        """The body of the response to a request that has to succeed."""
        return fastjson.loads((await self.get(code, **fields)).body)

    async def route(self, topic: str) -> Any:
        """The topic's route; None where there is none."""
        response = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert response.code == ResponseCode.SUCCESS, response
        return orjson.loads(response.body)

    async def register(
        self,
        name: str = "broker-a",
        topics: tuple[str, ...] = ("TopicTest", "Other"),
        *,
        broker_id: int = 0,
        counter: int = 1,
        compress: bool = False,
        **fields: Any,
    ) -> RemotingCommand:
        """Register a broker with topics of four queues."""
        body = registration(topics, counter)
        return await self.ask(
            RequestCode.REGISTER_BROKER,
            body.encode_compressed() if compress else body.encode(),
            **{
                **broker(name, broker_id),
                "haServerAddr": f"{name}:10912",
                "compressed": str(compress).lower(),
                **fields,
            },
        )


def broker(name: str = "broker-a", broker_id: int = 0) -> dict[str, Any]:
    """The fields that say which broker it is."""
    return {
        "clusterName": CLUSTER,
        "brokerName": name,
        "brokerId": broker_id,
        "brokerAddr": f"{name}-{broker_id}:10911",
    }


def registration(topics: tuple[str, ...], counter: int) -> RegisterBrokerBody:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(counter=counter, timestamp=1_700_000_000_000),
        topic_config_table={
            topic: TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4) for topic in topics
        },
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


@asynccontextmanager
async def asking(address: str, serialization: Serialization = Serialization.JSON) -> AsyncIterator[Asker]:
    """A client with a connection of its own."""
    client = RemotingClient()
    try:
        yield Asker(client, address, serialization)
    finally:
        await client.stop()


@pytest.fixture(params=list(Serialization), ids=["json", "binary"])
def serialization(request: pytest.FixtureRequest) -> Serialization:
    """Both, one after the other."""
    return Serialization(request.param)


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Namesrv]:
    """A name server with default settings."""
    async with running_namesrv(tmp_path) as server:
        yield server


@pytest.fixture
async def asker(namesrv: Namesrv, serialization: Serialization) -> AsyncIterator[Asker]:
    """A client of it."""
    async with asking(namesrv.address, serialization) as client:
        yield client


def golden(name: str, binary: bool) -> GoldenFrame:
    (frame,) = [row for row in golden_frames() if row.name == name and row.is_binary is binary]
    return frame


# --- routes ---


@pytest.mark.parametrize("name", ["register broker", "register broker, compressed body"])
@pytest.mark.parametrize("binary", [False, True])
async def test_apaches_own_registration_and_the_route_after_it(
    namesrv: Namesrv, name: str, binary: bool
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", namesrv.port)

    async def exchange(frame: bytes) -> RemotingCommand:
        writer.write(frame)
        head = await reader.readexactly(4)
        return decode_one(head + await reader.readexactly(int.from_bytes(head)))

    try:
        # It has a single topic, which counts only when all of the broker's have been registered before.
        early = await exchange(golden(name, binary).as_sent_by_netty)
        assert early.code == ResponseCode.SYSTEM_ERROR
        async with asking(namesrv.address) as other:
            await other.register(brokerAddr="10.0.0.1:10911")
            registered = await exchange(golden(name, binary).as_sent_by_netty)
        assert (registered.code, registered.remark) == (ResponseCode.SUCCESS, None)
        assert int(registered.serialization) == binary
        route = await exchange(golden("get route", binary).as_sent_by_netty)
        assert orjson.loads(route.body) == {
            "brokerDatas": [
                {
                    "brokerAddrs": {"0": "10.0.0.1:10911"},
                    "brokerName": "broker-a",
                    "cluster": CLUSTER,
                    "enableActingMaster": False,
                }
            ],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": "broker-a",
                    "perm": 6,
                    "readQueueNums": 8,
                    "topicSysFlag": 0,
                    "writeQueueNums": 8,
                }
            ],
        }
        version = await exchange(golden("query data version", binary).as_sent_by_netty)
        assert version.ext_fields == {"changed": "false"}
        assert orjson.loads(version.body) == {
            "counter": 5,
            "stateVersion": 0,
            "timestamp": 1_700_000_000_000,
        }
        left = await exchange(golden("unregister broker", binary).as_sent_by_netty)
        assert left.code == ResponseCode.SUCCESS
        route = await exchange(golden("get route", binary).as_sent_by_netty)
        assert route.code == ResponseCode.TOPIC_NOT_EXIST
    finally:
        writer.close()
        await writer.wait_closed()


async def test_old_clients_get_the_dialect_and_new_ones_standard_json(asker: Asker) -> None:
    await asker.register()
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    old = await asker.ask(code, version=_VERSION_4_9_3, topic="TopicTest")
    assert b'"brokerAddrs":{0:"broker-a-0:10911"}' in old.body
    for version, wish in ((_VERSION_4_9_3, "true"), (401, "false"), (479, "false")):
        new = await asker.ask(code, version=version, topic="TopicTest", acceptStandardJsonOnly=wish)
        assert b'"brokerAddrs":{"0":"broker-a-0:10911"}' in new.body


async def test_the_error_for_an_unknown_topic_names_a_remedy(asker: Asker) -> None:
    nobody = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Nothing")
    assert nobody.code == ResponseCode.TOPIC_NOT_EXIST
    assert nobody.remark == "no route for topic Nothing: no broker is registered with this name server"
    await asker.register()
    unknown = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="Nothing")
    assert unknown.remark is not None
    assert "create it (mqadmin updateTopic)" in unknown.remark
    missing = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert missing.remark is not None
    assert "topic" in missing.remark


async def test_order_topics_are_included_if_configured(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path, orderMessageEnable="true") as server,
        asking(server.address) as asker,
    ):
        await asker.get(
            RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="TopicTest", value="broker-a:4"
        )
        registered = await asker.register()
        assert orjson.loads(registered.body) == {"table": {"TopicTest": "broker-a:4"}}
        assert (await asker.route("TopicTest"))["orderTopicConf"] == "broker-a:4"
        assert "orderTopicConf" not in await asker.route("Other")


async def test_route_requests_are_refused_until_brokers_had_time_to_register(tmp_path: Path) -> None:
    now = 0.0
    keys: dict[str, Any] = {"needWaitForService": "true", "waitSecondsForService": "45"}
    async with (
        running_namesrv(tmp_path, clock=lambda: now, **keys) as server,
        asking(server.address) as asker,
    ):
        await asker.register()
        early = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TopicTest")
        assert early.code == ResponseCode.SYSTEM_ERROR
        assert early.remark == ("the name server is not ready: it waits for brokers to register (45 s left)")
        now = 45.0
        assert await asker.route("TopicTest") is not None


async def test_a_client_in_zone_mode_gets_the_brokers_of_its_zone(asker: Asker) -> None:
    await asker.register("near", __ZONE_NAME="z1")
    await asker.register("far", __ZONE_NAME="z2")
    code, topic = RequestCode.GET_ROUTEINFO_BY_TOPIC, "TopicTest"
    both = await asker.json(code, topic=topic, __ZONE_NAME="z1")
    zoned = await asker.json(code, topic=topic, __ZONE_NAME="z1", __ZONE_MODE="true")
    assert [data["brokerName"] for data in both["brokerDatas"]] == ["far", "near"]
    assert [data["brokerName"] for data in zoned["brokerDatas"]] == ["near"]


# --- registration ---


async def test_a_body_with_a_wrong_checksum_is_refused(asker: Asker) -> None:
    refused = await asker.register(bodyCrc32=12345)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark is not None
    assert "checksum" in refused.remark
    assert await asker.route("TopicTest") is None


async def test_a_malformed_body_is_refused_and_the_connection_stays_open(asker: Asker) -> None:
    for body in (b"{", b"\x78\xda broken"):
        refused = await asker.ask(RequestCode.REGISTER_BROKER, body, haServerAddr="", **broker())
        assert refused.code == ResponseCode.SYSTEM_ERROR
    assert (await asker.register()).code == ResponseCode.SUCCESS


async def test_a_compressed_registration_whatever_its_header_says(asker: Asker) -> None:
    await asker.register("broker-a", compress=True)
    await asker.register("broker-b", compress=True, compressed="false")
    assert len((await asker.route("TopicTest"))["brokerDatas"]) == 2


async def test_a_slave_gets_its_master(asker: Asker) -> None:
    await asker.register()
    slave = await asker.register(broker_id=1)
    assert slave.ext_fields == {"haServerAddr": "broker-a:10912", "masterAddr": "broker-a-0:10911"}
    members = await asker.json(
        RequestCode.GET_BROKER_MEMBER_GROUP, clusterName=CLUSTER, brokerName="broker-a"
    )
    assert members == {
        "brokerMemberGroup": {
            "brokerAddrs": {0: "broker-a-0:10911", 1: "broker-a-1:10911"},
            "brokerName": "broker-a",
            "cluster": CLUSTER,
        }
    }


async def test_the_version_of_a_broker_that_is_not_registered_has_changed(asker: Asker) -> None:
    version = DataVersion(counter=1, timestamp=1_700_000_000_000)
    code = RequestCode.QUERY_DATA_VERSION
    unknown = await asker.get(code, version.encode(), **broker())
    assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
    await asker.register()
    assert (await asker.get(code, version.encode(), **broker())).ext_fields == {"changed": "false"}
    newer = version.next(1_700_000_000_001)
    changed = await asker.get(code, newer.encode(), **broker())
    assert (changed.ext_fields, changed.body) == ({"changed": "true"}, version.encode())


async def test_a_closed_connection_removes_its_broker_at_once(namesrv: Namesrv) -> None:
    async with asking(namesrv.address) as watcher:
        async with asking(namesrv.address) as dying:
            await dying.register("broker-a")
            await watcher.register("broker-b")
            assert len((await watcher.route("TopicTest"))["brokerDatas"]) == 2
        route = await watcher.route("TopicTest")
        while len(route["brokerDatas"]) == 2:
            route = await watcher.route("TopicTest")
        assert [data["brokerName"] for data in route["queueDatas"]] == ["broker-b"]


async def test_a_silent_broker_is_removed_and_a_heartbeat_keeps_one(tmp_path: Path) -> None:
    now = 0.0
    async with (
        running_namesrv(tmp_path, clock=lambda: now, scanNotActiveBrokerInterval=1) as server,
        asking(server.address) as silent,
        asking(server.address) as speaking,
    ):
        await silent.register("broker-a")
        await speaking.register("broker-b", heartbeatTimeoutMillis=90_000)
        now = 30.0
        await speaking.get(RequestCode.BROKER_HEARTBEAT, **broker("broker-b"))
        now = 60.0
        await speaking.get(RequestCode.BROKER_HEARTBEAT, **broker("broker-b"))
        assert len((await speaking.route("TopicTest"))["brokerDatas"]) == 2
        now = 121.0
        await speaking.get(RequestCode.BROKER_HEARTBEAT, **broker("broker-b"))
        await until(lambda: silent.client.existing(server.address) is None)
        route = await speaking.route("TopicTest")
        assert [data["brokerName"] for data in route["brokerDatas"]] == ["broker-b"]


async def test_brokers_are_notified_of_another_smallest_id(tmp_path: Path) -> None:
    told: asyncio.Queue[RemotingCommand] = asyncio.Queue()
    dispatcher = Dispatcher()
    dispatcher.register(
        [RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE],
        lambda _, request: told.put_nowait(request),
        InlineTier("test", capacity=10, max_wait_ms=1000),
    )
    slave = RemotingServer(dispatcher)
    port = await slave.start("127.0.0.1", 0)
    keys: dict[str, Any] = {"notifyMinBrokerIdChanged": "true"}
    try:
        async with running_namesrv(tmp_path, **keys) as server, asking(server.address) as asker:
            address = f"127.0.0.1:{port}"
            await asker.register(broker_id=1, brokerAddr=address, enableActingMaster="true")
            await asker.register(broker_id=0, enableActingMaster="true")
            notice = await asyncio.wait_for(told.get(), _TIMEOUT_SECONDS)
            assert notice.is_oneway
            assert notice.ext_fields == {
                "haBrokerAddr": "broker-a:10912",
                "minBrokerAddr": "broker-a-0:10911",
                "minBrokerId": "0",
            }
    finally:
        await slave.stop()


# --- administration ---


async def test_clusters_and_lists(asker: Asker) -> None:
    await asker.register("broker-a", ("T1", "T2"))
    await asker.register("broker-b", ("T2", "T3"))
    clusters = await asker.json(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert clusters["clusterAddrTable"] == {CLUSTER: ["broker-a", "broker-b"]}
    assert clusters["brokerAddrTable"]["broker-b"]["brokerAddrs"] == {0: "broker-b-0:10911"}
    topics = await asker.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert sorted(topics["topicList"]) == ["T1", "T2", "T3"]
    of_cluster = await asker.json(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER)
    assert sorted(of_cluster["topicList"]) == ["T1", "T2", "T3"]
    assert await asker.json(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="none") == {"topicList": []}
    system = await asker.json(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert system == {
        "brokerAddr": "broker-a-0:10911",
        "topicList": [CLUSTER, "broker-a", "broker-b"],
    }


async def test_unit_topics(asker: Asker) -> None:
    await asker.register()
    for name, flag in (("plain", 0), ("unit", 1), ("subscribed", 2), ("both", 3)):
        queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
        body = orjson.dumps({"queueDatas": [{**queues, "topicSysFlag": flag}]})
        await asker.get(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic=name)
    lists = [
        sorted((await asker.json(code))["topicList"])
        for code in (
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        )
    ]
    assert lists == [["both", "unit"], ["both", "subscribed"], ["subscribed"]]


async def test_disabled_lists_are_refused(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"enableAllTopicList": "false", "enableTopicList": "false"}
    async with running_namesrv(tmp_path, **keys) as server, asking(server.address) as asker:
        for code, key in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "enableAllTopicList"),
            (RequestCode.GET_TOPICS_BY_CLUSTER, "enableTopicList"),
            (RequestCode.GET_UNIT_TOPIC_LIST, "enableTopicList"),
        ):
            refused = await asker.ask(code, cluster=CLUSTER)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert refused.remark == f"this list is disabled ({key}=false)"


async def test_topics_are_registered_and_deleted_one_by_one(asker: Asker) -> None:
    await asker.register()
    queues = {"perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 3}
    for name, code in (("broker-a", ResponseCode.SUCCESS), ("broker-x", ResponseCode.SYSTEM_ERROR)):
        body = orjson.dumps({"queueDatas": [{**queues, "brokerName": name}]})
        answer = await asker.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="New")
        assert answer.code == code
    assert (await asker.route("New"))["queueDatas"] == [{**queues, "brokerName": "broker-a"}]
    await asker.get(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="New", clusterName="elsewhere")
    assert await asker.route("New") is not None
    await asker.get(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="New", clusterName=CLUSTER)
    assert await asker.route("New") is None
    await asker.get(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="TopicTest")
    assert await asker.route("TopicTest") is None


async def test_write_permission(asker: Asker) -> None:
    await asker.register()
    wiped = await asker.get(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert (await asker.route("TopicTest"))["queueDatas"][0]["perm"] == 4
    restored = await asker.get(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert restored.ext_fields == {"addTopicCount": "2"}
    assert (await asker.route("TopicTest"))["queueDatas"][0]["perm"] == 6


async def test_key_value_configuration_survives_a_restart(
    tmp_path: Path, serialization: Serialization
) -> None:
    async with running_namesrv(tmp_path) as server, asking(server.address, serialization) as asker:
        await asker.get(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v:1;w:2")
        await asker.get(RequestCode.PUT_KV_CONFIG, namespace="n", key="gone", value="x")
        await asker.get(RequestCode.DELETE_KV_CONFIG, namespace="n", key="gone")
    async with running_namesrv(tmp_path) as server, asking(server.address, serialization) as asker:
        value = await asker.get(RequestCode.GET_KV_CONFIG, namespace="n", key="k")
        assert value.ext_fields == {"value": "v:1;w:2"}
        assert await asker.json(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n") == {
            "table": {"k": "v:1;w:2"}
        }
        missing = await asker.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="gone")
        assert (missing.code, missing.remark) == (
            ResponseCode.QUERY_NOT_FOUND,
            "namespace n has no key gone",
        )
        nowhere = await asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="m")
        assert nowhere.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_change_that_cannot_be_persisted_is_reported(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path, kvConfigPath=tmp_path / "file" / "kvConfig.json") as server,
        asking(server.address) as asker,
    ):
        (tmp_path / "file").write_text("not a folder")
        refused = await asker.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark is not None
        assert refused.remark.startswith("the change is in force but not persisted:")


async def test_settings_are_read_and_changed_over_the_network(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("# ours\nenableTopicList = true\n")
    server = Namesrv(namesrv_configuration(tmp_path, file))
    await server.start()
    try:
        async with asking(server.address) as asker:
            text = (await asker.get(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
            assert "enableTopicList=true\n" in text
            await asker.get(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false\n")
            assert file.read_text() == "# ours\nenableTopicList=false\n"
            refused = await asker.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            for body, code in (
                (b"kvConfigPath=/elsewhere/kvConfig.json", ResponseCode.NO_PERMISSION),
                (b"configBlackList=", ResponseCode.NO_PERMISSION),
                (b"listenPort=1", ResponseCode.INVALID_PARAMETER),
                (b"enableTopicsList=true", ResponseCode.INVALID_PARAMETER),
                (b"enableTopicList=maybe", ResponseCode.INVALID_PARAMETER),
                (b"tls.server.mode=enforcing", ResponseCode.INVALID_PARAMETER),
                (b"\xff=1", ResponseCode.INVALID_PARAMETER),
            ):
                assert (await asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)).code == code
            unknown = await asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"enableTopicsList=true")
            assert unknown.remark is not None
            assert "did you mean enableTopicList?" in unknown.remark
            await asker.get(RequestCode.UPDATE_NAMESRV_CONFIG, text.encode())
    finally:
        await server.stop()


async def test_an_unknown_request_is_answered(asker: Asker) -> None:
    answer = await asker.ask(RequestCode.SEND_MESSAGE)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# --- under load ---


async def test_route_requests_while_brokers_register_many_topics(namesrv: Namesrv) -> None:
    topics = tuple(f"topic-{number}" for number in range(5000))
    async with asking(namesrv.address) as watcher:
        askers = [await _connected(namesrv.address) for _ in range(4)]
        try:
            await asyncio.gather(
                *(asker.register(f"broker-{number}", topics) for number, asker in enumerate(askers))
            )
            assert len((await watcher.route("topic-4999"))["queueDatas"]) == 4
            registrations = [
                asyncio.ensure_future(asker.register(f"broker-{number}", topics, counter=2))
                for number, asker in enumerate(askers)
            ]
            looked_up = 0
            while not all(task.done() for task in registrations):
                route = await watcher.route(f"topic-{looked_up * 37 % 5000}")
                assert len(route["queueDatas"]) == 4
                looked_up += 1
            assert looked_up > 10
            answers = await asyncio.gather(*registrations)
            assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 4
        finally:
            for asker in askers:
                await asker.client.stop()
        # Topics go in slices: a route may be gone before the list is empty.
        while (await watcher.json(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]:
            pass
        assert await watcher.route("topic-0") is None


async def _connected(address: str) -> Asker:
    client = RemotingClient()
    await client.connect(address)
    return Asker(client, address, Serialization.JSON)


async def test_a_master_without_replication_registers_and_slaves_get_no_ha_address(namesrv: Namesrv) -> None:
    async with asking(namesrv.address, Serialization.JSON) as asker:
        assert (await asker.register(haServerAddr="")).code == ResponseCode.SUCCESS
        slave = await asker.register(broker_id=1)
        assert slave.ext_fields == {"haServerAddr": "", "masterAddr": "broker-a-0:10911"}
        route = await asker.route("TopicTest")
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "broker-a-0:10911", "1": "broker-a-1:10911"}


# --- start and stop ---


async def test_a_graceful_shutdown_drains_requests(tmp_path: Path) -> None:
    server = Namesrv(namesrv_configuration(tmp_path))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    topics = tuple(f"topic-{number}" for number in range(5000))
    fields = {name: str(value) for name, value in {**broker(), "haServerAddr": ""}.items()}
    writer.write(
        encode_frame(
            RemotingCommand.request(RequestCode.REGISTER_BROKER, fields, registration(topics, 1).encode())
        )
    )
    tier = next(tier for tier in server.dispatcher.tiers() if tier.name == "registration")
    await until(lambda: tier.statistics.waiting)
    await server.stop()
    head = await reader.readexactly(4)
    answer = decode_one(head + await reader.readexactly(int.from_bytes(head)))
    assert answer.code == ResponseCode.SUCCESS
    assert await reader.read() == b""
    writer.close()


async def test_a_port_in_use_is_reported_with_a_remedy(tmp_path: Path, namesrv: Namesrv) -> None:
    second = Namesrv(namesrv_configuration(tmp_path, listenPort=namesrv.port))
    with pytest.raises(StartError, match="listenPort chooses the port"):
        await second.start()
    await second.stop()


async def test_a_damaged_file_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")
    server = Namesrv(namesrv_configuration(tmp_path))
    with pytest.raises(StartError, match="repair or remove"):
        await server.start()
    await server.stop()


async def test_metrics(tmp_path: Path) -> None:
    async with (
        running_namesrv(tmp_path, metricsExporterType="PROM", metricsPromExporterPort=0) as server,
        asking(server.address) as asker,
    ):
        await asker.register("broker-a")
        await asker.register("broker-a", broker_id=1)
        await asker.route("TopicTest")
        await asker.route("Nothing")
        assert server.metrics_address is not None
        reader, writer = await asyncio.open_connection(*server.metrics_address)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        lines = (await reader.read()).decode().splitlines()
        writer.close()
        for line in (
            'rmq_namesrv_topics{node_type="nameserver"} 2',
            'rmq_namesrv_brokers{node_type="nameserver"} 2',
            'rmq_namesrv_broker_names{node_type="nameserver"} 1',
            'rmq_namesrv_registrations_total{node_type="nameserver",outcome="changed"} 2',
            'rmq_connections_open{node_type="nameserver",listener="namesrv"} 1',
            'rmq_requests_total{node_type="nameserver",request_code="get_routeinfo_by_topic",'
            'response_code="topic_not_exist"} 1',
            'rmq_tier_waiting{node_type="nameserver",tier="registration"} 0',
            'rmq_cache_entries{node_type="nameserver",cache="route_bodies"} 1',
        ):
            assert line in lines
