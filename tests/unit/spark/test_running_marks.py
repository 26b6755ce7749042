"""Marks of running streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark_rocketmq.running_marks import RunningMark, running_process

AT = {"T": {"a": {"0": 5}}}

_HOLD = """
import sys, pathlib
from pyspark_rocketmq.running_marks import RunningMark
mark = RunningMark(pathlib.Path(sys.argv[1]))
mark.update({"T": {"a": {"0": 5}}})
print("ready", flush=True)
sys.stdin.read()
"""


def test_mark_of_another_process_is_seen_until_it_ends(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        assert running_process([AT], tmp_path) == str(process.pid)
        assert running_process([{}], tmp_path) is None
    finally:
        process.kill()
        process.communicate()
    assert running_process([AT], tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_mark_follows_the_position_and_goes_with_the_stream(tmp_path: Path) -> None:
    mark = RunningMark(tmp_path)
    mark.update({"Topic": {"broker": {"0": 12345}}})
    mark.update(AT)
    assert running_process([AT], tmp_path) is not None
    mark.close()
    assert list(tmp_path.iterdir()) == []
    mark.close()


def test_stream_goes_on_without_a_mark(tmp_path: Path) -> None:
    mark = RunningMark(tmp_path / "no" / "such")
    mark.update(AT)
    mark.close()
