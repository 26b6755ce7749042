"""The topic table: system topics, creation by sends, persistence in Apache's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmq_broker.settings.broker import BrokerSettings
from rmq_broker.topics import names
from rmq_broker.topics.attributes import AttributeProblem
from rmq_broker.topics.permissions import INHERIT, READ, READ_WRITE, perm_text
from rmq_broker.topics.table import TopicsChanged, TopicTable
from rmq_remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rmq_remoting.errors import BodyError
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS, Clock
from tests.support.golden import DATA, json_file

_APACHES_FILE = DATA / "protocol" / "config" / "topics.json"


def _table(settings: BrokerSettings | None = None, clock: Clock | None = None) -> TopicTable:
    return TopicTable(settings or broker_settings(), "DefaultCluster", "broker-a", clock or Clock())


def _config(name: str, **members: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, **{"read_queue_nums": 4, "write_queue_nums": 4, **members})


def _changes(table: TopicTable) -> list[TopicsChanged]:
    changes: list[TopicsChanged] = []
    table.on_change(changes.append)
    return changes


# --- system topics ---


def test_system_topics_are_those_of_apaches_broker() -> None:
    apaches = json.loads(_APACHES_FILE.read_text())["topicConfigTable"]
    ours = {config.topic_name: config for config in _table().configs()}
    system = {name for name in apaches if name in _table().system_topics}
    assert set(ours) == system
    for name, config in ours.items():
        expected = TopicConfig.from_wire(apaches[name])
        assert config == expected, name


def test_settings_decide_about_some_system_topics() -> None:
    table = _table(
        broker_settings(
            autoCreateTopicEnable="false",
            traceTopicEnable="true",
            msgTraceTopicName="Traces",
            clusterTopicEnable="false",
            brokerTopicEnable="false",
        )
    )
    assert names.AUTO_CREATE_TOPIC not in table
    assert names.AUTO_CREATE_TOPIC in table.system_topics
    assert "Traces" in table and "Traces" in table.system_topics
    assert [table.get(name).perm for name in ("DefaultCluster", "broker-a")] == [INHERIT, INHERIT]  # type: ignore[union-attr]


def test_system_topics() -> None:
    system = _table().system_topics
    for name in ("TBW102", "broker-a", "DefaultCluster", "rmq_sys_anything", "CHECKPOINT_TOPIC"):
        assert name in system
    assert "TopicTest" not in system
    assert system.names >= names.ALWAYS_SYSTEM_TOPICS


# --- creation by a send ---


def test_send_creates_a_topic_from_the_default_topic() -> None:
    table = _table()
    changes = _changes(table)
    version = table.version
    config = table.create_for_send("New", "TBW102", 4, 2, "192.0.2.1:5")
    assert config is not None and config is table.get("New")
    assert (config.read_queue_nums, config.write_queue_nums) == (4, 4)
    assert (config.perm, config.topic_sys_flag) == (READ_WRITE, 2)
    assert table.version > version
    assert [change.updated for change in changes] == [(config,)]
    assert table.create_for_send("New", "TBW102", 1, 0, "p") is config
    assert len(changes) == 1


@pytest.mark.parametrize(("asked", "created"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_default_topic_bounds_the_number_of_queues(asked: int, created: int) -> None:
    config = _table().create_for_send("New", "TBW102", asked, 0, "p")
    assert config is not None and config.write_queue_nums == created


def test_unknown_topic_without_auto_creation() -> None:
    table = _table(broker_settings(autoCreateTopicEnable="false"))
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is None
    table.update(_config("Model"))
    assert table.create_for_send("New", "Model", 4, 0, "p") is None
    assert table.create_for_send("New", "Unknown", 4, 0, "p") is None
    assert "New" not in table


def test_sends_create_topics_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    settings = broker_settings()
    table = _table(settings)
    settings.max_auto_create_topic_nums = len(table) + 1
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is not None
    for _ in range(3):
        assert table.create_for_send("More", "TBW102", 4, 0, "p") is None
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is table.get("New")
    assert [record.message for record in caplog.records if "not created" in record.message] == [
        f"topic not created topic=More peer=p default_topic=TBW102 refused=1: there are {len(table)} topics, "
        "sends create no more (maxAutoCreateTopicNums)"
    ]
    assert table.update(_config("More")), "administration creates more"


def test_topic_can_inherit_from_other_topics() -> None:
    table = _table(broker_settings(autoCreateTopicEnable="false"))
    table.update(_config("Model", perm=READ | INHERIT))
    config = table.create_for_send("New", "Model", 9, 0, "p")
    assert config is not None and (config.perm, config.write_queue_nums) == (READ, 4)


def test_auto_creation_can_be_disabled_and_enabled() -> None:
    settings = broker_settings()
    table = _table(settings)
    settings.auto_create_topic_enable = False
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is None
    settings.auto_create_topic_enable = True
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is not None


def test_auto_creation_disabled_at_start_can_be_enabled() -> None:
    settings = broker_settings(autoCreateTopicEnable="false")
    table = _table(settings)
    settings.auto_create_topic_enable = True
    table.ensure_system_topics()
    assert table.create_for_send("New", "TBW102", 4, 0, "p") is not None


def test_default_topic_disabled_by_apache_is_repaired() -> None:
    table, other = _table(), _table()
    other.update(_config("TBW102", perm=READ_WRITE))
    table.decode(other.encode())
    assert perm_text(table.get("TBW102").perm) == "RWX"  # type: ignore[union-attr]


# --- groups' topics ---


def test_group_topic_is_created_once_and_follows_the_order_flag() -> None:
    table = _table()
    config = table.create_for_group("%RETRY%CG", 1)
    assert (config.read_queue_nums, config.perm, config.order) == (1, READ_WRITE, False)
    version = table.version
    assert table.create_for_group("%RETRY%CG", 5) is config
    assert table.version == version
    assert table.create_for_group("%RETRY%CG", 5, order=True).order
    assert table.is_order("%RETRY%CG") and table.get("%RETRY%CG").read_queue_nums == 1  # type: ignore[union-attr]
    assert not config.order


# --- updates ---


def test_updates_keep_attributes_and_notify_listeners() -> None:
    clock = Clock()
    table = _table(clock=clock)
    changes = _changes(table)
    assert table.update(_config("T"), {"+message.type": "FIFO"})
    clock.pass_seconds(1)
    assert table.update(_config("T", write_queue_nums=9))
    config = table.get("T")
    assert config is not None and config.attributes == {"message.type": "FIFO"}
    assert config.write_queue_nums == 9
    assert not table.update(_config("T", write_queue_nums=9))
    assert len(changes) == 2
    assert (table.data_version.counter, table.data_version.timestamp) == (2, START_MS + 1000)


def test_one_invalid_change_rejects_all() -> None:
    table = _table()
    before = table.version
    with pytest.raises(AttributeProblem):
        table.update_all([(_config("A"), {}), (_config("B"), {"+message.type": "?"})])
    assert "A" not in table and table.version == before


def test_deletion_notifies_listeners_once() -> None:
    table = _table()
    table.update(_config("T"))
    changes = _changes(table)
    assert table.delete(["T", "Unknown"]) == ["T"]
    assert table.delete(["T"]) == []
    assert [change.removed for change in changes] == [("T",)]


def test_order_topics_of_the_name_server_are_marked() -> None:
    table = _table()
    table.update_all([(_config("A"), {}), (_config("B", order=True), {})])
    changes = _changes(table)
    table.mark_order_topics(["A", "B", "Unknown"])
    table.mark_order_topics(["A"])
    assert [[config.topic_name for config in change.updated] for change in changes] == [["A"]]
    assert table.is_order("A")


# --- the file ---


def test_apaches_file_round_trip() -> None:
    content = _APACHES_FILE.read_bytes()
    table = _table()
    table.decode(content)
    assert json.loads(table.encode()) == json.loads(content)
    timer = table.get("TopicTimer")
    assert timer is not None and timer.attributes == {"message.type": "DELAY"}
    assert table.data_version.counter == json_file("protocol/config/topics.json")["dataVersion"]["counter"]


def test_a_topic_with_compaction_in_apaches_file_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    compacted = _config("Latest", attributes={"cleanup.policy": "COMPACTION"})
    source = TopicConfigSerializeWrapper(
        topic_config_table={"Latest": compacted, "Plain": _config("Plain")},
        data_version=_table().data_version,
    )
    table = _table()
    table.decode(source.encode())
    assert table.get("Latest") == compacted
    (record,) = caplog.records
    assert "topic is not compacted topic=Latest cleanup.policy=COMPACTION" in record.getMessage()


def test_a_snapshot_follows_every_change() -> None:
    table = _table()

    def written() -> dict[str, TopicConfig]:
        return TopicConfigSerializeWrapper.decode(table.encode()).topic_config_table

    for change in (
        lambda: table.update_all([(_config("A"), {}), (_config("B"), {"+message.type": "FIFO"})]),
        lambda: table.update(_config("A", perm=4)),
        lambda: table.create_for_group("%RETRY%CG", 1),
        lambda: table.create_for_group("%RETRY%CG", 1, order=True),
        lambda: table.delete(["B"]),
        lambda: table.mark_order_topics(["A"]),
        lambda: table.decode(_APACHES_FILE.read_bytes()),
    ):
        change()
        assert written() == {config.topic_name: config for config in table.configs()}


def test_damaged_file_changes_nothing() -> None:
    table = _table()
    before = table.encode()
    for content in (b"{", b'{"topicConfigTable":{"A":{"perm":"x"}}}', b"[]"):
        with pytest.raises(BodyError):
            table.decode(content)
    assert table.encode() == before


def test_a_change_while_the_file_is_prepared_is_in_it() -> None:
    table = _table()
    table.update_all([(_config(f"T{number}"), {}) for number in range(1000)])
    steps = table.prepare()
    next(steps)
    table.update(_config("T999", perm=READ))
    table.delete(["T998"])
    assert len(list(steps)) >= 6
    written = TopicConfigSerializeWrapper.decode(table.encode()).topic_config_table
    assert written == {config.topic_name: config for config in table.configs()}
