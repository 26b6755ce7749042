"""Administration of topics (codes 17, 18, 21, 202, 215, 305, 351, 513)."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.processors.admin.topic_stats import TopicStatsProcessor
from rmq_broker.processors.admin.topics import TopicAdminProcessor
from rmq_broker.topics.deletion import TopicDeletion
from rmq_remoting.answers import Result
from rmq_remoting.bodies.route import TopicList
from rmq_remoting.bodies.static_topic import (
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rmq_remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicStatsTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_tables import BrokerTables
from tests.support.rows import each_row
from tests.support.static_topics import EPOCH, item, map_topic, mapping
from tests.unit.broker.processors.parts import FakeStore, answer_of

_FIELDS = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "5",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


class _Broker(BrokerTables):
    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.store = FakeStore()
        self.persisted = asyncio.Event()
        self.persisted.set()
        self.disk_error: OSError | None = None
        deletion = TopicDeletion(self.topics, self.offsets, self.store, self.statistics)
        self.deletions_persisted = 0
        self.admin = TopicAdminProcessor(
            self.topics, deletion, self.settings, self._persist, self._persist, self._persist_deletion
        )
        self.stats = TopicStatsProcessor(self.topics, self.store, self.statistics, "broker-a")

    async def _persist(self) -> None:
        await self.persisted.wait()
        if self.disk_error is not None:
            raise self.disk_error

    async def _persist_deletion(self) -> None:
        self.deletions_persisted += 1

    def create(self, **fields: str) -> Result:
        request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, _FIELDS | fields)
        return self.admin.create(self.connection, request)

    def delete(self, topic: str) -> Result:
        request = RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        return self.admin.delete(self.connection, request)


async def test_a_topic_is_created_and_changed() -> None:
    broker = _Broker()
    assert (await answer_of(broker.create(attributes="+message.type=FIFO"))).code == ResponseCode.SUCCESS
    config = broker.topics.get("T")
    assert config == TopicConfig(
        topic_name="T", read_queue_nums=4, write_queue_nums=5, attributes={"message.type": "FIFO"}
    )
    await answer_of(broker.create(perm="4", order="true"))
    config = broker.topics.get("T")
    assert config is not None and (config.perm, config.order) == (4, True)
    assert config.attributes == {"message.type": "FIFO"}


async def test_response_waits_for_disk_and_routes() -> None:
    broker = _Broker()
    broker.persisted.clear()
    result = broker.create()
    assert isinstance(result, asyncio.Future)
    await asyncio.sleep(0)
    assert not result.done() and "T" in broker.topics
    broker.persisted.set()
    assert (await answer_of(result)).code == ResponseCode.SUCCESS


async def test_full_disk_is_reported() -> None:
    broker = _Broker()
    broker.disk_error = OSError(28, "No space left on device")
    with pytest.raises(CommandError, match=r"not persisted yet.*No space left") as refusal:
        await answer_of(broker.create())
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


@each_row(
    ("fields", "problem"),
    [
        ({"topic": "a b"}, "illegal"),
        ({"topic": "x" * 128}, "the limit is 127"),
        ({"topic": ""}, "blank"),
        ({"topic": "TBW102"}, "system topic"),
        ({"topic": "broker-a"}, "system topic"),
        ({"readQueueNums": "-1"}, "between 0 and 1024"),
        ({"writeQueueNums": "1025"}, r"between 0 and 1024 \(maxTopicQueueNums\)"),
        ({"perm": "8"}, "perm 8 is invalid"),
        ({"topicFilterType": "NO_TAG"}, "NO_TAG"),
        ({"attributes": "+message.type=MIXED"}, "not supported"),
        ({"attributes": "message.type=FIFO"}, r"\+name=value"),
    ],
)
async def test_invalid_topics_are_refused(fields: dict[str, str], problem: str) -> None:
    broker = _Broker()
    version = broker.topics.version
    with pytest.raises(CommandError, match=problem) as refusal:
        broker.create(**fields)
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.version == version


async def test_a_topic_with_more_queues_than_are_allowed_now_keeps_them() -> None:
    broker = _Broker(maxTopicQueueNums="16")
    broker.topics.update(TopicConfig(topic_name="T", read_queue_nums=100, write_queue_nums=50))
    await answer_of(broker.create(topic="T", readQueueNums="100", writeQueueNums="100"))
    with pytest.raises(CommandError, match="between 0 and 100 "):
        broker.create(topic="T", readQueueNums="101")


async def test_other_bad_requests() -> None:
    broker = _Broker()
    with pytest.raises(CommandError) as refusal:
        broker.create(attributes="+colour=red")
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(HeaderError, match="perm"):
        broker.create(perm="rw")


async def test_system_topics_can_be_opened_to_administration() -> None:
    broker = _Broker(validateSystemTopicWhenUpdateTopic="false")
    await answer_of(broker.create(topic="TBW102", perm="7"))
    assert broker.topics.get("TBW102").read_queue_nums == 4  # type: ignore[union-attr]


async def test_several_topics_are_created_or_none() -> None:
    broker = _Broker()

    def create(*configs: TopicConfig) -> Result:
        body = CreateTopicListRequestBody(topic_config_list=list(configs)).encode()
        request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        return broker.admin.create_all(broker.connection, request)

    same = TopicConfig(topic_name="A")
    await answer_of(create(same, TopicConfig(topic_name="B", attributes={"+message.type": "DELAY"})))
    assert broker.topics.get("B").attributes == {"message.type": "DELAY"}  # type: ignore[union-attr]
    await answer_of(create(same, TopicConfig(topic_name="C")))
    assert "C" in broker.topics
    with pytest.raises(CommandError):
        create(TopicConfig(topic_name="D"), TopicConfig(topic_name="E E"))
    assert "D" not in broker.topics


async def test_topic_is_deleted_everywhere() -> None:
    broker = _Broker()
    for name in ("T", "%RETRY%CG+T", "%RETRY%CG"):
        broker.topics.update(TopicConfig(topic_name=name))
        broker.offsets.commit("CG", name, 0, 1)
        broker.statistics.of_topic(name).put_messages += 1
    assert (await answer_of(broker.delete("T"))).code == ResponseCode.SUCCESS
    assert broker.store.deleted == ["T", "%RETRY%CG+T"]
    assert broker.deletions_persisted == 1
    assert broker.offsets.topics_of("CG") == set(broker.statistics.topics) == {"%RETRY%CG"}
    assert "T" not in broker.topics and "%RETRY%CG+T" not in broker.topics and "%RETRY%CG" in broker.topics


async def test_deletion_of_retry_topics_can_be_switched_off() -> None:
    broker = _Broker(clearRetryTopicWhenDeleteTopic="false")
    broker.offsets.commit("CG", "T", 0, 1)
    broker.topics.update(TopicConfig(topic_name="%RETRY%CG_T"))
    await answer_of(broker.delete("T"))
    assert broker.store.deleted == ["T"] and "%RETRY%CG_T" in broker.topics


@pytest.mark.parametrize("topic", ["", "  ", "TBW102", "rmq_sys_x"])
async def test_invalid_deletions_are_refused(topic: str) -> None:
    broker = _Broker()
    with pytest.raises(CommandError) as refusal:
        broker.delete(topic)
    assert refusal.value.code == ResponseCode.INVALID_PARAMETER
    assert broker.store.deleted == []


async def test_topics_are_shown() -> None:
    broker = _Broker()
    await answer_of(broker.create())

    def get(topic: str) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        return broker.admin.get(broker.connection, request)

    one = TopicConfigAndQueueMapping.decode(get("T").body)
    assert (one.topic_name, one.write_queue_nums, one.mapping_detail) == ("T", 5, None)
    with pytest.raises(CommandError) as refusal:
        get("Unknown")
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST

    everything = broker.admin.get_all(
        broker.connection, RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG)
    )
    wrapper = TopicConfigAndMappingSerializeWrapper.decode(everything.body)
    assert wrapper.topic_config_table["T"] == broker.topics.get("T")
    assert len(wrapper.topic_config_table) == len(broker.topics)
    assert wrapper.data_version == broker.topics.data_version

    system = broker.admin.system_topics(
        broker.connection, RemotingCommand.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    )
    names = TopicList.decode(system.body).topic_list
    assert {"TBW102", "broker-a", "RMQ_SYS_TRACE_TOPIC"} <= set(names) and "T" not in names


async def test_offsets_of_a_topics_queues() -> None:
    broker = _Broker()
    await answer_of(broker.create(readQueueNums="1", writeQueueNums="2"))
    broker.store.queues["T", 0] = [1000, 2000]
    broker.store.first_offsets["T", 0] = 3
    for _ in range(10):
        broker.statistics.of_topic("T").put_messages += 5
        broker.clock.pass_seconds(1)
        broker.statistics.sample()
    request = RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
    table = TopicStatsTable.decode(broker.stats.get(broker.connection, request).body)
    reach = {
        queue.queue_id: (offset.min_offset, offset.max_offset, offset.last_update_timestamp)
        for queue, offset in table.offset_table.items()
    }
    assert reach == {0: (3, 5, 2000), 1: (0, 0, 0)}
    assert MessageQueue("T", "broker-a", 1) in table.offset_table
    assert table.topic_put_tps == 5.0
    with pytest.raises(CommandError) as refusal:
        broker.stats.get(
            broker.connection, RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "U"})
        )
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST


# --- static topics ---


def _map(broker: _Broker, detail: TopicQueueMappingDetail, queues: int = 1, *, force: bool = False) -> Result:
    return broker.admin.create_static(broker.connection, map_topic(detail, queues, force=force))


async def test_a_static_topic_is_created_and_shown() -> None:
    broker = _Broker()
    detail = mapping("broker-a", {0: [item("broker-a", 1)]})
    broker.persisted.clear()
    answer = _map(broker, detail, 2)
    assert isinstance(answer, asyncio.Future) and not answer.done()
    broker.persisted.set()
    assert (await answer_of(answer)).code == ResponseCode.SUCCESS
    assert broker.topics.get("S") == TopicConfig(topic_name="S", read_queue_nums=2, write_queue_nums=2)
    request = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, {"topic": "S", "lo": "true"})
    shown = broker.admin.get(broker.connection, request)
    assert TopicConfigAndQueueMapping.decode(shown.body).mapping_detail == detail


async def test_a_change_of_the_mapping_alone_outdates_what_was_derived() -> None:
    broker = _Broker()
    for later in (0, 1):
        version = broker.topics.version
        await answer_of(_map(broker, mapping("broker-a", {0: [item("broker-a")]}, epoch=EPOCH + later)))
        assert broker.topics.version == version + 1


@pytest.mark.parametrize(
    ("detail", "queues", "code", "problem"),
    [
        (mapping("broker-b", {}), 1, ResponseCode.SYSTEM_ERROR, "is for broker 'broker-b'"),
        (
            mapping("broker-a", {0: [item("broker-a", 1)]}),
            1,
            ResponseCode.INVALID_PARAMETER,
            "logical queue 0 is mapped to queue 1 of this broker",
        ),
        (mapping("broker-a", {}, total=1025), 1, ResponseCode.INVALID_PARAMETER, "1025 logical queues"),
        (mapping("broker-a", {}, total=-1), 1, ResponseCode.INVALID_PARAMETER, "-1 logical queues"),
        (mapping("broker-a", {}, topic="TBW102"), 1, ResponseCode.INVALID_PARAMETER, "is a system topic"),
        (mapping("broker-a", {}), 1025, ResponseCode.INVALID_PARAMETER, "maxTopicQueueNums"),
    ],
)
async def test_a_bad_static_topic_is_refused(
    detail: TopicQueueMappingDetail, queues: int, code: int, problem: str
) -> None:
    broker = _Broker()
    with pytest.raises(CommandError, match=problem) as refused:
        _map(broker, detail, queues)
    assert refused.value.code == code
    assert "S" not in broker.topics and not broker.topics.mappings


async def test_force_replaces_a_newer_mapping() -> None:
    broker = _Broker()
    await answer_of(_map(broker, mapping("broker-a", {0: [item("broker-a")]})))
    old = mapping("broker-a", {0: [item("broker-a")]}, epoch=EPOCH - 1)
    with pytest.raises(CommandError, match="Read the current mapping and repeat the command"):
        _map(broker, old)
    await answer_of(_map(broker, old, force=True))
    assert broker.topics.mappings.details() == {"S": old}


async def test_a_static_topic_keeps_its_mapped_queues() -> None:
    broker = _Broker()
    await answer_of(_map(broker, mapping("broker-a", {0: [item("broker-a", 4)]}), 5))
    await answer_of(broker.create(topic="S", readQueueNums="6", writeQueueNums="5"))
    with pytest.raises(CommandError, match="needs more than 5 read and 4 write queues"):
        broker.create(topic="S", readQueueNums="5", writeQueueNums="4")


async def test_the_mapping_goes_with_the_topic() -> None:
    broker = _Broker()
    await answer_of(_map(broker, mapping("broker-a", {0: [item("broker-a")]})))
    await answer_of(broker.delete("S"))
    assert "S" not in broker.topics.mappings
