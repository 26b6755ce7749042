"""The tables that `make bench` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison import Figure, count_failed
from benchmarks.load import LoadResult
from benchmarks.report import (
    APACHE,
    BROKER_MARKS,
    OWN,
    Report,
    comparison_table,
    optimizations_of,
    write_report,
)


def test_headings_name_both_brokers_and_each_row_has_a_cell_for_each() -> None:
    figures = [
        Figure("sends", "messages/s", ours=[2.0, 2.0], peer=[1.0, 1.0], at_least=1.0),
        Figure("memory", "MiB", ours=[3.0]),
    ]
    head, line, *rows = comparison_table(figures, OWN, APACHE).splitlines()
    assert head.startswith("| work | this broker (median) | Apache 5.3.3 (median) |")
    assert len(rows) == len(figures)
    assert {row.count("|") for row in (line, *rows)} == {head.count("|")}


def test_failed_sends_stand_beside_the_rate() -> None:
    figure = Figure("sends", "messages/s", ours=[2.0], peer=[1.0])
    figure.failed["ours"] += 7
    assert "| 2 messages/s, failed sends: 7 | 1 messages/s |" in comparison_table([figure], OWN, APACHE)


def test_few_failed_sends_are_counted_for_their_side() -> None:
    figures = [Figure("sends", "messages/s"), Figure("CPU", "µs")]
    count_failed(figures, "peer", LoadResult({"messages": 1000, "errors": 1}))
    count_failed(figures, "ours", LoadResult({"messages": 1000, "errors": 0}))
    assert [(figure.failed["ours"], figure.failed["peer"]) for figure in figures] == [(0, 1), (0, 1)]


def test_a_measurement_with_many_failed_sends_is_refused() -> None:
    with pytest.raises(RuntimeError, match="2 of 1000 sends failed on ours"):
        count_failed([Figure("sends", "messages/s")], "ours", LoadResult({"messages": 1000, "errors": 2}))


def test_a_table_replaces_the_old_one_and_leaves_the_rest_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = BROKER_MARKS
    page.write_text(f"before\n\n{begin}\n\nold\n\n{end}\n\nafter\n")
    figure = Figure("sends", "messages/s", ours=[2.0, 2.0], peer=[1.0, 1.0])
    write_report(Report([figure], BROKER_MARKS, 2, 4, 30, 60.0), page)
    text = page.read_text()
    assert text.startswith(f"before\n\n{begin}\n\nMeasured on ")
    assert text.endswith(f"{end}\n\nafter\n")
    assert "old" not in text.split()
    lines = text.splitlines()
    assert max(len(line) for line in lines if not line.startswith("|")) < 120


@pytest.mark.parametrize(
    ("options", "prefix", "named"),
    [
        ("'--enable-optimizations' '--with-lto'", "/usr/local", "PGO and LTO"),
        ("'--enable-optimizations'", "/opt/python", "PGO"),
        ("'--enable-shared'", "/opt/python", "built without PGO and LTO"),
        ("'--enable-shared'", "/usr", "built by the distribution"),
    ],
)
def test_a_python_build_is_named_by_its_optimizations(options: str, prefix: str, named: str) -> None:
    assert optimizations_of(options, prefix) == named
