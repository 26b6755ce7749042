"""Producers that the tasks of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyspark_rocketmq.sink.connection import Connections
from pyspark_rocketmq.sink.parcels import parcels
from pyspark_rocketmq.sink.settings import SinkSettings
from rmq_client import MessageQueue
from rmq_client.loop_thread import LoopThread
from rmq_remoting.codes import RequestCode
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.spark.sink.parts import encode, rows


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    thread = LoopThread("fake-cluster")
    fake = FakeCluster({"broker-a": {"T": 2}})
    thread.submit(fake.__aenter__()).result()
    yield fake
    thread.submit(fake.__aexit__(None, None, None)).result()
    thread.signal_stop()
    thread.join()


@pytest.fixture
def connections() -> Iterator[Connections]:
    here = Connections()
    yield here
    here.close()


def _settings(cluster: FakeCluster, group: str = "g") -> SinkSettings:
    return SinkSettings(cluster.address, group, topic="T")


def _send(connections: Connections, settings: SinkSettings, body: bytes) -> None:
    with connections.mail(settings) as mail:
        assert mail.deliver(parcels(encode(rows(body=[body])), {}, settings)).result() == {}


def test_tasks_one_after_the_other_use_the_same_connection(
    cluster: FakeCluster, connections: Connections
) -> None:
    for body in (b"1", b"2", b"3"):
        _send(connections, _settings(cluster), body)
    assert cluster.broker.bodies == [b"1", b"2", b"3"]
    assert cluster.broker.connections_opened == 1


def test_queues_are_told(cluster: FakeCluster, connections: Connections) -> None:
    with connections.mail(_settings(cluster)) as mail:
        assert mail.queues(["T"]) == {
            "T": (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1))
        }


def test_of_those_that_nobody_uses_only_the_youngest_stay(
    cluster: FakeCluster, connections: Connections
) -> None:
    for number in range(7):
        _send(connections, _settings(cluster, f"g{number}"), b"x")
    left = [
        request.ext_fields["producerGroup"]
        for request in cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)
    ]
    assert left == ["g0", "g1", "g2"]


def test_one_that_is_in_use_stays(cluster: FakeCluster, connections: Connections) -> None:
    settings = _settings(cluster, "first")
    with connections.mail(settings) as mail:
        for number in range(6):
            _send(connections, _settings(cluster, f"g{number}"), b"x")
        assert mail.deliver(parcels(encode(rows(body=[b"last"])), {}, settings)).result() == {}
    assert cluster.broker.bodies[-1] == b"last"
