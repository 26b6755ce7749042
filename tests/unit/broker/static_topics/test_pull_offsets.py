"""Offsets in responses to pulls from logical queues (PullMessageProcessor.rewriteResponseForStaticTopic)."""

from __future__ import annotations

import pytest

from rmq_broker.static_topics.pull_offsets import ItemPull, PullOffsets
from rmq_remoting.bodies.static_topic import LogicQueueMappingItem
from rmq_remoting.codes import ResponseCode
from tests.support.rows import each_row
from tests.support.static_topics import item

_FOUND = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_RETRY = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)

_FIRST, _SECOND, _LEADER = item("A"), item("B", 0, 100, generation=1), item("C", 0, 200, generation=2)
_CHAIN = [_FIRST, _SECOND, _LEADER]
_OPEN = [_FIRST, item("B", 0, -1, generation=1)]


def _translated(
    items: list[LogicQueueMappingItem], index: int, asked: int, physical: tuple[int, int, int, int]
) -> tuple[tuple[int, int, int, int], int]:
    offsets, following = ItemPull(items, items[index], asked).in_logical_queue(PullOffsets(*physical))
    return (*offsets,), items.index(following)


@each_row(
    ("index", "asked", "physical", "logical"),
    [
        # found, in the first item, in the middle and at the leader
        (0, 3, (_FOUND, 5, 0, 5), (_FOUND, 5, 0, 200)),
        (1, 3, (_FOUND, 5, 1, 5), (_FOUND, 105, 101, 200)),
        (2, 3, (_FOUND, 5, 1, 9), (_FOUND, 205, 201, 209)),
        # the first item: before its first message, inside of it
        (0, 3, (_MOVED, 4, 4, 9), (_MOVED, 4, 4, 200)),
        (0, 3, (_RETRY, 4, 4, 9), (_MOVED, 4, 4, 200)),
        (0, 3, (_RETRY, 8, 0, 9), (_RETRY, 8, 0, 200)),
        # the middle: before its first message, inside of it
        (1, 3, (_MOVED, 4, 4, 9), (_RETRY, 104, 104, 200)),
        (1, 3, (_RETRY, 8, 0, 9), (_RETRY, 108, 100, 200)),
        # the leader: at its end, behind it, before its first message, a reset
        (2, 9, (_NOT_FOUND, 9, 0, 9), (_NOT_FOUND, 209, 200, 209)),
        (2, 12, (_MOVED, 9, 0, 9), (_MOVED, 209, 200, 209)),
        (2, 3, (_MOVED, 4, 4, 9), (_RETRY, 204, 204, 209)),
        (2, 9, (_MOVED, 2, 0, 9), (_MOVED, 202, 200, 209)),
    ],
)
def test_offsets_within_an_item(
    index: int, asked: int, physical: tuple[int, int, int, int], logical: tuple[int, int, int, int]
) -> None:
    assert _translated(_CHAIN, index, asked, physical) == (logical, index)


@each_row("code", [_NOT_FOUND, _MOVED, _RETRY])
@each_row(("index", "begin"), [(0, 100), (1, 200)])
@each_row("asked", [9, 12])
def test_the_client_goes_on_with_the_next_item(code: int, index: int, begin: int, asked: int) -> None:
    found = _translated(_CHAIN, index, asked, (code, 9, 0, 9))
    assert found == ((_RETRY, begin, begin, 200), index + 1)


def test_the_client_waits_until_the_next_item_is_located() -> None:
    for code in (_NOT_FOUND, _MOVED):
        assert _translated(_OPEN, 0, 9, (code, 9, 0, 9)) == ((_NOT_FOUND, 9, 0, 9), 0)


@pytest.mark.parametrize("code", [_NOT_FOUND, _MOVED])
def test_a_single_item_is_as_a_physical_queue(code: int) -> None:
    assert _translated([_FIRST], 0, 9, (code, 9, 0, 9)) == ((code, 9, 0, 9), 0)


def test_an_item_whose_end_is_known_is_not_read_beyond_it() -> None:
    items = [item("A", end=4), item("B", 0, 100, generation=1)]
    assert _translated(items, 0, 0, (_FOUND, 6, 0, 9))[0] == (_FOUND, 4, 0, 100)
