"""One program on each kind of deployment: a standalone cluster, and Spark Connect."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.spark.deployments.spark_servers import IS_SPARK_4_0, ConnectServer, StandaloneCluster, environment
from tests.spark.sdk_pull import pulled
from tests.spark.small_cluster import SmallCluster
from tests.spark.test_expired_messages import SMALL_FILES, expire_log_files, fill
from tests.spark.version_marks import needs_trigger_limits
from tests.support.processes import run_command

# Both limits are for a busy machine.
_PROGRAM_SECONDS = 400
_TEST_SECONDS = 500
_MESSAGES_OF_QUEUES = (700, 0, 400)
_EXPIRING = 150

pytestmark = pytest.mark.timeout(_TEST_SECONDS, func_only=True)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


_MISSING = ", ".join(name for name in ("grpc", "grpc_status", "google.rpc", "pandas") if not _is_there(name))


@pytest.fixture
def small_files() -> Iterator[SmallCluster]:
    """A broker whose commit log has small files, so that some of them can be deleted."""
    with SmallCluster(SMALL_FILES) as running:
        yield running


@pytest.fixture
def source(cluster: SmallCluster, topic: str) -> str:
    """A topic with messages, and two topics to copy it to."""
    cluster.create_topic(topic, queues=len(_MESSAGES_OF_QUEUES))
    for queue_id, count in enumerate(_MESSAGES_OF_QUEUES):
        cluster.send(topic, queue_id, (_body(queue_id, number) for number in range(count)))
    for sink in _sinks(topic):
        cluster.create_topic(sink, queues=2)
    return topic


@pytest.mark.long
def test_standalone_cluster_of_two_workers(cluster: SmallCluster, source: str, tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path) as spark:
        where = ["--master", spark.master]
        _run(cluster, source, where, tmp_path / "checkpoint", spark)
    for sink in _sinks(source):
        folders = _copied(cluster, source, sink)
        used = {folder for folder in spark.worker_folders for task in folders if folder in task.parents}
        assert used == set(spark.worker_folders), f"tasks of {sink} ran in {folders}"


@pytest.mark.long
@pytest.mark.skipif(bool(_MISSING), reason=f"a client of Spark Connect needs pyspark[connect]: no {_MISSING}")
def test_spark_connect(cluster: SmallCluster, source: str, tmp_path: Path) -> None:
    """The batch uses the source found by the server, the stream a registered one."""
    # PySpark 4.0 refuses to register a source that it has found.
    register = [] if IS_SPARK_4_0 else ["--register"]
    with ConnectServer(tmp_path) as spark:
        _run(cluster, source, ["--remote", spark.address, *register], tmp_path / "checkpoint", spark)
    for sink in _sinks(source):
        assert _copied(cluster, source, sink)


@pytest.mark.long
@needs_trigger_limits
@pytest.mark.skipif(bool(_MISSING), reason=f"a client of Spark Connect needs pyspark[connect]: no {_MISSING}")
def test_listener_in_a_client_of_spark_connect(small_files: SmallCluster, topic: str, tmp_path: Path) -> None:
    """Lag, losses and their metrics. The first messages of the topic have expired."""
    cluster = small_files
    cluster.create_topic(topic, queues=1)
    fill(cluster, topic, _EXPIRING)
    oldest = expire_log_files(cluster, topic)
    options = {
        "rocketmq.namesrv.addr": cluster.address,
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"broker-a": {"0": 0}}}),
        "failOnDataLoss": "false",
        # The first batch ends within the messages that are left.
        "maxOffsetsPerTrigger": str(oldest + 1),
    }
    command = [sys.executable, "-m", "tests.spark.deployments.listener_program"]
    with ConnectServer(tmp_path) as spark:
        command += [spark.address, str(tmp_path / "checkpoint"), json.dumps(options)]
        finished = asyncio.run(
            run_command(command, timeout_s=_PROGRAM_SECONDS, cwd=tmp_path, environment=environment())
        )
        assert finished.exit_code == 0, f"{finished}\n{spark.logs()}"
    told = json.loads(finished.stdout.splitlines()[-1])
    first, last = told["first"], told["last"]
    by_topic = f'{{query="connected",topic="{topic}"}}'
    by_queue = f'{{broker="broker-a",query="connected",queue_id="0",topic="{topic}"}}'
    left = _EXPIRING - oldest - 1
    assert (first["rows"], first["messages"]) == (1, left)
    assert first["seconds"] > 0
    assert (first["lost"], first["ranges"]) == (oldest, [[[0, oldest]]])
    lines = first["metrics"].splitlines()
    assert f"rmq_spark_lag_messages{by_topic} {left}.0" in lines
    assert f"rmq_spark_lost_messages_total{by_topic} {oldest}.0" in lines
    assert f"rmq_spark_queue_lost_messages_total{by_queue} {oldest}.0" in lines
    # The second run of the query continues after the loss, and counts its own losses.
    assert (last["rows"], last["messages"], last["lost"]) == (left, 0, 0)
    assert f"rmq_spark_lag_messages{by_topic} 0.0" in last["metrics"].splitlines()


def _run(
    cluster: SmallCluster,
    source: str,
    where: Sequence[str],
    checkpoint: Path,
    servers: StandaloneCluster | ConnectServer,
) -> None:
    """Run the program to its end."""
    batch_sink, stream_sink = _sinks(source)
    command = [sys.executable, "-m", "tests.spark.deployments.copy_program", *where]
    command += ["--name-servers", cluster.address, "--source", source, "--checkpoint", str(checkpoint)]
    command += ["--batch-sink", batch_sink, "--stream-sink", stream_sink]
    for key, value in servers.settings().items():
        command += ["--conf", f"{key}={value}"]
    finished = asyncio.run(
        run_command(command, timeout_s=_PROGRAM_SECONDS, cwd=checkpoint.parent, environment=environment())
    )
    assert finished.exit_code == 0, f"{finished}\n{servers.logs()}"


def _copied(cluster: SmallCluster, source: str, sink: str) -> set[Path]:
    """Check that each message was copied once. Return the working folders of the copying tasks."""
    copies = pulled(cluster, sink)
    wanted = {
        f"broker-a/{queue_id}/{offset}": _body(queue_id, offset)
        for queue_id, count in enumerate(_MESSAGES_OF_QUEUES)
        for offset in range(count)
    }
    assert Counter(key for copy in copies for key in copy.keys) == Counter(dict.fromkeys(wanted, 1))
    assert {key: copy.body for copy in copies for key in copy.keys} == wanted
    return {Path(copy.tags or "") for copy in copies}


def _sinks(source: str) -> tuple[str, str]:
    return f"{source}-batch", f"{source}-stream"


def _body(queue_id: int, offset: int) -> bytes:
    return b"message %d of queue %d" % (offset, queue_id)
