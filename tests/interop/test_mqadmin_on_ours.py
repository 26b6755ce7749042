"""Apache's command-line tool mqadmin 5.3.3 with this project's name server and broker.

Commands for replicas, controllers, access control, static topics and running consumers are in other modules.
`test_every_command_is_tried` knows the commands that a cluster does not answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from rmq_client import Admin
from tests.interop.clusters import Own
from tests.interop.foreign import AdminOutput, JavaClient, JavaShell, MqAdmin
from tests.support.outcome import expected_body
from tests.support.own_servers import OwnBroker
from tests.support.toolchain import JavaProgram

CLUSTER = "DefaultCluster"
# Commands that no name server, broker or controller of these tests can answer, with the reason.
_NOT_TRIED = {
    "addBroker": "broker container",
    "removeBroker": "broker container",
    "exportMetadataInRocksDB": "reads files of a RocksDB store, and sends no request",
    "rocksDBConfigToJson": "RocksDB store",
    "checkRocksdbCqWriteProgress": "RocksDB store",
    "dumpCompactionLog": "reads a file of a compacted topic, and sends no request",
}
_TESTS = Path(__file__).parent
_SECONDS = 60.0

pytestmark = pytest.mark.java


class Tool:
    """mqadmin for a test; `$broker` is replaced by the broker's address."""

    def __init__(self, shell: JavaShell, broker: OwnBroker) -> None:
        self._shell = shell
        self._broker = broker

    async def run(self, line: str) -> AdminOutput:
        """Run one command line."""
        words = line.replace("$broker", self._broker.address).split()
        return await self._shell.mqadmin(*words)

    async def lines(self, line: str) -> list[list[str]]:
        """Run one command line, which must succeed; return its output, split at white space."""
        return (await self.run(line)).check().rows


@pytest.fixture(scope="module")
def tool(own_tool: JavaShell, own: Own) -> Tool:
    return Tool(own_tool, own[1])


async def test_every_command_is_tried(java_program: JavaProgram, own: Own, tmp_path: Path) -> None:
    commands = set(await MqAdmin(java_program, own[0].address, tmp_path).commands())
    assert len(commands) == 89
    sources = "\n".join(path.read_text() for path in _TESTS.glob("test_*.py"))
    # Not the keys of _NOT_TRIED, which a colon follows.
    tried = {each for each in commands if re.search(rf"[\"' ]{each}([\"'](?!: )| )", sources)}
    assert commands - tried == set(_NOT_TRIED)


async def test_commands_that_run_until_they_are_killed(
    java_program: JavaProgram, own: Own, tmp_path: Path
) -> None:
    mqadmin = MqAdmin(java_program, own[0].address, tmp_path)
    with mqadmin.start("clusterRT", "-a", "2", "-s", "10", "-i", "1") as measuring:
        row = (await measuring.shows(f"^{CLUSTER} ", _SECONDS)).split()
        assert (row[:2], row[3:]) == ([CLUSTER, "broker-a"], ["2", "0"])
    async with Admin(own[0].address) as admin:
        with mqadmin.start("startMonitoring"):
            async with asyncio.timeout(_SECONDS):
                # The broker is another process.
                while not await admin.consumer_ids("__MONITOR_CONSUMER", "OFFSET_MOVED_EVENT"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)


async def test_cluster_and_broker(tool: Tool, own: Own) -> None:
    _, broker = own
    assert (await tool.lines("clusterList"))[0][:5] == [CLUSTER, "broker-a", "0", broker.address, "V5_3_3"]
    assert (await tool.lines("clusterList -m"))[0][:2] == [CLUSTER, "broker-a"]
    status = await tool.lines("brokerStatus -b $broker")
    assert ["brokerVersionDesc", ":", "V5_3_3"] in status
    assert len(status) > 50
    assert len(await tool.lines(f"brokerStatus -c {CLUSTER}")) == len(status)
    assert ["listenPort", "=", str(broker.port)] in await tool.lines("getBrokerConfig -b $broker")

    reset = await tool.run("resetMasterFlushOffset -b $broker -o 0")
    assert "reset master flush offset to 0 success" in reset.check().text
    assert "#SlaveNum\t0" in (await tool.run("haStatus -b $broker")).check().text

    await tool.lines("updateBrokerConfig -b $broker -k longPollingMaxHoldMillis -v 20000")
    assert ["longPollingMaxHoldMillis", "=", "20000"] in await tool.lines("getBrokerConfig -b $broker")
    await tool.lines(f"updateBrokerConfig -c {CLUSTER} -k longPollingMaxHoldMillis -v 30000")
    refused = await tool.run("updateBrokerConfig -b $broker -k longPoling -v 1")
    assert refused.failed and "longPoling=1: no such setting" in refused.text


