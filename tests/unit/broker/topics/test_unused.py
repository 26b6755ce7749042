"""Deletion of topics that exist only in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from rmq_broker.topics.deletion import TopicDeletion
from rmq_broker.topics.unused import UnusedTopics
from rmq_remoting.bodies.topic import TopicConfig
from tests.support.broker_tables import BrokerTables
from tests.unit.broker.processors.parts import ended

LOG_BEGIN = 1000


@dataclass
class Queue:
    """A queue; `last` is the physical offset of its newest message."""

    last: int | None
    is_empty: bool = False

    def last_entry(self) -> tuple[int, int, int] | None:
        return None if self.last is None else (self.last, 100, 0)


class Queues:
    """The part of the store that these tests need."""

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[int, Queue]] = {}
        self.rounds = 0

    def topics(self) -> list[str]:
        return list(self.by_topic)

    def of_topic(self, topic: str) -> Mapping[int, Queue]:
        return self.by_topic[topic]

    def delete_topics(self, names: Sequence[str]) -> Future[None]:
        self.rounds += 1
        for name in names:
            del self.by_topic[name]
        return ended()


class Broker(BrokerTables):
    def __init__(self) -> None:
        super().__init__()
        self.queues = Queues()
        deletion = TopicDeletion(self.topics, self.offsets, self.queues, self.statistics)
        self.unused = UnusedTopics(self.topics, self.queues, deletion, lambda: LOG_BEGIN)

    def has(self, name: str, *queues: Queue) -> None:
        self.queues.by_topic[name] = dict(enumerate(queues))


@pytest.fixture
def broker() -> Broker:
    return Broker()


async def test_configured_and_system_topics_stay(broker: Broker) -> None:
    kept = ["Exists", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "rmq_sys_anything", "%LMQ%light"]
    gone = ["Deleted", "%RETRY%group", "%DLQ%group"]
    broker.topics.update(TopicConfig(topic_name="Exists"))
    for name in kept + gone:
        broker.has(name, Queue(last=0))
    assert await broker.unused.delete() == gone
    assert broker.queues.topics() == kept
    assert await broker.unused.delete() == []


async def test_topics_without_messages(broker: Broker) -> None:
    broker.topics.update(TopicConfig(topic_name="Exists"))
    broker.has("Exists", Queue(last=LOG_BEGIN - 1))
    broker.has("all gone", Queue(last=LOG_BEGIN - 1), Queue(last=0))
    broker.has("cleaned already", Queue(last=None, is_empty=True))
    broker.has("one left", Queue(last=LOG_BEGIN - 1), Queue(last=LOG_BEGIN))
    broker.has("ends in a gap", Queue(last=None))
    assert await broker.unused.delete_without_messages() == ["all gone", "cleaned already"]
    assert broker.queues.topics() == ["Exists", "one left", "ends in a gap"]


async def test_group_offsets_are_deleted_too(broker: Broker) -> None:
    """If the topic is created again, its offsets start from 0."""
    broker.topics.update(TopicConfig(topic_name="Exists"))
    for topic in ("Deleted", "Exists"):
        broker.has(topic, Queue(last=0))
        broker.offsets.commit("group", topic, 0, 77)
    await broker.unused.delete()
    assert broker.offsets.topics_of("group") == {"Exists"}


async def test_topics_are_deleted_in_slices_except_recreated_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(35):
        broker.has(f"Topic{number}", Queue(last=0))
    delete_topics = broker.queues.delete_topics

    def delete_and_create(names: Sequence[str]) -> Future[None]:
        deleted = delete_topics(names)
        if broker.queues.rounds == 1:
            broker.topics.update(TopicConfig(topic_name="Topic30"))
        return deleted

    monkeypatch.setattr(broker.queues, "delete_topics", delete_and_create)
    assert len(await broker.unused.delete()) == 34
    assert broker.queues.topics() == ["Topic30"] and broker.queues.rounds == 4
