"""Offsets of logical queues (codes 14, 15 and 29 to 32 for static topics)."""

from __future__ import annotations

import asyncio

import pytest

from rmq_broker.clients.first_subscriptions import FirstSubscriptions
from rmq_broker.processors.consumer import ConsumerOffsetProcessor
from rmq_broker.processors.logical_queues import LogicalQueueProcessor
from rmq_broker.processors.offsets import QueueOffsetProcessor
from rmq_broker.static_topics.other_brokers import OtherBrokers
from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_tables import BrokerTables
from tests.support.rows import each_row
from tests.support.static_topics import item, mapping
from tests.unit.broker.processors.parts import FakeStore, answer_of

_OWN = "broker-a"
# Two items with three messages each; the first one is in queue 1 of this broker, or in queue 1 of another.
_LEADER = item(_OWN, 0, 100, generation=1)
_TIMES = {1: [10, 20, 30], 0: [40, 50, 60]}


class _Other(OtherBrokers):
    """The broker B, which has the processors of another broker."""

    def __init__(self, queues: QueueOffsetProcessor, tables: BrokerTables) -> None:
        self._queues = queues
        self._tables = tables
        self.asked: list[dict[str, str]] = []

    async def ask(
        self, topic: str, broker_name: str, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:
        assert (topic, broker_name, fields["lo"], fields["queueId"]) == ("S", "B", "false", "1")
        self.asked.append(fields)
        request = RemotingCommand.request(code, fields)
        if code == RequestCode.QUERY_CONSUMER_OFFSET:
            return request.response(ResponseCode.QUERY_NOT_FOUND, "none")
        processor = {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._queues.by_time,
            RequestCode.GET_MIN_OFFSET: self._queues.min_offset,
            RequestCode.GET_MAX_OFFSET: self._queues.max_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._queues.earliest_time,
        }[code]
        return processor(self._tables.connection, request)


class _Broker(BrokerTables):
    def __init__(self, first_at: str, *items: LogicQueueMappingItem) -> None:
        """`first_at`: the broker of the first item. `items`: others than both."""
        super().__init__()
        store = FakeStore()
        store.queues = {("S", queue_id): times for queue_id, times in _TIMES.items()}
        queues = QueueOffsetProcessor(store)
        self.other = _Other(queues, self)
        self.processor = LogicalQueueProcessor(
            queues,
            ConsumerOffsetProcessor(
                self.offsets, self.groups, self.topics, store, FirstSubscriptions(lambda: 0)
            ),
            self.topics,
            self.offsets,
            store,
            self.other,
            asyncio.get_running_loop(),
        )
        config = TopicConfig(topic_name="S", read_queue_nums=2, write_queue_nums=2)
        hosted = {5: items or (item(first_at, 1), _LEADER)}
        self.topics.update_static(config, mapping(_OWN, hosted, total=8))

    async def ask(self, code: RequestCode, **fields: str) -> dict[str, str]:
        request = RemotingCommand.request(code, {"topic": "S", "queueId": "5", **fields})
        processor = {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.processor.by_time,
            RequestCode.GET_MIN_OFFSET: self.processor.min_offset,
            RequestCode.GET_MAX_OFFSET: self.processor.max_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.processor.earliest_time,
            RequestCode.QUERY_CONSUMER_OFFSET: self.processor.query,
        }[code]
        return (await answer_of(processor(self.connection, request))).ext_fields

    async def offset(self, code: RequestCode, **fields: str) -> int:
        return int((await self.ask(code, **fields))["offset"])


@each_row("first_at", [_OWN, "B"])
@each_row(
    ("time", "lower", "upper"),
    [
        (5, 0, 0),
        (10, 0, 0),
        (20, 1, 1),
        (25, 2, 1),
        (35, 3, 2),
        (40, 3, 100),
        (50, 101, 101),
        (55, 102, 101),
        (99, 103, 102),
    ],
)
async def test_a_search_by_time_finds_the_first_message_of_all_items(
    first_at: str, time: int, lower: int, upper: int
) -> None:
    broker, search = _Broker(first_at), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    assert await broker.offset(search, timestamp=str(time)) == lower
    assert await broker.offset(search, timestamp=str(time), boundaryType="upper") == upper
    assert bool(broker.other.asked) == (first_at == "B" and time < 50)  # the leader may have the answer


@pytest.mark.parametrize("first_at", [_OWN, "B"])
async def test_ends_of_a_logical_queue(first_at: str) -> None:
    broker = _Broker(first_at)
    assert await broker.offset(RequestCode.GET_MIN_OFFSET) == 0
    assert await broker.offset(RequestCode.GET_MAX_OFFSET) == 103
    assert await broker.ask(RequestCode.GET_EARLIEST_MSG_STORETIME) == {"timestamp": "10"}


@pytest.mark.parametrize("first_at", [_OWN, "B"])
async def test_the_end_during_a_remapping_is_that_of_the_last_located_item(first_at: str) -> None:
    broker = _Broker(first_at, item(first_at, 1), item(_OWN, 0, -1, generation=1))
    assert await broker.offset(RequestCode.GET_MAX_OFFSET) == 3


async def test_a_group_has_the_offset_of_the_newest_item() -> None:
    broker = _Broker("B")
    with pytest.raises(CommandError, match="no offset for logical queue 5"):
        await broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG")
    # At the oldest item the client's own wish counts.
    assert ["setZeroIfNotFound" in fields for fields in broker.other.asked] == [False]
    broker.offsets.commit("CG", "S", 0, 2, broker.connection)
    assert await broker.offset(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="CG") == 102


async def test_requests_about_physical_queues_are_passed_on() -> None:
    broker = _Broker("B")
    fields = {"queueId": "1", "lo": "false"}
    assert await broker.offset(RequestCode.GET_MAX_OFFSET, **fields) == 3
    assert await broker.offset(RequestCode.GET_MAX_OFFSET, topic="T") == 0
