"""Topics follow the master: topics deleted there are deleted here, and no others are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from rmq_broker.replication.metadata.followed_versions import FollowedVersions
from rmq_broker.replication.metadata.log_barrier import LogBarrier
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.new_topics import NewTopics
from rmq_broker.replication.metadata.table_age import TableAge
from rmq_broker.replication.metadata.topics import TopicPart
from rmq_broker.topics.deletion import TopicDeletion
from rmq_remoting.bodies.static_topic import TopicConfigAndMappingSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.codes import RequestCode
from rmq_remoting.errors import BodyError
from tests.support.broker_tables import BrokerTables
from tests.support.fake_master import ADDRESS, FakeMaster
from tests.support.golden import json_file
from tests.support.static_topics import item, mapping

_CODE = RequestCode.GET_ALL_TOPIC_CONFIG


class _Files:
    """The store of the replica: which topics' queues were deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        self.deleted += names
        done: Future[None] = Future()
        done.set_result(None)
        return done


class _Queues:
    """A store without queues."""

    queues = ()
    entries_end = 0


class _Replica:
    """The topics of a replica, and a master whose topics tests change."""

    def __init__(self) -> None:
        self.tables = BrokerTables(brokerName="broker-a")
        self.files = _Files()
        self.store = _Queues()
        self.flushed = 0
        self.used: set[str] = set()
        self.versions = FollowedVersions()
        self.saved = self.versions.encode()
        self.barrier = LogBarrier(lambda: self.flushed)
        self.client = FakeMaster()
        self.topics = BrokerTables(brokerName="broker-a").topics  # the master's
        self.client.answers[_CODE] = self._masters_answer
        self.part = self._part()

    def _part(self) -> TopicPart:
        tables = self.tables
        deletion = TopicDeletion(tables.topics, tables.offsets, self.files, tables.statistics)
        age = TableAge("topics", self.versions, self._version_changed)
        new_topics = NewTopics(tables.topics, self.store, self.versions, self._version_changed)
        return TopicPart(tables.topics, deletion, age, self.barrier, lambda: self.used, new_topics)

    def _version_changed(self) -> None:
        self.saved = self.versions.encode()

    def _masters_answer(self) -> bytes:
        topics = self.topics
        return TopicConfigAndMappingSerializeWrapper(
            data_version=topics.data_version,
            topic_config_table={config.topic_name: config for config in topics.configs()},
            mapping_data_version=topics.mappings.data_version,
            topic_queue_mapping_detail_map=topics.mappings.details(),
        ).encode()

    def restart(self) -> None:
        self.versions = FollowedVersions()
        self.versions.decode(self.saved)
        self.part = self._part()

    async def sync(self) -> None:
        await self.part.sync(Master(self.client, ADDRESS))
        self.barrier.master_ends_at(self.client.log_end)
        for _, apply in self.barrier.take_reached():
            await apply()

    @property
    def names(self) -> set[str]:
        system = self.tables.topics.system_topics
        names = (config.topic_name for config in self.tables.topics.configs())
        return {name for name in names if name not in system}


def _config(name: str, **members: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, **members)


async def test_topics_and_the_data_version_are_taken_over() -> None:
    replica = _Replica()
    replica.topics.update(_config("A", read_queue_nums=3), {"+message.type": "FIFO"})
    replica.topics.update(_config("B"))
    await replica.sync()
    table = replica.tables.topics
    assert table.get("A") == replica.topics.get("A")
    assert replica.names == {"A", "B"}
    assert table.data_version == replica.topics.data_version

    replica.topics.update(_config("A", read_queue_nums=5))
    await replica.sync()
    found = table.get("A")
    assert found is not None and found.read_queue_nums == 5
    version = table.version
    await replica.sync()
    assert table.version == version  # nothing is published, or written, without a change


