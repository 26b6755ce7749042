"""Assignment of queues: equal to vectors of Apache's broker, and the sharing of POP consumers."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_broker.pop.assignment import STRATEGIES, averagely, by_circle, shared_for_pop
from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import json_file
from tests.support.rows import each_row

_HASHES = json_file("hashes.json")
_VECTORS = [
    vector
    for vector in _HASHES["allocate"]
    if _HASHES["allocate_strategy_names"].get(vector["strategy"]) in STRATEGIES
]


def _queue(text: str) -> MessageQueue:
    broker, _, number = text.rpartition(":")
    return MessageQueue("TopicTest", broker, int(number))


@each_row("vector", _VECTORS)
def test_vectors_of_apaches_broker(vector: dict[str, Any]) -> None:
    strategy = STRATEGIES[_HASHES["allocate_strategy_names"][vector["strategy"]]]
    queues = [_queue(text) for text in vector["queues"]]
    for client, expected in vector["result"].items():
        assert strategy(client, queues, vector["consumers"]) == [_queue(text) for text in expected or ()]


_QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(4)]


@pytest.mark.parametrize("strategy", [averagely, by_circle])
def test_a_client_outside_the_group_gets_no_queue(strategy: Any) -> None:
    assert strategy("x", _QUEUES, ["c1", "c2"]) == []
    assert shared_for_pop(strategy, "x", _QUEUES, ["c1", "c2", "c3", "c4"], 1) == []


@pytest.mark.parametrize("shared_with", [-1, 0, 3, 9])
def test_all_clients_share_all_queues(shared_with: int) -> None:
    everywhere = [MessageQueue("T", "a", -1), MessageQueue("T", "b", -1)]
    assert shared_for_pop(averagely, "c1", _QUEUES, ["c1", "c2", "c3", "c4"], shared_with) == everywhere


def test_queues_are_shared_with_the_next_clients() -> None:
    clients = ["c1", "c2", "c3", "c4"]
    assert shared_for_pop(averagely, "c4", _QUEUES, clients, 1) == _QUEUES[6:] + _QUEUES[:2]


def test_each_of_more_clients_than_queues_gets_one() -> None:
    clients = [f"c{number}" for number in range(6)]
    chosen = [shared_for_pop(averagely, client, _QUEUES[:4], clients, 2) for client in clients]
    assert chosen == [[_QUEUES[number % 4]] for number in range(6)]
