"""The quick-start programs print what they promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_client import Message, MessageQueue, blocking
from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.processes import interrupt

pytestmark = pytest.mark.thorough

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with cluster_in_a_thread(tmp_path, {"broker-a": {"quickstart": 2}}) as cluster:
        yield cluster


def _command(name: str, cluster: RunningCluster) -> list[str]:
    return [sys.executable, "-W", "error", str(_EXAMPLES / f"quickstart_{name}.py"), cluster.address]


def _run(name: str, cluster: RunningCluster) -> list[str]:
    done = subprocess.run(_command(name, cluster), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_send_consume_and_pull(cluster: RunningCluster) -> None:
    sent = _run("send", cluster)
    assert len(sent) == 10
    assert all(line.startswith("SEND_OK ") for line in sent)

    with subprocess.Popen(
        _command("consume", cluster), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert "waiting for messages" in consumer.stdout.readline()
        got = [consumer.stdout.readline().strip() for _ in range(10)]
        interrupt(consumer)
        assert consumer.wait(20) == 0
        assert consumer.stderr.read() == ""
    assert sorted(line.partition(": ")[2] for line in got) == [f"hello {number}" for number in range(10)]
    offsets = cluster.broker.offsets.offsets_of("quickstart-consumer", "quickstart")
    assert sum(offsets.values()) == 10

    assert sorted(_run("pull", cluster)) == sorted(got)
    assert _run("pull", cluster) == []


def test_orderly(cluster: RunningCluster) -> None:
    with blocking.Producer(cluster.address, group="p") as producer:
        for number in range(4):
            queue = MessageQueue("quickstart", "broker-a", number % 2)
            producer.send(Message("quickstart", b"m%d" % number), queue=queue)
    with subprocess.Popen(
        _command("orderly", cluster), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert "waiting for messages" in consumer.stdout.readline()
        got = [consumer.stdout.readline().strip() for _ in range(6)]
        interrupt(consumer)
        assert consumer.wait(20) == 0
        assert consumer.stderr.read() == ""
    for queue_id in range(2):
        assert [line for line in got if f"queue {queue_id}" in line] == [
            f"m{queue_id} of queue {queue_id}, attempt 1",
            f"m{queue_id} of queue {queue_id}, attempt 2",
            f"m{queue_id + 2} of queue {queue_id}, attempt 1",
        ]


def test_blocking(cluster: RunningCluster) -> None:
    sent, read = _run("blocking", cluster)
    assert read.startswith("read " + sent.removeprefix("sent "))
