"""Offsets of logical queues (Apache RocketMQ 5.3.3, LogicQueueMappingItem, TopicQueueMappingUtils)."""

from __future__ import annotations

import pytest

from rmq_broker.topics.queue_mapping import (
    QueueMapping,
    bounded_logical_offset,
    highest_logical_offset,
    is_ended,
    item_after,
    item_at,
    logical_offset,
    newest_item,
    offset_delta,
    physical_offset,
)
from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError
from tests.support.static_topics import EPOCH, item, mapping

_FIRST, _SECOND, _THIRD = item("A"), item("B", 3, 100, generation=1), item("A", 1, 200, generation=2)
_OPEN = item("C", 0, -1, generation=3)
_CHAIN = [_FIRST, _SECOND, _THIRD, _OPEN]


def _shifted(begin: int, start: int, end: int) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(broker_name="A", logic_offset=begin, start_offset=start, end_offset=end)


@pytest.mark.parametrize(
    ("begin", "start", "end", "physical", "strictly", "loosely"),
    [
        (0, 0, -1, 7, 7, 7),
        (100, 0, -1, 7, 107, 107),
        (100, 10, -1, 7, 100, 100),  # before the item
        (100, 10, -1, 17, 107, 107),
        (100, 10, 15, 17, 107, 105),  # behind the item
        (100, 10, 10, 17, 107, 100),
        (-1, 0, -1, 7, 6, -1),  # not located
    ],
)
def test_logical_offsets(
    begin: int, start: int, end: int, physical: int, strictly: int, loosely: int
) -> None:
    each = _shifted(begin, start, end)
    assert (logical_offset(each, physical), bounded_logical_offset(each, physical)) == (strictly, loosely)


def test_the_other_way_round() -> None:
    each = _shifted(100, 10, 15)
    assert physical_offset(each, logical_offset(each, 12)) == 12
    assert (offset_delta(each), highest_logical_offset(each), is_ended(each)) == (90, 105, True)
    each = _shifted(100, 10, -1)
    assert (highest_logical_offset(each), is_ended(each)) == (100, False)


@pytest.mark.parametrize(
    ("offset", "found"),
    [(-5, _FIRST), (0, _FIRST), (99, _FIRST), (100, _SECOND), (199, _SECOND), (200, _THIRD), (9999, _THIRD)],
)
def test_the_item_with_an_offset(offset: int, found: LogicQueueMappingItem) -> None:
    assert item_at(_CHAIN, offset) is found


def test_the_first_item_holds_what_was_before_it() -> None:
    assert item_at([_SECOND, _THIRD], 7) is _SECOND


def test_items_that_are_not_located_hold_nothing() -> None:
    assert item_at([_OPEN], 0) is None
    with pytest.raises(CommandError, match=r"logical queue 5 of S are not known yet.*remappingStaticTopic"):
        newest_item("S", 5, [_OPEN])


def test_the_next_item() -> None:
    assert item_after(_CHAIN, _FIRST) is _SECOND
    assert item_after(_CHAIN, _SECOND) is _THIRD
    assert item_after(_CHAIN, _THIRD) is None  # the next one is not located
    assert item_after(_CHAIN, _OPEN) is None
    assert item_after(_CHAIN, item("D", generation=9)) is None


def test_a_broker_leads_the_queues_whose_last_item_it_has() -> None:
    found = QueueMapping(mapping("A", {0: [_FIRST, _SECOND], 1: [_FIRST, _SECOND, _THIRD], 2: []}, total=8))
    assert dict(found.leaders) == {1: _THIRD}
    assert found.leader(1) is _THIRD and found.led_items(1) == [_FIRST, _SECOND, _THIRD]
    assert (found.info.current_id_map, found.info.total_queues, found.info.epoch) == ({1: 1}, 8, EPOCH)
    assert (found.info.broker_name, found.info.topic, found.item_count) == ("A", "S", 5)


@pytest.mark.parametrize(
    ("queue", "advice"), [(0, "broker B does"), (2, "ask a name server"), (7, "ask a name server")]
)
def test_other_queues_are_refused(queue: int, advice: str) -> None:
    found = QueueMapping(mapping("A", {0: [_FIRST, _SECOND], 1: [_FIRST], 2: []}, total=8))
    for ask in (found.leader, found.led_items):
        with pytest.raises(CommandError, match=rf"does not lead logical queue {queue} .*{advice}") as refused:
            ask(queue)
        assert refused.value.code == ResponseCode.NOT_LEADER_FOR_QUEUE
