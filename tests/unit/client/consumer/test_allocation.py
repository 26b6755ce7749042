"""Allocation against what Apache's classes answer, and what must hold for any group."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_client.consumer.allocation import Allocation, averagely, by_circle
from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import json_file

_STRATEGIES = {
    "AllocateMessageQueueAveragely": averagely,
    "AllocateMessageQueueAveragelyByCircle": by_circle,
}
_ROWS = [row for row in json_file("hashes.json")["allocate"] if row["strategy"] in _STRATEGIES]


def _queue(text: str) -> MessageQueue:
    broker_name, _, queue_id = text.rpartition(":")
    return MessageQueue("TopicTest", broker_name, int(queue_id))


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: f"{row['strategy']}-{len(row['consumers'])}")
def test_as_apache_allocates(row: dict[str, Any]) -> None:
    queues = [_queue(text) for text in row["queues"]]
    for client_id, expected in row["result"].items():
        share = _STRATEGIES[row["strategy"]](client_id, queues, row["consumers"])
        assert share == [_queue(text) for text in expected]


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
def test_who_is_not_in_the_group_gets_nothing(allocation: Allocation) -> None:
    assert allocation("c", [MessageQueue("T", "b", 0)], ["d"]) == []
    assert allocation("c", [MessageQueue("T", "b", 0)], []) == []