async def test_cleaning(tool: Tool) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for where in ("-b $broker", f"-c {CLUSTER}"):
            assert await tool.lines(f"{command} {where}") == [["success"]]


async def test_cold_data(tool: Tool, name: str) -> None:
    for where in ("-b $broker", f"-c {CLUSTER}"):
        set_ = await tool.run(f"updateColdDataFlowCtrGroupConfig {where} -g {name} -v 4096")
        assert "updateColdDataFlowCtrGroupConfig success" in set_.check().text
        shown = (await tool.run(f"getColdDataFlowCtrInfo {where}")).check().text
        assert re.search(rf'"{name}": ?"?4096', shown), shown
        removed = await tool.run(f"removeColdDataFlowCtrGroupConfig {where} -g {name}")
        assert "remove broker cold read threshold success" in removed.check().text
        assert name not in (await tool.run(f"getColdDataFlowCtrInfo {where}")).check().text
    for mode, reads_ahead in ((1, "false"), (0, "true")):
        changed = await tool.run(f"setCommitLogReadAheadMode -b $broker -m {mode}")
        assert f"readahead mode success, mode: {mode}" in changed.check().text
        config = await tool.lines("getBrokerConfig -b $broker")
        assert ["dataReadAheadEnable", "=", reads_ahead] in config


async def test_records_of_pop(tool: Tool) -> None:
    exported = (await tool.run("exportPopRecord -b $broker")).check().text
    assert "Export broker records, brokerName=broker-a" in exported
    assert "error" not in exported


async def test_topics(tool: Tool, name: str, tmp_path: Path) -> None:
    await tool.lines(f"updateTopic -b $broker -t {name} -r 4 -w 4")
    assert [name] in await tool.lines("topicList")
    assert any(row[:2] == [CLUSTER, name] for row in await tool.lines("topicList -c"))
    route = await tool.lines(f"topicRoute -t {name} -l")
    assert route[0][:2] == [CLUSTER, "broker-a"] and route[0][-3:] == ["4", "4", "6"]
    assert [row[:4] for row in await tool.lines(f"topicStatus -t {name}")][:4] == [
        ["broker-a", str(queue), "0", "0"] for queue in range(4)
    ]
    assert await tool.lines(f"topicClusterList -t {name}") == [[CLUSTER]]
    await tool.lines(f"updateTopicPerm -t {name} -b $broker -p 4")
    assert (await tool.lines(f"topicRoute -t {name} -l"))[0][-1] == "4"

    ordered = name + "-ordered"
    made = await tool.run(f"updateTopic -c {CLUSTER} -t {ordered} -r 2 -w 2 -o true -a +message.type=FIFO")
    assert "orderConf=[broker-a:2]" in made.check().text
    listed = tmp_path / "topics.json"
    listed.write_text(json.dumps([{"topicName": name + "-1"}, {"topicName": name + "-2", "perm": 4}]))
    await tool.lines(f"updateTopicList -b $broker -f {listed}")
    assert (await tool.lines(f"topicRoute -t {name}-2 -l"))[0][-1] == "4"

    for topic in (name, ordered, name + "-1", name + "-2"):
        await tool.lines(f"deleteTopic -t {topic} -c {CLUSTER}")
        assert (await tool.run(f"topicRoute -t {topic}")).failed


async def test_groups(tool: Tool, name: str, tmp_path: Path) -> None:
    await tool.lines(f"updateSubGroup -b $broker -g {name} -r 3 -q 2")
    config = await tool.lines(f"getConsumerConfig -g {name}")
    assert ["retryMaxTimes", "=", "3"] in config
    await tool.lines(f"updateSubGroup -c {CLUSTER} -g {name} -s false")
    assert ["consumeEnable", "=", "false"] in await tool.lines(f"getConsumerConfig -g {name}")
    listed = tmp_path / "groups.json"
    listed.write_text(json.dumps([{"groupName": name + "-1"}, {"groupName": name + "-2"}]))
    await tool.lines(f"updateSubGroupList -b $broker -f {listed}")
    for group in (name, name + "-1", name + "-2"):
        await tool.lines(f"deleteSubGroup -b $broker -g {group} -r true")
        assert "consumeEnable" not in (await tool.run(f"getConsumerConfig -g {group}")).text


