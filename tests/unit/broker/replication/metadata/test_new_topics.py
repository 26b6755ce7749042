"""Which topics are created from the log when the master is lost, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.replication.metadata.followed_versions import FollowedVersions
from rmq_broker.replication.metadata.new_topics import FILE_NAME, NewTopics, create_after_promotion
from rmq_broker.store.api import MessageStore
from rmq_broker.topics.service import TopicService
from rmq_broker.topics.table import TopicTable
from tests.support.broker_settings import broker_settings
from tests.support.stores import opened, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = opened(tmp_path / "store")
    yield store
    store.close()


@pytest.fixture
def table() -> TopicTable:
    return TopicTable(broker_settings(), "c", "broker-a", lambda: 1000)


class _Replica:
    """A replica that knows all topics that have messages so far."""

    def __init__(self, store: MessageStore, table: TopicTable) -> None:
        self.versions = FollowedVersions()
        self.changes = 0
        self.new = NewTopics(table, store, self.versions, self._changed)
        self.new.told_up_to(self.new.log_end)

    def _changed(self) -> None:
        self.changes += 1


def test_a_topic_with_newer_messages_than_the_masters_answer_is_created(
    store: MessageStore, table: TopicTable, caplog: pytest.LogCaptureFixture
) -> None:
    replica = _Replica(store, table)
    put(store, topic="New", queue_id=1)
    put(store, topic="Wide", queue_id=6)
    put(store, topic="%RETRY%G")
    replica.new.create()
    queues = {name: table.get(name) for name in ("New", "Wide", "%RETRY%G")}
    assert {name: config and config.read_queue_nums for name, config in queues.items()} == {
        "New": 4,
        "Wide": 7,
        "%RETRY%G": 1,
    }
    assert "topic created from its messages topic=Wide queues=7" in caplog.text


def test_a_topic_that_the_master_had_deleted_is_not_created(store: MessageStore, table: TopicTable) -> None:
    put(store, topic="Deleted")
    replica = _Replica(store, table)
    put(store, topic="New")
    replica.new.create()
    assert "New" in table
    assert "Deleted" not in table


def test_without_an_answer_of_a_master_no_topic_is_created(store: MessageStore, table: TopicTable) -> None:
    put(store, topic="T")
    NewTopics(table, store, FollowedVersions(), lambda: None).create()
    assert "T" not in table


def test_a_light_queue_is_no_topic(store: MessageStore, table: TopicTable) -> None:
    replica = _Replica(store, table)
    put(store, topic="%LMQ%q")
    replica.new.create()
    assert "%LMQ%q" not in table


def test_the_same_end_of_the_log_is_written_once(store: MessageStore, table: TopicTable) -> None:
    replica = _Replica(store, table)
    replica.new.told_up_to(replica.new.log_end)
    assert replica.changes == 1


# --- at the start of a former replica as the master ---


async def _promoted(folder: Path, store: MessageStore) -> TopicService:
    topics = TopicService(broker_settings(storePathRootDir=str(folder)), lambda: 1000)
    topics.load()
    topics.start()
    await create_after_promotion(folder / "config", topics, store)
    await topics.save()
    return topics


async def test_a_promoted_replica_creates_new_topics_once(tmp_path: Path, store: MessageStore) -> None:
    config = tmp_path / "config"
    config.mkdir()
    versions = FollowedVersions()
    versions.topics_log_end = 0
    (config / FILE_NAME).write_bytes(versions.encode())
    put(store, topic="New")
    topics = await _promoted(tmp_path, store)
    assert "New" in topics.table

    topics.table.delete(["New"])
    await topics.save()
    assert "New" not in (await _promoted(tmp_path, store)).table


async def test_a_master_that_was_never_a_replica_creates_no_topic(
    tmp_path: Path, store: MessageStore
) -> None:
    (tmp_path / "config").mkdir()
    put(store, topic="T")
    assert "T" not in (await _promoted(tmp_path, store)).table
    assert not (tmp_path / "config" / FILE_NAME).exists()


async def test_a_damaged_file_of_versions_does_not_stop_a_master(
    tmp_path: Path, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / FILE_NAME).write_bytes(b"{")
    await _promoted(tmp_path, store)
    assert "new topics of the former master not looked for" in caplog.text
