"""The table of static topics, and its file in Apache's format."""

from __future__ import annotations

import logging

import pytest

from rmq_broker.topics import queue_mappings
from rmq_broker.topics.mapping_rules import MappingProblem
from rmq_broker.topics.queue_mappings import QueueMappings
from rmq_remoting.bodies.static_topic import TopicQueueMappingDetail
from rmq_remoting.bodies.topic import DataVersion
from tests.support.clock import Clock
from tests.support.static_topics import EPOCH, item, mapping

# As Apache's broker writes it.
_FILE = (
    b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},"topicQueueMappingInfoMap":'
    b'{"S":{"bname":"A","currIdMap":{},"dirty":false,"epoch":1700000000000,"hostedQueues":{0:[{"bname":"A",'
    b'"endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},'
    b'"scope":"__global__","topic":"S","totalQueues":1}}}'
)


def _table() -> QueueMappings:
    return QueueMappings("A", Clock())


def _put(table: QueueMappings, detail: TopicQueueMappingDetail, *, force: bool = False) -> None:
    table.put(table.accepted(detail.topic or "", detail, force=force))


def test_a_file_of_apaches_broker_is_read_and_written() -> None:
    table = _table()
    table.decode(_FILE)
    assert table.details() == {"S": mapping("A", {0: [item("A")]})}
    assert table.encode() == _FILE
    list(table.prepare())
    assert table.encode() == _FILE


def test_changes_are_told_and_counted() -> None:
    table, told = _table(), []
    table.on_change(lambda: told.append(table.data_version.counter))
    _put(table, mapping("A", {0: [item("A")]}))
    table.delete(["S", "T"])
    table.delete(["S"])
    assert told == [1, 2] and len(table) == 0 and "S" not in table
    assert b'"topicQueueMappingInfoMap":{}' in table.encode()


def test_queues_that_a_mapping_lacks_stay() -> None:
    table = _table()
    _put(table, mapping("A", {0: [item("A")], 1: [item("A", 1)]}))
    _put(table, mapping("A", {0: [item("A")]}, total=2, epoch=EPOCH + 1))
    assert set(table.details()["S"].hosted_queues) == {0, 1}


def test_force_replaces_a_mapping_that_does_not_fit() -> None:
    table = _table()
    _put(table, mapping("A", {0: [item("A")], 1: [item("A", 1)]}))
    other = mapping("A", {0: [item("A", 7)]}, total=2, epoch=EPOCH - 1)
    with pytest.raises(MappingProblem, match="older"):
        _put(table, other)
    _put(table, other, force=True)
    assert table.details()["S"].hosted_queues == {0: [item("A", 7)], 1: [item("A", 1)]}


def test_the_items_of_a_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_mappings, "MAX_ITEMS_OF_BROKER", 2)
    table = _table()
    _put(table, mapping("A", {0: [item("A")], 1: [item("A", 1)]}))
    _put(table, mapping("A", {0: [item("A")], 1: [item("A", 1)]}))  # replaces them
    with pytest.raises(MappingProblem, match="would have more than 2"):
        _put(table, mapping("A", {0: [item("A")]}, topic="T"))


def test_the_mapping_of_another_broker_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    table = QueueMappings("renamed", Clock())
    with caplog.at_level(logging.ERROR):
        table.decode(_FILE)
    assert len(table) == 0
    assert "broker=A" in caplog.text and "set brokerName back" in caplog.text


def test_a_mapping_that_changed_meanwhile_is_not_cleaned() -> None:
    table = _table()
    _put(table, mapping("A", {0: [item("A")]}))
    seen = table.get("S")
    assert seen is not None
    _put(table, mapping("A", {0: [item("A")]}, epoch=EPOCH + 1))
    assert table.replace_queues(seen, {}) is None
    current = table.get("S")
    assert current is not None and table.replace_queues(current, {}) is table.get("S")


def test_a_replica_follows_the_mappings_of_its_master() -> None:
    table, told = _table(), []
    table.on_change(lambda: told.append(table.data_version.counter))
    version = DataVersion(counter=7, timestamp=EPOCH)
    for topic in ("plain now", "deleted"):
        _put(table, mapping("A", {0: [item("A")]}, topic=topic))
    masters = {"S": mapping("A", {0: [item("A")]}), "T": mapping("B", {}, topic="T")}
    topics = {"S", "T", "plain now"}
    assert table.follow(masters, version, topics) == 2
    assert table.follow(masters, version, topics) == 0
    assert (set(table.details()), table.data_version, told) == ({"S", "deleted"}, version, [1, 2, 7])
