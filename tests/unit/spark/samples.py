"""Queues and offsets for tests, made by hypothesis or by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from pyspark_rocketmq.offsets import MAX_OFFSET, MAX_QUEUE_ID, QueueKey, QueueOffsets

names = st.text(min_size=1, max_size=6)
keys = st.builds(QueueKey, names, names, st.integers(0, MAX_QUEUE_ID))
# Few names, so that queues share topics and brokers.
near_keys = st.builds(QueueKey, st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 12))


def offsets_of(of: st.SearchStrategy[QueueKey], most: int = MAX_OFFSET) -> st.SearchStrategy[QueueOffsets]:
    """Offsets of up to 12 queues."""
    return st.dictionaries(of, st.integers(0, most), max_size=12).map(QueueOffsets)


def queue(number: int, topic: str = "orders", broker: str = "broker-a") -> QueueKey:
    """One queue of a topic."""
    return QueueKey(topic, broker, number)


def offsets(*values: int) -> QueueOffsets:
    """Offsets of queues 0, 1, …"""
    return QueueOffsets({queue(number): value for number, value in enumerate(values)})