async def test_name_server(tool: Tool, own: Own, own_topic: str) -> None:
    namesrv, _ = own
    assert ["listenPort", "=", str(namesrv.port)] in await tool.lines("getNamesrvConfig")
    await tool.lines("updateNamesrvConfig -k orderMessageEnable -v true")
    await tool.lines(f"updateOrderConf -t {own_topic} -m put -v broker-a:4")
    shown = await tool.run(f"updateOrderConf -t {own_topic} -m get")
    assert "orderConf=[broker-a:4]" in shown.check().text
    assert "broker-a:4" in (await tool.run(f"topicRoute -t {own_topic}")).check().text
    await tool.lines(f"updateOrderConf -t {own_topic} -m delete")
    await tool.lines("updateNamesrvConfig -k orderMessageEnable -v false")

    assert (await tool.lines("wipeWritePerm -b broker-a"))[0][-2] == "OK,"
    assert (await tool.lines(f"topicRoute -t {own_topic} -l"))[0][-1] == "4"
    assert (await tool.lines("addWritePerm -b broker-a"))[0][-2] == "OK,"
    assert (await tool.lines(f"topicRoute -t {own_topic} -l"))[0][-1] == "6"
    await tool.lines("updateKvConfig -s namespace -k key -v value")
    await tool.lines("deleteKvConfig -s namespace -k key")


async def test_messages_of_the_command_line(tool: Tool, own_topic: str) -> None:
    # In one JVM these two commands work only once, because they keep a client that they shut down.
    sent = await tool.lines(f"sendMessage -t {own_topic} -p hello -c TagA -k key1")
    assert sent[0][2] == "SEND_OK"
    assert "BODY: hello" in (await tool.run(f"consumeMessage -t {own_topic} -g {own_topic}")).check().text


def taken_body(shown: AdminOutput) -> bytes:
    """Return the body that the tool wrote to a file, always below /tmp."""
    file = Path(shown.text.partition("Message Body Path:")[2].split()[0])
    body = file.read_bytes()
    file.unlink()
    return body


async def test_messages(tool: Tool, own_shell: JavaShell, own_topic: str) -> None:
    await own_shell.run("send", topic=own_topic, count=4, mode="selector", tag="A", keys="k{}")
    printed = (await tool.run(f"printMsg -t {own_topic} -d true")).check()
    assert len(re.findall("BODY: 0000000", printed.text)) == 4
    printed = await tool.run(f"printMsgByQueue -t {own_topic} -a broker-a -i 3 -p true -d true")
    assert "BODY: 00000003" in printed.check().text
    found = await tool.run(f"queryMsgByOffset -t {own_topic} -b broker-a -i 2 -o 0")
    assert ["Keys:", "[k2]"] in found.check().rows
    assert taken_body(found) == expected_body(2)
    assert len(await tool.lines("sendMsgStatus -b broker-a -c 2")) == 2
    assert (await tool.lines(f"checkMsgSendRT -t {own_topic} -a 2 -s 10"))[-1][:2] == ["Avg", "RT:"]
    assert '"c1"' in (await tool.run(f"allocateMQ -t {own_topic} -i c1,c2")).check().text


async def test_messages_by_key_and_id(tool: Tool, own_shell: JavaShell, own_topic: str) -> None:
    sent = (
        (await own_shell.run("send", topic=own_topic, count=3, mode="selector", keys="k{} all")).check().sent
    )
    listed = await tool.lines(f"queryMsgByKey -t {own_topic} -k all")
    assert listed == [[result["msgId"], str(result["queueId"]), "0"] for result in sent]
    assert await tool.lines(f"queryMsgByKey -t {own_topic} -k k1") == [[sent[1]["msgId"], "1", "0"]]
    by_time = await tool.lines(f"queryMsgByKey -t {own_topic} -k all -m 2 -b 0 -e {2**62}")
    assert by_time == listed[1:], "the newest message"
    # queryMsgByUniqueKey works once in a JVM, because it keeps a client that it shuts down.
    for line in (
        f"queryMsgById -t {own_topic} -i {sent[1]['msgId']}",
        f"queryMsgById -t {own_topic} -i {sent[1]['offsetMsgId']}",
        f"queryMsgByUniqueKey -t {own_topic} -i {sent[1]['msgId']}",
    ):
        found = await tool.run(line)
        assert ["Keys:", "[k1", "all]"] in found.check().rows
        assert "WARN: No Consumer" in found.text
        assert taken_body(found) == expected_body(1)
    for line in (f"queryMsgByKey -t {own_topic} -k k9", f"queryMsgById -t {own_topic} -i {'0' * 32}"):
        assert "CODE: 208" in (await tool.run(line)).text


