"""The tables that `make bench` writes."""

from __future__ import annotations

from benchmarks.comparison import Figure
from benchmarks.report import APACHE, OWN, comparison_table


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
