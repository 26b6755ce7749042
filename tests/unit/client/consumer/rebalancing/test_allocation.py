"""Allocation strategies against the results of Apache's classes, and their invariants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_client import UsageError
from rmq_client.consumer.rebalancing.allocation import (
    Allocation,
    averagely,
    by_circle,
    by_configuration,
    by_consistent_hash,
    by_machine_room,
    nearby,
)
from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import json_file
from tests.support.rows import each_row

_ROWS = json_file("hashes.json")["allocate"]


def _queue(text: str) -> MessageQueue:
    broker_name, _, queue_id = text.rpartition(":")
    return MessageQueue("TopicTest", broker_name, int(queue_id))


def _strategy(row: dict[str, Any]) -> Allocation:
    """Return the strategy of a row, configured as its note says."""
    name, note = row["strategy"], row["note"] or ""
    if name == "AllocateMessageQueueAveragely":
        return averagely
    if name == "AllocateMessageQueueAveragelyByCircle":
        return by_circle
    if name == "AllocateMessageQueueByConfig":
        return by_configuration([_queue("broker-a:1"), _queue("broker-a:3")])
    if name == "AllocateMessageQueueByMachineRoom":
        return by_machine_room(["room1", "room2"])
    if name == "AllocateMachineRoomNearby":
        return nearby(averagely, lambda queue: _before_dash(queue.broker_name), _before_dash)
    assert name == "AllocateMessageQueueConsistentHash"
    return by_consistent_hash(int(note.split()[0]))


def _before_dash(name: str) -> str:
    return name.partition("-")[0]


@each_row("row", _ROWS, ids=lambda row: f"{row['strategy']}-{len(row['consumers'])}")
def test_allocations_match_apaches_classes(row: dict[str, Any]) -> None:
    queues = [_queue(text) for text in row["queues"]]
    strategy = _strategy(row)
    for client_id, expected in row["result"].items():
        assert strategy(client_id, queues, row["consumers"]) == [_queue(text) for text in expected]


def test_the_golden_vectors_contain_all_six_strategies() -> None:
    assert len({row["strategy"] for row in _ROWS}) == 6


@pytest.mark.parametrize("allocation", [averagely, by_circle])
@given(queue_count=st.integers(0, 100), client_count=st.integers(1, 30))
def test_every_queue_has_one_owner_and_shares_are_even(
    allocation: Allocation, queue_count: int, client_count: int
) -> None:
    queues = [MessageQueue("T", "b", number) for number in range(queue_count)]
    clients = [f"c{number}" for number in range(client_count)]
    shares = [allocation(client, queues, clients) for client in clients]
    assert sorted(queue for share in shares for queue in share) == queues
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("allocation", [averagely, by_circle])
def test_a_client_outside_the_group_gets_no_queue(allocation: Allocation) -> None:
    assert allocation("c", [MessageQueue("T", "b", 0)], ["d"]) == []
    assert allocation("c", [MessageQueue("T", "b", 0)], []) == []


_ALL = [
    averagely,
    by_circle,
    by_consistent_hash(),
    by_machine_room(["r"]),
    nearby(averagely, lambda queue: "r", lambda client: "r"),
]


@pytest.mark.parametrize("allocation", _ALL)
@given(queue_count=st.integers(0, 40), client_count=st.integers(1, 12))
def test_every_queue_has_one_owner(allocation: Allocation, queue_count: int, client_count: int) -> None:
    queues = [MessageQueue("T", "r@b", number) for number in range(queue_count)]
    clients = [f"c{number}" for number in range(client_count)]
    shares = [allocation(client, queues, clients) for client in clients]
    assert sorted(queue for share in shares for queue in share) == queues
    assert allocation("nobody", queues, clients) == []


def test_a_consistent_hash_moves_only_the_queues_of_a_leaving_member() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(100)]
    clients = [f"c{number}" for number in range(5)]
    allocation = by_consistent_hash()
    for client in clients[:-1]:
        assert set(allocation(client, queues, clients)) <= set(allocation(client, queues, clients[:-1]))


def test_a_configured_queue_that_does_not_exist_is_left_out() -> None:
    there, gone = MessageQueue("T", "b", 0), MessageQueue("T", "b", 9)
    assert by_configuration([gone, there])("c", [there], ["c"]) == [there]


def test_a_string_is_one_machine_room() -> None:
    queues = [MessageQueue("T", "room1@b", 0), MessageQueue("T", "r@b", 0)]
    assert by_machine_room("room1")("c", queues, ["c"]) == queues[:1]


def test_invalid_strategies_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        by_consistent_hash(0)
    with pytest.raises(UsageError, match="no machine room"):
        nearby(averagely, lambda queue: "", lambda client: "r")("c", [MessageQueue("T", "b", 0)], ["c"])
