"""The Spark examples, run as a user runs them, do what their docstrings say.

`make test` runs three of them, `make test-long` all.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.small_cluster import SmallCluster
from tests.support.jvm import QUICK
from tests.support.processes import ServerProcess, run_command
from tests.support.waiting import until_in_thread

_PYSPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"
# Most of it is the start of Spark, which takes a multiple of its few seconds on a busy machine.
_TIMEOUT_SECONDS = 240


def _command(name: str, cluster: SmallCluster) -> list[str]:
    return [sys.executable, str(_EXAMPLES / f"{name}.py"), cluster.address]


def _environment() -> dict[str, str]:
    """The environment without the variables that this process's Spark session has set; examples find their
    Python.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return {"JDK_JAVA_OPTIONS": " ".join(QUICK)} | found


def _run(name: str, cluster: SmallCluster, home: Path) -> list[str]:
    """Return the lines that an example prints. It must end by itself and leave no files in the current
    folder.
    """
    command, environment = _command(name, cluster), _environment()
    done = asyncio.run(
        run_command(command, timeout_s=_TIMEOUT_SECONDS, cwd=home, environment=environment),
    )
    assert done.exit_code == 0, str(done)
    assert list(home.iterdir()) == []
    return done.stdout.splitlines()


@pytest.mark.long
def test_batch_count(cluster: SmallCluster, tmp_path: Path) -> None:
    printed = "\n".join(_run("batch_count", cluster, tmp_path))
    tables = re.findall(r"\| *(\w+)\| *(\d+)\|", printed)
    tags = [("cancelled", "200"), ("paid", "500"), ("sent", "300")]
    queues = [(str(queue_id), "250") for queue_id in range(4)]
    assert tables == tags + queues


@pytest.mark.long
def test_stream_to_console(cluster: SmallCluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = ServerProcess(_command("stream_to_console", cluster), log_path=log, environment=_environment())

    def shown(text: str) -> bool:
        assert running.exit_code is None, running.log_tail()
        return f"|{text}|" in re.sub(r" *\| *", "|", log.read_text())

    try:
        for number in range(3):
            until_in_thread(lambda: shown(f"hello Spark {number}"), _TIMEOUT_SECONDS)  # noqa: B023
        cluster.send("quickstart", 0, [b"one more"], tags="late")
        until_in_thread(lambda: shown("late|one more"), _TIMEOUT_SECONDS)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the JVM gets it, too
        assert asyncio.run(running.wait(_TIMEOUT_SECONDS)) == 0, running.log_tail()
    finally:
        running.kill()
    assert not re.search("Traceback|Exception|ERROR", log.read_text())


@pytest.mark.long
@pytest.mark.skipif(_PYSPARK < (4, 1), reason="transformWithState with rows came with PySpark 4.1")
def test_stateful_per_key(cluster: SmallCluster, tmp_path: Path) -> None:
    printed = _run("stateful_per_key", cluster, tmp_path)
    assert sorted(printed) == ["anna: 3 failures in a row", "carl: 3 failures in a row"]


@pytest.mark.long
def test_join_topics(cluster: SmallCluster, tmp_path: Path) -> None:
    printed = _run("join_topics", cluster, tmp_path)
    assert [re.sub(r"-\w+:", ":", line) for line in printed] == [
        "order a: paid at 10:20",
        "order c: paid at 10:15",
        "order d: paid at 13:05",
        "order b: not paid within an hour",
    ]


@pytest.mark.skipif(_PYSPARK < (4, 1), reason="a streaming sink needs PySpark 4.1")
@pytest.mark.long
def test_sink(cluster: SmallCluster, tmp_path: Path) -> None:
    printed = _run("sink", cluster, tmp_path)
    alerts = [re.fullmatch(r"hot \['(s\d)'\] (\{.*\}) (\S+)", line) for line in printed]
    found = {(alert[1], alert[2]): alert[3] for alert in alerts if alert}
    assert set(found) == {
        (f"s{number % 4}", f'{{"sensor":"s{number % 4}","celsius":{number + 15}}}')
        for number in range(95, 100)
    }
    assert len(printed) == len(set(found.values())) == 5


@pytest.mark.long
def test_reprocess_from_timestamp(cluster: SmallCluster, tmp_path: Path) -> None:
    *first, told, four, five, six = _run("reprocess_from_timestamp", cluster, tmp_path)
    assert first == [
        f"version 1: offset {offset}, {euros} EUR" for offset, euros in enumerate([1, 2, 3, 0, 0, 0])
    ]
    assert told.startswith("The shop sends euros since ")
    assert [four, five, six] == [f"version 2: offset {offset}, {offset + 1} EUR" for offset in (3, 4, 5)]


@pytest.mark.long
def test_json_bodies(cluster: SmallCluster, tmp_path: Path) -> None:
    assert _run("json_bodies", cluster, tmp_path) == [
        "order 1 of anna: None x cup",
        "order 1 of anna: 2 x tea",
        "order 2 of bert: 1 x tea",
        'not parsed: {"id": "four", "lines": 4}',
        """Row(body='{"id":1,"item":"cup"}')""",
    ]


@pytest.mark.long
def test_avro_registry(cluster: SmallCluster, tmp_path: Path) -> None:
    assert _run("avro_registry", cluster, tmp_path) == [
        "no id of a schema: b'a text'",
        "s0: 20.0 degrees, humidity None",
        "s1: 21.0 degrees, humidity None",
        "s2: 22.0 degrees, humidity 0.5",
        "s3: 23.0 degrees, humidity 0.5",
    ]


@pytest.mark.long
def test_protobuf_registry(cluster: SmallCluster, tmp_path: Path) -> None:
    assert _run("protobuf_registry", cluster, tmp_path) == [
        "no id of a schema: b'a text'",
        "s0: 20.0 degrees",
        "s1: 21.0 degrees",
    ]


@pytest.mark.long
@pytest.mark.skipif(_PYSPARK < (4, 2), reason="written for PySpark 4.2 and later")
def test_run_pipeline(cluster: SmallCluster, tmp_path: Path) -> None:
    printed = _run("run_pipeline", cluster, tmp_path)
    large = {line for line in printed if line.startswith("large order: ")}
    assert large == {
        f'large order: {shop} {{"shop":"{shop}","id":1,"amount":{amount}}}'
        for shop in ("berlin", "paris")
        for amount in (2000, 2001)
    }
