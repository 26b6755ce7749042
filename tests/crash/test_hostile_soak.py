"""A short form of `make soak-hostile`: few hostile connections, and no bounds of time."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.crash.growth import growth
from tests.crash.hostile_load import Counts
from tests.crash.hostile_soak import Plan, counts_within, soak

_SECONDS = 6.0


async def test_honest_clients_among_few_hostile_connections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = counts_within(Counts(300, 30, 30, 10), resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    problems = await soak(Plan(counts, _SECONDS, is_timed=False), tmp_path)

    shown = capsys.readouterr().out
    assert problems == [], shown
    assert "open: 300 idle, 30 slow senders" in shown


def test_too_few_open_files_scale_the_connections_down(capsys: pytest.CaptureFixture[str]) -> None:
    counts = counts_within(Counts(10_000, 1_000, 1_000, 100), 6_600)

    assert counts == Counts(5_000, 500, 500, 100)
    assert "scaled down to 50%: 12000 connections need `ulimit -n 12600`" in capsys.readouterr().out


def test_growth_is_found() -> None:
    assert growth("memory", [1.0, 100.0, 100.0, 100.0, 115.0, 115.0], 4.0) == "memory grew from 100 to 115"
    assert not growth("memory", [1.0, 100.0, 100.0, 100.0, 113.0, 113.0], 4.0)
