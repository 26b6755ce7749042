"""The parts of the pipeline that need neither a broker nor Spark."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from examples.pipeline.chart import Progress, draw, lag
from examples.pipeline.check import Work
from examples.pipeline.lines import MINUTE, AlertRule, Tally
from examples.pipeline.make_log import BEGIN, LATEST_SECONDS, log_lines
from examples.pipeline.programs import Program, ProgramFailed
from examples.pipeline.records import Follower, append
from examples.pipeline.run import fresh, usual_watermark_minutes, watermark_seconds
from tests.unit.examples.finished_run import finished_run

_NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def _line(when: str, status: int = 200) -> bytes:
    return b'1.2.3.4 - frank [%s] "GET /a b HTTP/1.1" %d 17 "-" "x"' % (when.encode(), status)


def test_lines_are_counted_by_minute_of_utc_and_status() -> None:
    tally = Tally.of(
        [
            _line("31/Jan/2026:12:00:00 +0000"),
            _line("31/Jan/2026:13:00:59 +0100"),
            _line("31/Jan/2026:12:01:00 +0000", 503),
            b"",
            b'1.2.3.4 - - [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1" 20',
        ]
    )
    assert tally.counts == Counter({(_NOON, 200): 2, (_NOON + MINUTE, 503): 1})
    assert (tally.unreadable, tally.total, tally.last_minute) == (2, 5, _NOON + MINUTE)


def test_a_tally_survives_its_file(tmp_path: Path) -> None:
    tally = Tally.of([_line("31/Jan/2026:12:00:00 +0000"), b"?"])
    tally.save(tmp_path / "tally")
    assert Tally.load(tmp_path / "tally") == tally


def test_a_log_is_made_the_same_again_and_is_hardly_out_of_order() -> None:
    lines = [line.encode() for line in log_lines(20_000, hours=1)]
    assert lines == [line.encode() for line in log_lines(20_000, hours=1)]
    assert lines != [line.encode() for line in log_lines(20_000, hours=1, seed=2)]
    tally = Tally.of(lines)
    assert 0 < tally.unreadable < 20
    assert min(tally.counts)[0] >= BEGIN - timedelta(seconds=LATEST_SECONDS) - MINUTE
    assert tally.last_minute == BEGIN + timedelta(hours=1) - MINUTE
    newest = BEGIN
    disorder = timedelta()
    for line in lines:
        if Tally.of([line]).unreadable == 0:
            moment = datetime.strptime(line.split(b"[")[1][:26].decode(), "%d/%b/%Y:%H:%M:%S %z")
            disorder = max(disorder, newest - moment)
            newest = max(newest, moment)
    assert timedelta(seconds=2) < disorder <= timedelta(seconds=LATEST_SECONDS + 1)


def test_the_log_has_two_outages() -> None:
    tally = Tally.of(line.encode() for line in log_lines(20_000, hours=2))
    minutes: dict[datetime, list[int]] = {}
    for (minute, status), count in tally.counts.items():
        lines = minutes.setdefault(minute, [0, 0])
        lines[0] += count
        lines[1] += count if status >= 500 else 0
    bad = [
        minute for minute, (lines, errors) in sorted(minutes.items()) if AlertRule().applies(lines, errors)
    ]
    gaps = [later - earlier for earlier, later in pairwise(bad)]
    assert len(bad) >= 6
    assert sum(gap > MINUTE for gap in gaps) == 1


def test_a_rule_is_exact_at_its_edge() -> None:
    rule = AlertRule(percent=10, errors=5)
    assert rule.applies(50, 5)
    assert not rule.applies(51, 5)
    assert not rule.applies(10, 4)


def test_records_are_followed_up_to_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "records"
    follower = Follower(path)
    assert follower.take() == []
    append(path, {"a": 1})
    append(path, {"a": 2})
    with path.open("a") as file:
        file.write('{"a"')
    assert follower.take() == [{"a": 1}, {"a": 2}]
    assert follower.take() == []
    with path.open("a") as file:
        file.write(": 3}\n")
    assert follower.take() == [{"a": 3}]


def test_lag_is_what_was_sent_and_is_in_no_finished_batch() -> None:
    sent = Progress([0.0, 10.0], [0, 1000])
    read = Progress([0.0, 4.0, 12.0], [0, 300, 1000])
    assert sent.rates(1.0) == ([0.0, 10.0], [100.0])
    assert read.rates(5.0) == ([0.0, 12.0], [1000 / 12])
    times, behind = lag(sent, read)
    at = dict(zip(times, behind, strict=True))
    assert at[0.0] == 0
    assert at[4.0] == 100
    assert at[12.0] == 0
    assert max(behind) == pytest.approx(700, abs=5)


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    work = finished_run(tmp_path)
    draw(work)
    assert work.chart.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no records of a run"):
        draw(Work(tmp_path / "nothing"))


def test_only_a_folder_of_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    work = fresh(tmp_path / "new")
    work.log.touch()
    assert not fresh(tmp_path / "new").log.exists()
    precious = tmp_path / "mine" / "letter"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(ProgramFailed, match="choose another folder with --work"):
        fresh(precious.parent)
    assert precious.exists()


async def test_a_program_that_fails_shows_its_last_words(tmp_path: Path) -> None:
    dies = [sys.executable, "-c", "print('no room'); raise SystemExit(3)"]
    async with Program("writer", dies, tmp_path) as program:
        with pytest.raises(ProgramFailed, match=r"no room\n.*writer ended with exit code 3"):
            await program.done()
        with pytest.raises(ProgramFailed, match="ended with exit code"):
            await program.says("ready", 20)


async def test_a_program_is_ended_with_its_context(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import time; print('ready to wait', flush=True); time.sleep(600)"]
    async with Program("waiter", waits, tmp_path) as program:
        assert await program.says("ready", 20) == "ready to wait"
        assert program.running
    assert not program.running
    assert await asyncio.wait_for(program.ended(), 20) == -15


@pytest.mark.parametrize(
    ("minutes", "hours", "rate", "seconds"),
    [(10, 1.0, 5000.0, 10.0), (10, 1.0, 0.0, math.inf), (20, 0.25, 5000.0, math.inf)],
)
def test_watermark_in_seconds_of_the_run(minutes: int, hours: float, rate: float, seconds: float) -> None:
    options = argparse.Namespace(watermark_minutes=minutes, hours=hours, lines=300_000, rate=rate)
    assert watermark_seconds(options) == seconds


@pytest.mark.parametrize(
    ("faults", "lines", "hours", "rate", "minutes"),
    [
        (False, 5_000_000, 1.0, 20_000.0, 10),
        (True, 5_000_000, 1.0, 20_000.0, 44),  # 120 s of 250 s, where the clock of the log is the fastest
        (True, 300_000, 2.0, 5000.0, 121),  # the whole log is sent in 60 s
        (True, 300_000, 2.0, 0.0, 121),
        (True, 10_000_000, 1.0, 1000.0, 10),
    ],
)
def test_usual_watermark(faults: bool, lines: int, hours: float, rate: float, minutes: int) -> None:
    options = argparse.Namespace(faults=faults, lines=lines, hours=hours, rate=rate)
    assert usual_watermark_minutes(options) == minutes