async def test_the_answer_of_apaches_master_is_taken_over() -> None:
    """Equal data versions are references in its JSON."""
    replica = _Replica()
    apaches = json_file("protocol/config/topics.json")
    apaches["topicConfigTable"]["Fifo"] = {"topicName": "Fifo", "attributes": {"message.type": "FIFO"}}
    apaches |= {
        "mappingDataVersion": {"$ref": "$.dataVersion"},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    replica.client.answers[_CODE] = json.dumps(apaches).encode()
    await replica.sync()
    table = replica.tables.topics
    for name, config in apaches["topicConfigTable"].items():
        assert table.get(name) == TopicConfig.from_wire(config)
    assert table.data_version == DataVersion.from_wire(apaches["dataVersion"])


async def test_a_deleted_topic_is_deleted_once_the_log_is_at_that_point() -> None:
    """Records of the topic that arrive after the deletion would make its queues again."""
    replica = _Replica()
    replica.topics.update(_config("A"))
    replica.topics.update(_config("B"))
    await replica.sync()
    replica.tables.offsets.commit("CG", "A", 0, 7)
    replica.topics.delete(["A"])
    replica.client.log_end = 1000
    replica.flushed = 999
    await replica.sync()
    assert replica.names == {"A", "B"}
    replica.flushed = 1000
    await replica.sync()
    assert replica.names == {"B"}
    assert replica.files.deleted == ["A"]
    assert not replica.tables.offsets.topics_of("CG")
    assert replica.tables.topics.data_version == replica.topics.data_version


async def test_a_topic_created_again_in_time_stays() -> None:
    replica = _Replica()
    replica.topics.update(_config("A"))
    await replica.sync()
    replica.topics.delete(["A"])
    replica.client.log_end = 1000
    await replica.sync()
    replica.topics.update(_config("A"))
    replica.flushed = 2000
    await replica.sync()
    assert replica.names == {"A"} and not replica.files.deleted


@pytest.mark.parametrize("topic", ["%RETRY%CG", "%DLQ%CG", "%RETRY%CG+T", "%RETRY%CG_T"])
async def test_retry_topics_of_groups_in_use_here_stay(topic: str) -> None:
    replica = _Replica()
    for name in (topic, "%RETRY%CG2"):
        replica.tables.topics.update(_config(name))
    replica.topics.update(_config("C"))
    replica.topics.update(_config("A"))
    replica.topics.update(_config("B"))  # the master's version is the newer one
    replica.used = {"CG"}
    await replica.sync()
    assert replica.names == {"A", "B", "C", topic}
    await replica.sync()
    replica.used = set()
    await replica.sync()
    assert replica.names == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"{}", "lacks the member topicConfigTable"),
        (b'{"topicConfigTable":{}}', "which every broker has"),
        (b'{"topicConfigTable":{"A":{"topicName":"A"}}}', "SCHEDULE_TOPIC_XXXX"),
        (b"", "without a body"),
        (b'{"topicConfigTable":{"A":{"perm":6}}}', "topicName"),
    ],
)
async def test_nothing_is_deleted_because_of_an_answer_that_is_no_whole_table(
    answer: bytes, problem: str
) -> None:
    replica = _Replica()
    replica.topics.update(_config("A"))
    await replica.sync()
    replica.client.answers[_CODE] = answer
    with pytest.raises((MetadataError, BodyError), match=problem):
        await replica.sync()
    assert replica.names == {"A"} and not replica.files.deleted


@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_is_deleted_if_the_master_lost_its_topics(
    restarts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A master without `topics.json` begins with the system topics, and an old version."""
    replica = _Replica()
    replica.topics.update(_config("A"))
    replica.topics.update(_config("B"))
    await replica.sync()
    replica.topics = BrokerTables(brokerName="broker-a").topics
    replica.topics.update(_config("New"))
    for _ in range(3):
        if restarts:
            replica.restart()
        await replica.sync()
    assert replica.names == {"A", "B", "New"} and not replica.files.deleted
    assert caplog.text.count("not deleted although the master lacks them") == (3 if restarts else 1)

    # Once its version is newer, its table counts again.
    replica.topics.update(_config("New2"))
    replica.topics.update(_config("New3"))
    await replica.sync()
    assert replica.names == {"New", "New2", "New3"}
    assert sorted(replica.files.deleted) == ["A", "B"]


async def test_system_topics_of_this_version_stay() -> None:
    replica = _Replica()
    apaches = json_file("protocol/config/topics.json")
    del apaches["topicConfigTable"]["rmq_sys_wheel_timer"]
    replica.client.answers[_CODE] = json.dumps(apaches).encode()
    await replica.sync()
    assert "rmq_sys_wheel_timer" in replica.tables.topics


async def test_a_name_that_the_store_cannot_hold_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    replica = _Replica()
    replica.topics.update(_config("A"))
    replica.topics.update(_config("../up"))
    await replica.sync()
    await replica.sync()
    assert replica.names == {"A"}
    assert caplog.text.count("topic of the master skipped topic='../up'") == 1


async def test_static_topics_are_taken_over_with_their_mappings() -> None:
    replica = _Replica()
    detail = mapping("broker-a", {0: [item("broker-a")]})
    replica.topics.update_static(_config("S"), detail)
    await replica.sync()
    mappings = replica.tables.topics.mappings
    assert mappings.details() == {"S": detail}
    assert mappings.data_version == replica.topics.mappings.data_version
    replica.topics.delete(["S"])
    await replica.sync()
    assert "S" not in replica.names and "S" not in mappings


async def test_a_former_master_deletes_nothing_while_its_own_table_is_newer() -> None:
    replica = _Replica()
    for name in ("A", "B", "C"):
        replica.tables.topics.update(_config(name))
    replica.versions.begin_with("topics", replica.tables.topics.data_version)
    replica.topics.update(_config("A"))
    await replica.sync()
    assert replica.names == {"A", "B", "C"}
    replica.topics.update(_config("D"))
    replica.topics.update(_config("E"))
    await replica.sync()
    assert replica.names == {"A", "D", "E"}


async def test_the_end_of_the_log_is_noted_from_before_the_question() -> None:
    replica = _Replica()
    replica.store.entries_end = 500
    answer = replica._masters_answer

    def answer_later() -> bytes:
        replica.store.entries_end = 900
        return answer()

    replica.client.answers[_CODE] = answer_later
    await replica.sync()
    assert replica.versions.topics_log_end == 500
    await replica.sync()  # the same answer again
    replica.restart()
    assert replica.versions.topics_log_end == 900


async def test_a_table_that_was_lost_tells_of_no_new_topics() -> None:
    replica = _Replica()
    replica.topics.update(_config("A"))
    await replica.sync()
    replica.topics = BrokerTables(brokerName="broker-a").topics
    replica.store.entries_end = 500
    await replica.sync()
    assert replica.versions.topics_log_end == 0
