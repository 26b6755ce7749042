"""Which mappings are accepted (Apache RocketMQ 5.3.3, TopicQueueMappingManager, TopicQueueMappingUtils)."""

from __future__ import annotations

import pytest

from rmq_broker.topics.mapping_rules import (
    MAX_ITEMS_OF_QUEUE,
    MappingProblem,
    check_items,
    check_mapping,
    check_successor,
)
from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from tests.support.static_topics import EPOCH, item, mapping

_TWO = [item("A"), item("B", 0, 100, generation=1)]


@pytest.mark.parametrize(
    "items",
    [
        [],
        [item("A")],
        _TWO,
        [item("A"), item("B", 0, -1, generation=1)],
        [item("A", end=99), item("B", 0, 100, generation=5)],
        [item("B", 0, 100, generation=7)],  # the items before it were removed
    ],
)
def test_items_that_are_accepted(items: list[LogicQueueMappingItem]) -> None:
    check_items("q", items)


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([LogicQueueMappingItem(broker_name="A", start_offset=-1)], "startOffset -1.*must not be negative"),
        ([item("A", generation=-1)], "must not be negative"),
        ([item("A", -1)], "queueId -1 must not be negative"),
        ([item("")], "bname must not be empty"),
        ([LogicQueueMappingItem(broker_name="A", start_offset=5, end_offset=4)], "endOffset 4 is below"),
        ([item("A", 0, -1), item("B", 0, 100, generation=1)], "not the last one, but its logicOffset -1"),
        ([item("A", generation=1), item("B", 0, 100, generation=1)], "generation 1 follows 1"),
        ([item("A"), item("B", 0, 0, generation=1)], r"begins at logicOffset 0, .*\(up to 0\)"),
        ([item("A", end=100), item("B", 0, 100, generation=1)], r"\(up to 100\)"),
        ([item("A", 0, n, generation=n) for n in range(MAX_ITEMS_OF_QUEUE + 1)], "129 items, the limit"),
    ],
)
def test_items_that_are_refused(items: list[LogicQueueMappingItem], problem: str) -> None:
    with pytest.raises(MappingProblem, match=problem):
        check_items("q", items)


@pytest.mark.parametrize(
    ("detail", "problem"),
    [
        (mapping("B", {}), "the mapping is for broker 'B', and this is 'A'"),
        (mapping("A", {}, topic="T"), "that of topic 'T', and the request names 'S'"),
        (mapping("A", {1: [item("A")]}, total=1), "logical queue 1 is outside of the 1 queues"),
        (mapping("A", {-1: [item("A")]}), "logical queue -1 is outside"),
        (mapping("A", {0: [item("A", -1)]}), "topic S, logical queue 0: item of generation 0"),
    ],
)
def test_mappings_that_are_refused(detail: object, problem: str) -> None:
    with pytest.raises(MappingProblem, match=problem):
        check_mapping(detail, "S", "A")  # type: ignore[arg-type]


def _check(
    old: list[LogicQueueMappingItem], new: list[LogicQueueMappingItem] | None, *, later: int = 0
) -> None:
    queues = {} if new is None else {0: new}
    check_successor(mapping("A", {0: old}), mapping("A", queues, total=1, epoch=EPOCH + later))


@pytest.mark.parametrize(
    ("old", "new", "later"),
    [
        (_TWO, _TWO, 0),
        ([item("A"), item("B", 0, -1, generation=1)], _TWO, 0),  # located
        ([item("A")], _TWO, 1),  # remapped
        (_TWO, _TWO[1:], 0),  # the first item was removed
        (_TWO[1:], _TWO, 0),  # the tool has read the mapping before
        (_TWO, None, 1),
        ([], [item("A")], 0),
    ],
)
def test_successors_that_are_accepted(
    old: list[LogicQueueMappingItem], new: list[LogicQueueMappingItem] | None, later: int
) -> None:
    _check(old, new, later=later)


@pytest.mark.parametrize(
    ("old", "new", "later", "problem"),
    [
        (_TWO, _TWO, -1, f"epoch {EPOCH - 1} of the mapping is older than epoch {EPOCH}"),
        (_TWO, None, 0, "missing in the mapping, which has the epoch of the current one"),
        (_TWO, [], 1, "no items in the mapping, 2 on this broker"),
        ([item("A")], _TWO, 0, "generation 1 leads instead of 0; a new leader needs a higher epoch"),
        (_TWO, [item("A", 1), _TWO[1]], 1, "generation 0 is queue 1 of A .*it is queue 0 of A"),
        (_TWO, [item("C"), _TWO[1]], 1, "queue 0 of C .*items never change"),
        (_TWO, [_TWO[0], item("B", 0, 200, generation=1)], 1, "from logicOffset 200 on; .* from 100 on"),
    ],
)
def test_successors_that_are_refused(
    old: list[LogicQueueMappingItem], new: list[LogicQueueMappingItem] | None, later: int, problem: str
) -> None:
    with pytest.raises(MappingProblem, match=problem):
        _check(old, new, later=later)


def test_another_scope_is_refused() -> None:
    old, new = mapping("A", {}), mapping("A", {})
    new.scope = "other"
    with pytest.raises(MappingProblem, match="scope 'other' differs from '__global__'"):
        check_successor(old, new)
