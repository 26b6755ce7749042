"""Producers shared by the tasks of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_rocketmq.sink.producer_pool import ProducerPool
from pyspark_rocketmq.sink.send_requests import send_requests
from pyspark_rocketmq.sink.settings import SinkSettings
from rmq_client import MessageQueue
from rmq_remoting.codes import RequestCode
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.unit.spark.sink.samples import encode, rows


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_in_a_thread(tmp_path, {"broker-a": {"T": 2}}) as cluster:
        yield cluster


@pytest.fixture
def producer_pool() -> Iterator[ProducerPool]:
    here = ProducerPool()
    yield here
    here.close()


def _settings(cluster: RunningCluster, group: str = "g") -> SinkSettings:
    return SinkSettings(cluster.address, group, topic="T")


def _send_with_retries(producer_pool: ProducerPool, settings: SinkSettings, body: bytes) -> None:
    with producer_pool.sender(settings) as sender:
        assert sender.send_all(send_requests(encode(rows(body=[body])), {}, settings)).result() == {}


def test_sequential_tasks_share_a_connection(cluster: RunningCluster, producer_pool: ProducerPool) -> None:
    for body in (b"1", b"2", b"3"):
        _send_with_retries(producer_pool, _settings(cluster), body)
    assert [message.body for message in cluster.broker.messages()] == [b"1", b"2", b"3"]
    assert cluster.broker.connections_opened == 1


def test_queues_of_a_topic(cluster: RunningCluster, producer_pool: ProducerPool) -> None:
    with producer_pool.sender(_settings(cluster)) as sender:
        assert sender.queues(["T"]) == {
            "T": (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1))
        }


def test_least_recently_used_idle_producers_are_stopped(
    cluster: RunningCluster, producer_pool: ProducerPool
) -> None:
    for number in range(7):
        _send_with_retries(producer_pool, _settings(cluster, f"g{number}"), b"x")
    left = [
        request.ext_fields["producerGroup"]
        for request in cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
    ]
    assert left == ["g0", "g1", "g2"]


def test_producer_in_use_is_not_stopped(cluster: RunningCluster, producer_pool: ProducerPool) -> None:
    settings = _settings(cluster, "first")
    with producer_pool.sender(settings) as sender:
        for number in range(6):
            _send_with_retries(producer_pool, _settings(cluster, f"g{number}"), b"x")
        assert sender.send_all(send_requests(encode(rows(body=[b"last"])), {}, settings)).result() == {}
    assert cluster.broker.messages()[-1].body == b"last"
