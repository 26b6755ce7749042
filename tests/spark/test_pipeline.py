"""`make pipeline` from end to end with few lines: on this machine, and on a standalone cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.pipeline.check import Work
from examples.pipeline.records import read_all
from tests.spark.version_marks import needs_trigger_limits
from tests.support.jvm import QUICK

_ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 280
_FAULTS_SECONDS = 800


def _python(*arguments: str | Path, timeout_seconds: int = _TIMEOUT_SECONDS) -> tuple[int, str]:
    """Run a program of the pipeline; return exit code and output. A program that hangs is ended by SIGINT."""
    command = [sys.executable, "-m", *(str(part) for part in arguments)]
    with subprocess.Popen(
        command,
        cwd=_ROOT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": " ".join(QUICK)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
            pytest.fail(f"not done after {timeout_seconds} s:\n{output}")
    return process.returncode, output


def _run(work: Path, *options: str) -> str:
    """Run the pipeline and return its output.

    The watermark is generous, so that no line is late even if a busy machine lets the driver ask for newest
    offsets slowly.
    """
    small = ("--hours", "1", "--watermark-minutes", "20", "--work", str(work))
    code, output = _python("examples.pipeline.run", *small, *options)
    assert code == 0, output
    return output


@pytest.mark.smoke
@pytest.mark.timeout(_TIMEOUT_SECONDS + 60, func_only=True)
def test_pipeline_counts_every_line_and_detects_a_wrong_count(tmp_path: Path) -> None:
    output = _run(tmp_path / "run", "--lines", "2000")
    assert "check: all counts are equal: " in output
    work = Work(tmp_path / "run")
    assert work.chart.read_bytes().startswith(b"\x89PNG")
    # All lines, and the one that closes the last minute.
    assert sum(batch["rows"] for batch in read_all(work.job_progress)) == 2_001
    assert len({alert["minute"] for alert in read_all(work.alerts)}) >= 3

    part = max(work.aggregates.glob("batch=*/*.parquet"), key=lambda path: path.stat().st_size)
    table = pq.read_table(part, partitioning=None)
    fewer = pc.subtract(table["lines"], pc.cast(pc.equal(table["lines"], pc.max(table["lines"])), "int64"))
    pq.write_table(table.set_column(table.column_names.index("lines"), "lines", fewer), part)
    part.with_name(f".{part.name}.crc").unlink()
    code, output = _python("examples.pipeline.check", work.folder)
    assert code == 1
    assert "check: FAILED" in output
    assert " in the log" in output


@pytest.mark.long
@pytest.mark.timeout(_TIMEOUT_SECONDS + 60, func_only=True)
def test_pipeline_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    output = _run(tmp_path / "run", "--lines", "10000", "--workers", "2")
    assert "2 of 2 workers at work" in output
    assert "check: all counts are equal: " in output


@pytest.mark.long
@pytest.mark.timeout(_FAULTS_SECONDS + 60, func_only=True)
@needs_trigger_limits
@pytest.mark.parametrize("workers", ["0", "2"])
def test_pipeline_counts_every_line_in_spite_of_faults(tmp_path: Path, workers: str) -> None:
    options = ("--lines", "60000", "--rate", "1000", "--hours", "0.25", "--watermark-minutes", "30")
    work = ("--work", str(tmp_path / "run"), "--workers", workers, "--faults")
    code, output = _python("examples.pipeline.run", *options, *work, timeout_seconds=_FAULTS_SECONDS)
    assert code == 0, output
    assert "check: all counts are equal: " in output
    assert "queues retired 8" in output
    for fault in ("broker-b is back", "driver is back", "broker-c retired"):
        assert f"fault: {fault}" in output