async def test_entries_of_a_queue(tool: Tool, own_shell: JavaShell, own_topic: str) -> None:
    (await own_shell.run("send", topic=own_topic, count=3, mode="queue", queue=1)).check()
    shown = (await tool.run(f"queryCq -t {own_topic} -q 1 -i 1 -c 5 -g {own_topic}")).check().text
    assert "max: 3, min: 0" in shown and "is connected" in shown
    assert re.findall(r"idx: (\d)", shown) == ["1", "2"]
    assert len(re.findall(r"physicOffset=\d+, physicSize=\d+, tagsCode=0", shown)) == 2
    assert "CODE: 1 " in (await tool.run(f"queryCq -t {own_topic} -q 9 -i 0 -b $broker")).text


async def test_progress_of_consumer_groups(tool: Tool, own_shell: JavaShell, own_topic: str) -> None:
    (await own_shell.run("send", topic=own_topic, count=4, mode="queue", queue=2)).check()
    (await own_shell.run("pull", topic=own_topic, group=own_topic, commit=True)).check()
    reach = [own_topic, "broker-a", "2", "4", "4", "0", "0"]
    for line in (f"consumerProgress -g {own_topic}", f"consumerProgress -g {own_topic} -t {own_topic}"):
        rows = await tool.lines(line)
        assert reach in [row[:7] for row in rows]
        assert ["Consume", "Diff", "Total:", "0"] in rows
    listed = [row[:7] for row in await tool.lines("brokerConsumeStats -b $broker")]
    assert [own_topic, own_topic, *reach[1:6]] in listed
    await tool.lines(f"updateSubGroup -b $broker -g {own_topic}-2")
    cloned = await tool.run(f"cloneGroupOffset -s {own_topic} -d {own_topic}-2 -t {own_topic}")
    assert "clone group offset success" in cloned.check().text
    assert reach in [row[:7] for row in await tool.lines(f"consumerProgress -g {own_topic}-2 -t {own_topic}")]
    # backlog, messages in and out in 24 hours
    [figures] = [row for row in await tool.lines(f"statsAll -t {own_topic}") if row[1] == own_topic]
    assert (figures[2], figures[5], figures[6]) == ("0", "4", "4")
    assert float(figures[3]) > 0 and float(figures[4]) > 0


async def test_running_clients_are_listed(
    tool: Tool, own_java: JavaClient, own_shell: JavaShell, own_topic: str
) -> None:
    producers = "p" + own_topic
    with (
        own_java.start("consume", topic=own_topic, group=own_topic, tag="A || B") as consumer,
        own_java.start("send", topic=own_topic, group=producers, count=4, tag="A", hold=True) as producer,
    ):
        await producer.wait_for("sent")
        await consumer.wait_for("message", 4)
        seen = (await own_shell.admin("examineConsumerConnectionInfo", group=own_topic)).check().result
        assert [connection["language"] for connection in seen["connections"]] == ["JAVA"]
        subscriptions = {each["topic"]: each["expression"] for each in seen["subscriptions"]}
        assert subscriptions == {own_topic: "A || B", "%RETRY%" + own_topic: "*"}
        shown = await tool.lines(f"consumerConnection -g {own_topic}")
        assert shown[0][-2:] == ["JAVA", "V5_3_3"]
        asked = await own_shell.admin("examineProducerConnectionInfo", group=producers, topic=own_topic)
        assert len(asked.check().result["connections"]) == 1
        shown = await tool.lines(f"producerConnection -g {producers} -t {own_topic}")
        assert shown[0][-2:] == ["JAVA", "V5_3_3"]
        assert producers in (await tool.run("producer -b $broker")).text
        assert any(row[:2] == [own_topic, "1"] for row in await tool.lines("consumerProgress"))
        (await consumer.stop()).check()
        (await producer.stop()).check()
    assert "CODE: 206" in (await tool.run(f"consumerConnection -g {own_topic}")).text


async def test_statistics_and_exports(
    tool: Tool, own_shell: JavaShell, own_topic: str, tmp_path: Path
) -> None:
    await own_shell.run("send", topic=own_topic, count=4)
    assert (await tool.lines(f"statsAll -t {own_topic}"))[0][0] == own_topic
    assert [own_topic] in [row[:1] for row in await tool.lines("statsAll")]
    for command, file in [
        ("exportMetadata", "metadata.json"),
        ("exportConfigs", "configs.json"),
        ("exportMetrics", "metrics.json"),
    ]:
        await tool.lines(f"{command} -c {CLUSTER} -f {tmp_path}")
        assert json.loads((tmp_path / file).read_text())
    topics = json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]
    assert topics[own_topic]["writeQueueNums"] == 4
