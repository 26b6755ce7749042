"""Removal of items that no longer matter (Apache RocketMQ 5.3.3, TopicQueueMappingCleanService)."""

from __future__ import annotations

from datetime import datetime

import pytest

from rmq_broker.static_topics.cleaning import MappingCleaner
from rmq_broker.static_topics.other_brokers import OtherBrokers
from rmq_broker.topics.queue_mapping import QueueMapping
from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.bodies.static_topic import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rmq_remoting.bodies.topic import TopicConfig, TopicOffset, TopicStatsTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_tables import BrokerTables
from tests.support.static_topics import EPOCH, item, mapping
from tests.unit.broker.processors.parts import FakeStore

_OWN = "broker-a"
_FIRST, _LEADER = item("B"), item(_OWN, 0, 100, generation=1)


class _Others(OtherBrokers):
    """Other brokers: the ends of their queue 0, and their mappings, by name."""

    def __init__(self) -> None:
        self.ends: dict[str, tuple[int, int]] = {}
        self.details: dict[str, TopicQueueMappingDetail] = {}
        self.asked: list[tuple[str, RequestCode]] = []

    async def ask(
        self, topic: str, broker_name: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:
        self.asked.append((broker_name, code))
        request = RemotingCommand.request(code, fields)
        if code == RequestCode.GET_TOPIC_CONFIG:
            config = TopicConfigAndQueueMapping(
                topic_name=topic, mapping_detail=self.details.get(broker_name)
            )
            return request.response(ResponseCode.SUCCESS, body=config.encode())
        if broker_name not in self.ends:
            raise CommandError(ResponseCode.SYSTEM_ERROR, "away")
        first, end = self.ends[broker_name]
        table = {MessageQueue(topic, broker_name, 0): TopicOffset(min_offset=first, max_offset=end)}
        return request.response(ResponseCode.SUCCESS, body=TopicStatsTable(offset_table=table).encode())

    async def route_of(self, topic: str) -> TopicRouteData:
        infos = {name: QueueMapping(detail).info for name, detail in self.details.items()}
        return TopicRouteData(topic_queue_mapping_by_broker=infos)


class _Broker(BrokerTables):
    def __init__(self, *items: LogicQueueMappingItem) -> None:
        super().__init__()
        self.others, self.store = _Others(), FakeStore()
        config = TopicConfig(topic_name="S", read_queue_nums=2, write_queue_nums=2)
        self.topics.update_static(config, mapping(_OWN, {0: items}))
        self.hour = 4
        self.cleaner = MappingCleaner(
            self.settings,
            self.topics,
            self.store,
            self.others,
            lambda: datetime(2026, 1, 1, self.hour).timestamp(),
        )

    @property
    def items(self) -> list[LogicQueueMappingItem] | None:
        found = self.topics.mappings.get("S")
        assert found is not None
        return found.detail.hosted_queues.get(0)


@pytest.mark.parametrize(
    ("ends", "removed"), [((0, 0), True), ((7, 7), True), ((0, 7), False), ((6, 7), False), (None, False)]
)
async def test_an_item_without_messages_is_removed(ends: tuple[int, int] | None, removed: bool) -> None:
    broker = _Broker(_FIRST, _LEADER)
    if ends is not None:
        broker.others.ends["B"] = ends
    await broker.cleaner.clean()
    assert broker.items == ([_LEADER] if removed else [_FIRST, _LEADER])
    assert broker.others.asked == [("B", RequestCode.GET_TOPIC_STATS_INFO)]


async def test_an_item_of_this_broker_is_removed() -> None:
    own, leader = item(_OWN, 1), item(_OWN, 0, 100, generation=1)
    broker = _Broker(own, leader)
    broker.store.queues["S", 1] = [1000]
    await broker.cleaner.clean()
    assert broker.items == [own, leader]
    broker.store.queues["S", 1] = []
    broker.store.first_offsets["S", 1] = 1
    await broker.cleaner.clean()
    assert broker.items == [leader]


@pytest.mark.parametrize(
    "items",
    [
        [_LEADER],
        [_FIRST, item(_OWN, 0, -1, generation=1)],  # a remapping is under way
        [item(_OWN), item("B", 0, 100, generation=1)],  # led by another broker
    ],
)
async def test_other_items_stay(items: list[LogicQueueMappingItem]) -> None:
    broker = _Broker(*items)
    broker.others.ends["B"] = (0, 0)
    await broker.cleaner.clean()
    assert broker.items == items


async def test_cleaning_keeps_to_its_hours() -> None:
    broker = _Broker(_FIRST, _LEADER)
    broker.others.ends["B"] = (0, 0)
    broker.hour = 5
    await broker.cleaner.clean_in_time()
    assert broker.items == [_FIRST, _LEADER]
    broker.hour = 4
    await broker.cleaner.clean_in_time()
    assert broker.items == [_LEADER]


_MOVED = [item(_OWN), item("B", 0, 100, generation=1)]
_MOVED_AGAIN = [*_MOVED, item("C", 0, 200, generation=2)]


@pytest.mark.parametrize(
    ("details", "removed"),
    [
        ({"B": mapping("B", {0: _MOVED})}, False),
        ({"C": mapping("C", {0: _MOVED_AGAIN})}, True),
        ({"B": mapping("B", {0: _MOVED}), "C": mapping("C", {0: _MOVED_AGAIN}, epoch=EPOCH + 1)}, False),
        ({}, False),
    ],
)
async def test_a_queue_that_was_remapped_twice_is_forgotten(
    details: dict[str, TopicQueueMappingDetail], removed: bool
) -> None:
    broker = _Broker(*_MOVED)
    broker.others.details = details
    await broker.cleaner.clean()
    assert broker.items == (None if removed else _MOVED)
