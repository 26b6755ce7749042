"""The foreign programs with Apache's servers: tests of the test programs themselves, in `make test-long`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.interop.checks import (
    bodies_of,
    check_reads_java_and_is_read,
    check_sends_and_consumes,
    expected_bodies,
)
from tests.interop.clusters import Apache
from tests.interop.foreign import GoClient, JavaClient, JavaShell, MqAdmin, NodeClient
from tests.support.apache import ApacheBroker
from tests.support.outcome import ForeignProgramFailed
from tests.support.toolchain import JavaProgram, NodeProgram

TOPIC_NOT_EXIST = 17
INVALID_PARAMETER = 29
CONSUMER_NOT_ONLINE = 206

pytestmark = [pytest.mark.java, pytest.mark.long]


@pytest.fixture(scope="module")
def java(java_program: JavaProgram, apache: Apache, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    return JavaClient(java_program, apache[0].address, tmp_path_factory.mktemp("java"), header="ROCKETMQ")


@pytest.fixture(scope="module")
def shell(java: JavaClient) -> Iterator[JavaShell]:
    with java.shell() as shell:
        yield shell


@pytest_asyncio.fixture
async def topic(shell: JavaShell, name: str) -> str:
    created = await shell.admin("createAndUpdateTopicConfig", topic=name, queues=4)
    assert created.check().result["routeVisible"]
    return name


@pytest.fixture
def go(go_program: Path, apache: Apache, tmp_path: Path) -> GoClient:
    return GoClient(go_program, apache[0].address, tmp_path / "go")


@pytest.fixture
def node(node_program: NodeProgram, apache: Apache, tmp_path: Path) -> NodeClient:
    return NodeClient(node_program, apache[0].address, tmp_path / "node")


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "queue", "selector", "orderkey"])
async def test_java_sends_and_consumes(shell: JavaShell, topic: str, mode: str) -> None:
    sent = await shell.run("send", topic=topic, count=6, mode=mode, queue=2, batch=4, tag="A")
    assert sent.check().result["count"] == 6
    statuses = {result["status"] for result in sent.sent}
    assert statuses == {"ONEWAY" if mode == "oneway" else "SEND_OK"}
    received = await shell.run("consume", topic=topic, group=topic, tag="A || B", count=6)
    assert bodies_of(received.check()) == expected_bodies(6)


async def test_java_with_json_headers(
    java_program: JavaProgram, apache: Apache, topic: str, tmp_path: Path
) -> None:
    java = JavaClient(java_program, apache[0].address, tmp_path, header="JSON")
    with java.shell() as shell:
        (await shell.run("send", topic=topic, count=3)).check()
        received = await shell.run("consume", topic=topic, group=topic, count=3)
        assert bodies_of(received.check()) == expected_bodies(3)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_java_with_compressed_messages(shell: JavaShell, topic: str, compression: str) -> None:
    (await shell.run("send", topic=topic, count=2, size=20_000, compress=compression)).check()
    pulled = await shell.run("pull", topic=topic, group=topic, count=2)
    assert bodies_of(pulled.check()) == expected_bodies(2, 20_000)
    assert all(message["storeSize"] < 2_000 for message in pulled.messages)


@pytest.mark.parametrize("api", ["lite", "old"])
async def test_java_pulls_and_commits(shell: JavaShell, topic: str, api: str) -> None:
    (await shell.run("send", topic=topic, count=6, mode="queue", queue=3)).check()
    pulled = await shell.run(
        "pull", api=api, topic=topic, group=topic, queue=3, offset=2, count=4, max=4, commit=True
    )
    assert [message["queueOffset"] for message in pulled.check().messages] == [2, 3, 4, 5]
    assert [commit["offset"] for commit in pulled.result["committed"]] == [6]


async def test_a_refused_send_of_java_names_the_cause(shell: JavaShell, topic: str) -> None:
    refused = await shell.run("send", topic=topic, mode="queue", queue=77, retries=0)
    assert refused.error is not None
    assert refused.error["code"] == INVALID_PARAMETER
    assert "queueId[77]" in refused.error["remark"]


async def test_java_admin_calls(shell: JavaShell, apache: Apache, topic: str) -> None:
    _, broker = apache
    (await shell.run("send", topic=topic, count=3, mode="queue", queue=1)).check()
    route = (await shell.admin("examineTopicRouteInfo", topic=topic)).check().result
    assert route["brokers"][0]["addresses"] == {"0": broker.address}
    stats = (await shell.admin("examineTopicStats", topic=topic)).check().result
    assert [queue["maxOffset"] for queue in stats["queues"]] == [0, 3, 0, 0]
    assert (await shell.admin("maxOffset", topic=topic, queue=1)).result["offset"] == 3
    assert (await shell.admin("getBrokerConfig")).result["config"]["listenPort"] == str(broker.port)
    missing = await shell.admin("examineTopicRouteInfo", topic="no-such-topic")
    assert missing.error is not None and missing.error["code"] == TOPIC_NOT_EXIST
    with pytest.raises(ForeignProgramFailed, match="no such action"):
        await shell.admin("makeCoffee")


async def test_running_clients_are_listed(java: JavaClient, shell: JavaShell, topic: str) -> None:
    with (
        java.start("consume", topic=topic, group=topic) as consumer,
        java.start("send", topic=topic, group="p" + topic, count=2, hold=True) as producer,
    ):
        await consumer.wait_for("ready")
        await producer.wait_for("sent")
        await consumer.wait_for("message", 2)
        seen = await shell.admin("examineConsumerConnectionInfo", group=topic)
        assert [connection["language"] for connection in seen.check().result["connections"]] == ["JAVA"]
        seen = await shell.admin("examineProducerConnectionInfo", group="p" + topic, topic=topic)
        assert len(seen.check().result["connections"]) == 1
        assert (await consumer.stop()).check().result["count"] == 2
        (await producer.stop()).check()
    gone = await shell.admin("examineConsumerConnectionInfo", group=topic)
    assert gone.error is not None and gone.error["code"] == CONSUMER_NOT_ONLINE


async def test_mqadmin(
    java_program: JavaProgram, apache: Apache, shell: JavaShell, topic: str, tmp_path: Path
) -> None:
    namesrv, broker = apache
    listed = (await MqAdmin(java_program, namesrv.address, tmp_path).run("clusterList")).check()
    assert listed.rows[0][:4] == [broker.cluster, broker.broker_name, "0", broker.address]
    for command in (
        ("topicList",),
        ("topicRoute", "-t", topic),
        ("topicStatus", "-t", topic),
        ("updateTopic", "-t", topic + "x", "-b", broker.address),
        ("deleteTopic", "-t", topic + "x", "-c", broker.cluster),
        ("brokerStatus", "-b", broker.address),
        ("getBrokerConfig", "-b", broker.address),
        ("updateSubGroup", "-b", broker.address, "-g", "g" + topic),
        ("sendMessage", "-t", topic, "-p", "hello"),
        ("consumeMessage", "-t", topic, "-g", "c" + topic),
    ):
        (await shell.mqadmin(*command)).check()
    assert (await shell.mqadmin("topicRoute", "-t", "no-such-topic")).failed


@pytest.mark.go
@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "queue", "orderkey"])
async def test_go_sends_and_consumes(go: GoClient, topic: str, mode: str) -> None:
    await check_sends_and_consumes(go, topic, mode=mode)


@pytest.mark.go
async def test_exchange_of_messages_between_go_and_java(go: GoClient, shell: JavaShell, topic: str) -> None:
    await check_reads_java_and_is_read(go, shell, topic)


@pytest.mark.node
async def test_node_sends_and_consumes(node: NodeClient, topic: str) -> None:
    await check_sends_and_consumes(node, topic)


@pytest.mark.node
async def test_exchange_of_messages_between_node_and_java(
    node: NodeClient, shell: JavaShell, topic: str
) -> None:
    await check_reads_java_and_is_read(node, shell, topic)


async def test_a_killed_broker_restarts_with_its_messages(
    apache_program: JavaProgram, java_program: JavaProgram, apache: Apache, tmp_path: Path
) -> None:
    namesrv, _ = apache
    broker = ApacheBroker(
        apache_program, namesrv.address, broker_name="broker-k", cluster="K", home=tmp_path / "broker"
    )
    async with broker:
        assert broker.usage().cpu_seconds > 0.1
        assert broker.usage().rss_bytes > broker.usage().anonymous_bytes > 10_000_000
        with JavaClient(java_program, namesrv.address, tmp_path / "java").shell() as shell:
            create = {"topic": "killed", "broker_addr": broker.address}
            (await shell.admin("createAndUpdateTopicConfig", **create)).check()
            (await shell.run("send", topic="killed", count=4)).check()
            broker.kill()
            assert broker.process.exit_code == -9
            await broker.start()
            read = await shell.run("pull", topic="killed", group="killed", count=4)
            assert bodies_of(read.check()) == expected_bodies(4)
