"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rmq_cli.exits import CommandFailed, Exit
from rmq_cli.times import parse_duration, parse_time, time_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("500ms", 0.5), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("0", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1y", "nan", "inf", "1 hour"])
def test_a_duration_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be read") as told:
        parse_duration(text)
    assert told.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-26T18:00:00+01:00", datetime(2026, 11, 26, 17, tzinfo=UTC)),
        ("2026-11-26T18:00Z", datetime(2026, 11, 26, 18, tzinfo=UTC)),
        ("1764000000123", datetime.fromtimestamp(1_764_000_000.123, UTC)),
        ("1764000000", datetime.fromtimestamp(1_764_000_000, UTC)),
    ],
)
def test_times(text: str, time: datetime) -> None:
    assert parse_time(text) == time


def test_a_time_without_a_zone_is_local() -> None:
    assert parse_time("2026-11-26T18:00") == datetime(2026, 11, 26, 18).astimezone()
    assert parse_time("2026-11-26") == datetime(2026, 11, 26).astimezone()


@pytest.mark.parametrize("text", ["10m", "-10m"])
def test_a_duration_is_so_long_ago(text: str) -> None:
    before = datetime.now(UTC)
    time = parse_time(text)
    assert before <= time + timedelta(minutes=10) <= datetime.now(UTC)


def test_now() -> None:
    before = datetime.now(UTC)
    assert before <= parse_time("now") <= datetime.now(UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12"])
def test_a_time_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be read"):
        parse_time(text)


def test_no_time() -> None:
    assert time_of(0) is None and time_of(-1) is None
