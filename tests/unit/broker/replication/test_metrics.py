"""Metrics of replication on a master."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmq_broker.replication.metrics import ReplicationCollector
from rmq_broker.store.api import MessageStore
from tests.support.clock import START_MS
from tests.support.cold_log import make_cold
from tests.support.stores import opened, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = opened(tmp_path)
    yield store
    store.close()


def _lag(store: MessageStore, unit: str) -> float:
    """Return the lag of the only replica."""
    master = cast(Any, SimpleNamespace(follower=None))
    families = ReplicationCollector(master, store, lambda: START_MS).collect()
    (family,) = [each for each in families if each.name == f"rmq_replica_lag_{unit}"]
    ((_, lag),) = family.series
    assert isinstance(lag, int | float)
    return lag


@pytest.mark.parametrize("messages", [0, 5, 700, 3000])
def test_the_lag_in_messages(store: MessageStore, messages: int) -> None:
    """700 messages do not fit into one file of the log. Beyond 1000 the number is an estimate."""
    put(store)
    store.replicas.join("r", store.max_phy_offset())
    for _ in range(messages):
        put(store)
    assert _lag(store, "messages") == pytest.approx(messages, rel=0.01)


def test_the_lag_is_unknown_while_its_messages_are_not_in_memory(store: MessageStore) -> None:
    store.replicas.join("r", 0)
    put(store)
    make_cold(store)
    assert math.isnan(_lag(store, "messages"))
    assert math.isnan(_lag(store, "seconds"))
