"""Progress of groups (codes 208, 303 and 317)."""

from __future__ import annotations

import pytest

from rmq_broker.processors.admin.consume_progress import ConsumeProgress
from rmq_broker.processors.admin.consume_stats import ConsumeStatsProcessor
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.heartbeat import SubscriptionData
from rmq_remoting.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError, HeaderError
from rmq_remoting.message_queue import MessageQueue
from tests.support.broker_tables import BrokerTables
from tests.support.clock import START_MS
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import FakeStore

_RETRY = "%RETRY%CG"


class _Broker(BrokerTables):
    """Topic T with queues 0 (offsets 5 to 9, stored at 1000 to 5000) and 1 (empty); T2 and a retry topic."""

    def __init__(self) -> None:
        super().__init__()
        for config in (
            TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2),
            TopicConfig(topic_name="T2", read_queue_nums=1, write_queue_nums=1, order=True),
            TopicConfig(topic_name=_RETRY, read_queue_nums=1, write_queue_nums=1),
        ):
            self.topics.update(config)
        self.store = FakeStore()
        self.store.queues["T", 0] = [1000, 2000, 3000, 4000, 5000]
        self.store.first_offsets["T", 0] = 5
        self.store.queues["T2", 0] = [7000]
        progress = ConsumeProgress(self.store, self.offsets, self.statistics, "broker-a", self.clock)
        self.processor = ConsumeStatsProcessor(
            progress, self.topics, self.groups, self.offsets, self.consumers, "192.0.2.1:10911"
        )

    def subscribe(self, *topics: str) -> None:
        self.join(subscriptions=[SubscriptionData(topic=topic, sub_string="*") for topic in topics])

    def stats(self, **fields: str) -> ConsumeStats:
        request = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG", **fields})
        answer = self.processor.of_group(Peer().connection, request)
        assert answer.code == ResponseCode.SUCCESS
        return ConsumeStats.decode(answer.body)

    def spans(self, **fields: str) -> list[QueueTimeSpan]:
        chosen = {"topic": "T", "group": "CG", **fields}
        request = RemotingCommand.request(RequestCode.QUERY_CONSUME_TIME_SPAN, chosen)
        answer = self.processor.time_spans(Peer().connection, request)
        return QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set

    def all_stats(self, **fields: str) -> ConsumeStatsList:
        request = RemotingCommand.request(RequestCode.GET_BROKER_CONSUME_STATS, fields)
        return ConsumeStatsList.decode(self.processor.of_all_groups(Peer().connection, request).body)


def _queue(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def _topics(stats: ConsumeStats) -> list[str]:
    return sorted({queue.topic for queue in stats.offset_table})


def _by_group(told: ConsumeStatsList) -> dict[str, list[ConsumeStats]]:
    return {group: stats for each in told.consume_stats_list for group, stats in each.items()}


async def test_group_position_in_each_queue() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 7)
    group = broker.statistics.of_group("CG", "T")
    broker.clock.pass_seconds(20)
    group.got_messages += 100
    stats = broker.stats()
    assert stats.offset_table == {
        _queue("T", 0): OffsetWrapper(
            broker_offset=10, consumer_offset=7, pull_offset=7, last_timestamp=2000
        ),
        _queue("T", 1): OffsetWrapper(),
    }
    assert stats.consume_tps == 5.0


async def test_deleted_message_has_no_time() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 3)
    reach = broker.stats().offset_table[_queue("T", 0)]
    assert (reach.consumer_offset, reach.last_timestamp) == (3, 0)


async def test_default_topics_are_those_with_offsets() -> None:
    broker = _Broker()
    assert broker.stats().offset_table == {}
    for topic in ("T", _RETRY, "gone"):
        broker.offsets.commit("CG", topic, 0, 1)
    broker.offsets.commit("Other", "T2", 0, 1)
    assert _topics(broker.stats()) == [_RETRY, "T"]


async def test_requested_topic_needs_no_offsets() -> None:
    broker = _Broker()
    assert _topics(broker.stats(topic="T2")) == ["T2"]
    assert broker.stats(topic="gone").offset_table == {}


async def test_unsubscribed_topics_are_left_out() -> None:
    broker = _Broker()
    for topic in ("T", "T2"):
        broker.offsets.commit("CG", topic, 0, 1)
    broker.subscribe("T2")
    assert _topics(broker.stats()) == ["T2"]
    assert _topics(broker.stats(topic="T")) == []
    assert _topics(broker.stats(topic="T", topicList="T;T2;;T;gone;")) == ["T", "T2"]


async def test_a_group_is_needed() -> None:
    with pytest.raises(HeaderError, match="consumerGroup"):
        request = RemotingCommand.request(RequestCode.GET_CONSUME_STATS, {"topic": "T"})
        _Broker().processor.of_group(Peer().connection, request)


async def test_times_of_a_group() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 7)
    first, second = broker.spans()
    assert first == QueueTimeSpan(
        message_queue=_queue("T", 0),
        min_timestamp=1000,
        max_timestamp=5000,
        consume_timestamp=2000,
        delay_time_ms=START_MS - 3000,
    )
    assert second == QueueTimeSpan(
        message_queue=_queue("T", 1), min_timestamp=-1, max_timestamp=-1, consume_timestamp=-1
    )


async def test_group_at_the_tail_has_no_delay() -> None:
    broker = _Broker()
    broker.offsets.commit("CG", "T", 0, 10)
    assert (broker.spans()[0].consume_timestamp, broker.spans()[0].delay_time_ms) == (5000, 0)


@pytest.mark.parametrize(("committed", "consumed_at"), [(None, 1000), (0, 1000), (2, -1)])
async def test_group_before_the_first_message(committed: int | None, consumed_at: int) -> None:
    broker = _Broker()
    if committed is not None:
        broker.offsets.commit("CG", "T", 0, committed)
    span = broker.spans()[0]
    assert (span.consume_timestamp, span.delay_time_ms) == (consumed_at, START_MS - 1000)


async def test_times_of_an_unknown_topic() -> None:
    with pytest.raises(CommandError, match="topic gone does not exist") as refusal:
        _Broker().spans(topic="gone")
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST


async def test_all_groups_of_the_broker() -> None:
    broker = _Broker()
    for group in ("CG", "Idle"):
        broker.groups.update(SubscriptionGroupConfig(group_name=group))
    broker.offsets.commit("CG", "T", 0, 7)
    broker.offsets.commit("CG", "T2", 0, 1)
    broker.offsets.commit("Deleted", "T", 0, 1)
    told = broker.all_stats()
    assert told.broker_addr == "192.0.2.1:10911"
    by_group = _by_group(told)
    assert by_group["Idle"] == []
    assert [_topics(stats) for stats in by_group["CG"]] == [["T"], ["T2"]]
    assert "Deleted" not in by_group
    assert (told.total_diff, told.total_inflight_diff) == (3, 0)

    ordered = broker.all_stats(isOrder="true")
    by_group = _by_group(ordered)
    assert [_topics(stats) for stats in by_group["CG"]] == [["T2"]]
    assert ordered.total_diff == 0

    broker.subscribe("T")
    by_group = _by_group(broker.all_stats())
    assert [_topics(stats) for stats in by_group["CG"]] == [["T"]]
