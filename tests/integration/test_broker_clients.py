"""What clients and admin tools ask a broker besides sending and pulling, over the wire."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rmq_broker.clients.housekeeping import ClientHousekeeping
from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.connection import ConsumerConnection, ProducerConnection
from rmq_remoting.bodies.group import (
    GetConsumerListByGroupResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicStatsTable
from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_requests import (
    ask_among_notifications,
    create_topic,
    heartbeat,
    pull,
    pulled,
    request,
    send,
    sent,
    succeeded,
)
from tests.support.brokers import RunningBroker, running_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import until


async def _ok(client: RawClient, command: RemotingCommand) -> RemotingCommand:
    return succeeded(await client.ask(command))


async def _refused(client: RawClient, command: RemotingCommand, code: ResponseCode) -> str:
    answer = await client.ask(command)
    assert answer.code == code, f"{answer.code}: {answer.remark}"
    assert answer.remark
    return answer.remark


async def _number(client: RawClient, code: Code, **fields: object) -> int:
    answer = await _ok(client, request(code, **fields))
    (value,) = answer.ext_fields.values()
    return int(value)


async def _members(client: RawClient, group: str) -> list[str]:
    answer = await _ok(client, request(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group))
    return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list


# --- clients ---


async def test_members_of_a_group_are_told_of_each_other(broker: RunningBroker, client: RawClient) -> None:
    async with broker.client() as first, broker.client() as second:
        await ask_among_notifications(first, heartbeat("c1", "CG", {"T": "*"}))
        notified = await first.receive()
        assert (notified.code, notified.ext_fields) == (
            Code.NOTIFY_CONSUMER_IDS_CHANGED,
            {"consumerGroup": "CG"},
        )
        assert notified.is_oneway
        await ask_among_notifications(second, heartbeat("c2", "CG", {"T": "*"}))
        for member in (first, second):
            assert (await member.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        assert sorted(await _members(client, "CG")) == ["c1", "c2"]

        # The same again is no news.
        answer, before = await ask_among_notifications(second, heartbeat("c2", "CG", {"T": "*"}))
        assert (answer.code, before) == (ResponseCode.SUCCESS, [])

        await ask_among_notifications(
            second, request(Code.UNREGISTER_CLIENT, clientID="c2", consumerGroup="CG")
        )
        assert (await first.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        assert await _members(client, "CG") == ["c1"]

        await ask_among_notifications(second, heartbeat("c2", "CG", {"T": "*"}))
        assert (await first.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        second.writer.transport.abort()
        assert (await first.receive()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED
        assert await _members(client, "CG") == ["c1"]

    remark = await _until_gone(client, "CG")
    assert "no consumer of group CG is connected" in remark


async def _until_gone(client: RawClient, group: str) -> str:
    async with asyncio.timeout(20):
        while True:
            answer = await client.ask(request(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group))
            if answer.code == ResponseCode.SYSTEM_ERROR:
                return str(answer.remark)
            await asyncio.sleep(0.005)


async def test_silent_clients_are_forgotten_and_cut_off(broker: RunningBroker) -> None:
    clock_ms = time.time_ns() // 1_000_000
    clients, settings = broker.services.clients, broker.configuration.settings
    housekeeping = ClientHousekeeping(clients.consumers, clients.producers, settings, lambda: clock_ms)
    async with broker.client() as silent:
        await ask_among_notifications(silent, heartbeat("c1", "CG", {"T": "*"}, producer_groups=["PG"]))
        housekeeping.scan()
        assert clients.consumers.find_group("CG") is not None

        clock_ms += 121_000
        housekeeping.scan()

        assert [command.code for command in await silent.until_closed()] == [40]
    assert clients.consumers.find_group("CG") is None
    assert clients.producers.find_group("PG") is None


async def test_connected_clients_can_be_seen(broker: RunningBroker, client: RawClient) -> None:
    async with broker.client() as member:
        beat = heartbeat("10.0.0.9@7", "CG", {"T": "a || b"}, producer_groups=["PG"], sub_version=5)
        await ask_among_notifications(member, beat)
        host, port = member.writer.get_extra_info("sockname")

        consumers = ConsumerConnection.decode(
            (await _ok(client, request(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG"))).body
        )
        producers = ProducerConnection.decode(
            (await _ok(client, request(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG"))).body
        )

        for (connected,) in (consumers.connection_set, producers.connection_set):
            assert (connected.client_id, connected.client_addr) == ("10.0.0.9@7", f"{host}:{port}")
            assert (connected.language.name, connected.version) == ("PYTHON", 479)
        assert consumers.subscription_table["T"].tags_set == ["a", "b"]

    await _refused(
        client,
        request(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="No"),
        ResponseCode.CONSUMER_NOT_ONLINE,
    )
    await _refused(
        client, request(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="No"), ResponseCode.SYSTEM_ERROR
    )


async def test_a_client_asks_whether_its_filter_works(client: RawClient) -> None:
    def asking(expression_type: str) -> RemotingCommand:
        body = CheckClientRequestBody(
            client_id="c1",
            group="CG",
            subscription_data=SubscriptionData(topic="T", expression_type=expression_type),
        )
        return request(Code.CHECK_CLIENT_CONFIG, body.encode())

    await _ok(client, asking("TAG"))
    await _ok(client, request(Code.CHECK_CLIENT_CONFIG))
    assert "SQL92" in await _refused(client, asking("SQL92"), ResponseCode.SYSTEM_ERROR)


# --- offsets ---


async def test_offsets_are_committed_and_asked_for(client: RawClient) -> None:
    sent(await client.ask(send("T")))
    await client.ask(pull("T", "CG"))
    place = {"consumerGroup": "CG", "topic": "T", "queueId": 0}

    await _ok(client, request(Code.UPDATE_CONSUMER_OFFSET, **place, commitOffset=1))

    assert await _number(client, Code.QUERY_CONSUMER_OFFSET, **place) == 1
    unknown = {**place, "consumerGroup": "Unknown"}
    commit = request(Code.UPDATE_CONSUMER_OFFSET, **unknown, commitOffset=1)
    await _refused(client, commit, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    commit = request(Code.UPDATE_CONSUMER_OFFSET, **{**place, "topic": "No"}, commitOffset=1)
    await _refused(client, commit, ResponseCode.TOPIC_NOT_EXIST)


async def test_a_group_starts_at_the_beginning_of_a_young_topic(client: RawClient) -> None:
    sent(await client.ask(send("T")))
    place = {"consumerGroup": "New", "topic": "T", "queueId": 0}

    assert await _number(client, Code.QUERY_CONSUMER_OFFSET, **place) == 0
    asked = request(Code.QUERY_CONSUMER_OFFSET, **place, setZeroIfNotFound=False)
    assert "New has no offset" in await _refused(client, asked, ResponseCode.QUERY_NOT_FOUND)
    other = request(Code.QUERY_CONSUMER_OFFSET, **{**place, "queueId": 99})
    await _refused(client, other, ResponseCode.QUERY_NOT_FOUND)


# Members hear nothing of each other, so that a connection carries answers alone.
_QUIET: dict[str, object] = {"notifyConsumerIdsChangedEnable": False}
# The broker takes only the newest message for one that is in memory.
_NOT_IN_MEMORY: dict[str, object] = {"accessMessageInMemoryMaxRatio": 0}


async def _first_pull_of_a_java_client(client: RawClient, between: Callable[[], Awaitable[object]]) -> int:
    """The offset at which a new group begins with CONSUME_FROM_LAST_OFFSET (RebalancePushImpl of Apache).

    The client asks for the group's offset, and where there is none for the end of the queue; `between`
    happens between the two.
    """
    place = {"topic": "T", "queueId": 0}
    answer = await client.ask(request(Code.QUERY_CONSUMER_OFFSET, consumerGroup="New", **place))
    await between()
    if answer.code == ResponseCode.SUCCESS:
        return int(answer.ext_fields["offset"])
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    return await _number(client, Code.GET_MAX_OFFSET, **place)


async def test_a_new_group_gets_a_message_that_is_stored_while_it_starts(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUIET) as broker, broker.client() as client:
        await _ok(client, create_topic("T", 1))
        await _ok(client, heartbeat("c1", "New", {"T": "*"}))
        begin = await _first_pull_of_a_java_client(client, lambda: client.ask(send("T", b"first")))
        found = pulled(await client.ask(pull("T", "New", offset=begin)))
        assert [message.body for message in found] == [b"first"]


async def test_a_subscribed_group_gets_the_first_message_however_late_it_asks(tmp_path: Path) -> None:
    """So much was stored since the message that the broker takes it for no longer in memory."""
    async with running_broker(tmp_path, **_QUIET, **_NOT_IN_MEMORY) as broker, broker.client() as client:
        await _ok(client, create_topic("T", 1))
        await _ok(client, heartbeat("c1", "New", {"T": "*"}))
        sent(await client.ask(send("T")))
        assert await _first_pull_of_a_java_client(client, lambda: client.ask(send("T"))) == 0


async def test_a_group_that_subscribes_to_an_old_topic_chooses_its_start_itself(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **_QUIET, **_NOT_IN_MEMORY) as broker, broker.client() as client:
        sent(await client.ask(send("T")))
        await _ok(client, heartbeat("c1", "New", {"T": "*"}))
        asked = request(Code.QUERY_CONSUMER_OFFSET, consumerGroup="New", topic="T", queueId=0)
        await _refused(client, asked, ResponseCode.QUERY_NOT_FOUND)


async def test_where_queues_begin_and_end(client: RawClient) -> None:
    before_ms = time.time_ns() // 1_000_000
    for _ in range(3):
        sent(await client.ask(send("T")))
    messages = pulled(await client.ask(pull("T")))
    times = [message.store_timestamp for message in messages]
    queue = {"topic": "T", "queueId": 0}

    assert await _number(client, Code.GET_MAX_OFFSET, **queue) == 3
    assert await _number(client, Code.GET_MIN_OFFSET, **queue) == 0
    assert await _number(client, Code.GET_EARLIEST_MSG_STORETIME, **queue) == times[0] >= before_ms
    assert await _number(client, Code.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=times[0]) == 0
    assert await _number(client, Code.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=times[2] + 1) == 3
    upper = {**queue, "timestamp": times[2] + 1, "boundaryType": "upper"}
    assert await _number(client, Code.SEARCH_OFFSET_BY_TIMESTAMP, **upper) == 2

    nowhere = {"topic": "Nowhere", "queueId": 9}
    assert await _number(client, Code.GET_MAX_OFFSET, **nowhere) == 0
    assert await _number(client, Code.GET_MIN_OFFSET, **nowhere) == 0
    assert await _number(client, Code.GET_EARLIEST_MSG_STORETIME, **nowhere) == -1


# --- topics and groups ---


async def test_topics_are_made_changed_shown_and_deleted(broker: RunningBroker, client: RawClient) -> None:
    await _ok(client, create_topic("T", 6))
    on_disk = json.loads((broker.broker.settings.config_dir / "topics.json").read_text())
    assert on_disk["topicConfigTable"]["T"]["readQueueNums"] == 6  # before the answer

    shown = await _ok(client, request(Code.GET_TOPIC_CONFIG, topic="T"))
    assert TopicConfig.decode(shown.body).write_queue_nums == 6
    every = TopicConfigSerializeWrapper.decode((await _ok(client, request(Code.GET_ALL_TOPIC_CONFIG))).body)
    assert {"T", "TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-a"} <= every.topic_config_table.keys()

    await _ok(client, request(Code.DELETE_TOPIC_IN_BROKER, topic="T"))
    await _refused(client, request(Code.GET_TOPIC_CONFIG, topic="T"), ResponseCode.TOPIC_NOT_EXIST)

    for command in (
        create_topic("Bad!"),
        create_topic("TBW102"),
        create_topic("T", -1),
        create_topic("T", perm=9),
    ):
        await _refused(client, command, ResponseCode.INVALID_PARAMETER)
    deletion = request(Code.DELETE_TOPIC_IN_BROKER, topic="SELF_TEST_TOPIC")
    await _refused(client, deletion, ResponseCode.INVALID_PARAMETER)


async def test_how_far_a_topic_reaches(client: RawClient) -> None:
    await _ok(client, create_topic("T", 2))
    for _ in range(3):
        sent(await client.ask(send("T", queue_id=1)))
    (*_, last) = pulled(await client.ask(pull("T", queue_id=1)))

    answer = await _ok(client, request(Code.GET_TOPIC_STATS_INFO, topic="T"))

    reach = TopicStatsTable.decode(answer.body).offset_table
    assert reach.keys() == {MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)}
    written = reach[MessageQueue("T", "broker-a", 1)]
    assert (written.min_offset, written.max_offset, written.last_update_timestamp) == (
        0,
        3,
        last.store_timestamp,
    )
    assert reach[MessageQueue("T", "broker-a", 0)].max_offset == 0


async def test_groups_are_made_changed_shown_and_deleted(broker: RunningBroker, client: RawClient) -> None:
    wanted = SubscriptionGroupConfig(group_name="CG", retry_max_times=3)
    await _ok(client, request(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wanted.encode()))

    answer = await _ok(client, request(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    groups = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
    assert groups["CG"].retry_max_times == 3
    assert "TOOLS_CONSUMER" in groups
    on_disk = json.loads((broker.broker.settings.config_dir / "subscriptionGroup.json").read_text())
    assert on_disk["subscriptionGroupTable"]["CG"]["retryMaxTimes"] == 3

    broker.offsets.commit("CG", "T", 0, 5)
    await _ok(client, request(Code.DELETE_SUBSCRIPTIONGROUP, groupName="CG", cleanOffset=True))
    assert "CG" not in broker.groups
    assert broker.offsets.query("CG", "T", 0) == -1


# --- the broker itself ---


async def test_settings_are_shown_and_changed_all_or_none(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName = broker-a\n# sizes\nmaxMessageSize = 1000\n")
    async with running_broker(tmp_path, file) as broker, broker.client() as client:
        settings = broker.broker.settings
        shown = (await _ok(client, request(Code.GET_BROKER_CONFIG))).body.decode()
        assert "maxMessageSize=1000\n" in shown

        for body, code in (
            (b"maxMessageSize=2000\nnoSuchKey=1\n", ResponseCode.INVALID_PARAMETER),
            (b"maxMessageSize=2000\nlistenPort=1\n", ResponseCode.INVALID_PARAMETER),
            (b"maxMessageSize=2000\nautoCreateTopicEnable=perhaps\n", ResponseCode.INVALID_PARAMETER),
            (b"maxMessageSize=2000\nbrokerConfigPath=/x\n", ResponseCode.NO_PERMISSION),
        ):
            remark = await _refused(client, request(Code.UPDATE_BROKER_CONFIG, body), code)
            assert "nothing was changed" in remark
            assert settings.max_message_size == 1000

        await _ok(client, request(Code.UPDATE_BROKER_CONFIG, b"maxMessageSize=2000\n"))
        assert settings.max_message_size == 2000
        assert file.read_text() == "brokerName = broker-a\n# sizes\nmaxMessageSize=2000\n"


async def test_auto_creation_can_be_switched_on_while_running(tmp_path: Path) -> None:
    async with running_broker(tmp_path, autoCreateTopicEnable=False) as broker, broker.client() as client:
        assert (await client.ask(send("T"))).code == ResponseCode.TOPIC_NOT_EXIST
        for _ in range(2):
            await _ok(client, request(Code.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=true\n"))
            sent(await client.ask(send("T")))
            await _ok(client, request(Code.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false\n"))
            assert (await client.ask(send("U"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_figures_of_the_run_time(broker: RunningBroker, client: RawClient) -> None:
    sent(await client.ask(send("T", b"x" * 100)))

    figures = KVTable.decode((await _ok(client, request(Code.GET_BROKER_RUNTIME_INFO))).body).table

    assert figures["brokerVersionDesc"] == "V5_3_3"
    assert int(figures["commitLogMaxOffset"]) > 100
    assert figures["sendThreadPoolQueueCapacity"] == "10000"
    assert figures["pullThreadPoolQueueSize"] == "0"


async def test_a_code_that_nobody_answers(client: RawClient) -> None:
    remark = await _refused(client, request(29999), ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert "29999 is not supported" in remark
    await _ok(client, request(Code.GET_BROKER_CONFIG))


async def test_offsets_are_written_from_time_to_time(tmp_path: Path) -> None:
    async with running_broker(tmp_path, flushConsumerOffsetInterval=20) as broker, broker.client() as client:
        sent(await client.ask(send("T")))
        await client.ask(pull("T", "CG", offset=1, commit=1))
        file = broker.broker.settings.config_dir / "consumerOffset.json"
        await until(lambda: file.exists() and '"T@CG":{0:1}' in file.read_text())
