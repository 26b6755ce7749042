"""A cluster in memory with a thread of its own, for tests that run no loop or block theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmq_client.loop_thread import LoopThread
from tests.unit.client.fake_cluster import FakeCluster


@contextmanager
def cluster_in_a_thread(brokers: dict[str, dict[str, int]]) -> Iterator[FakeCluster]:
    thread = LoopThread("fake-cluster")
    cluster = FakeCluster(brokers)
    thread.submit(cluster.__aenter__()).result()
    try:
        yield cluster
    finally:
        thread.submit(cluster.__aexit__()).result()
        thread.signal_stop()
        thread.join()
