"""Marks of running streams."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


def test_new_mark_removes_old_ones_of_ended_processes(tmp_path: Path) -> None:
    for name, age_seconds in (("1-young.json", 5), ("1-old.json", 300)):
        (tmp_path / name).write_text("{}")
        at = time.time() - age_seconds
        os.utime(tmp_path / name, (at, at))
    first, second = RunningMark(tmp_path), RunningMark(tmp_path)
    first.update(AT)
    kept = {path.name for path in tmp_path.iterdir()}
    assert "1-old.json" not in kept
    assert "1-young.json" in kept
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))
    second.update({})
    assert kept - {"1-young.json"} < {path.name for path in tmp_path.iterdir()}
    first.close()
    second.close()


def test_stream_goes_on_without_a_mark(tmp_path: Path) -> None:
    mark = RunningMark(tmp_path / "no" / "such")
    mark.update(AT)
    mark.close()
