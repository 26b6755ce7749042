"""Comparison of two sides under the same load, in alternating rounds.

A machine's speed drifts, so single measurements say little. The two rounds of a pair are neighbours in time,
and the result is the median of the pairs' ratios with its quartiles. The side that begins alternates, too.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.load import LoadResult

_MOST_FAILED: Final = 0.001
# Fewer pairs do not support a statement; tables say so beside the result.
FEWEST_PAIRS: Final = 7


@dataclass(slots=True)
class Figure:
    """One row of a table: the measurements of both sides, round by round, and the goal.

    `at_least` or `at_most` is the goal for ours / peer, `ours_at_least` or `ours_at_most` one for ours alone,
    in the unit of the row. A row without a goal is only shown. `peer` is empty for a row without a peer.
    `failed` counts failed sends by side, "ours" or "peer", in all rounds, the warm-up included.
    """

    name: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    ours_at_least: float | None = None
    ours_at_most: float | None = None
    must: bool = False
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def ratios(self) -> list[float]:
        """Ours / peer, pair by pair; empty without a peer."""
        if not self.peer:
            return []
        return [one / other for one, other in zip(self.ours, self.peer, strict=True) if other]

    @property
    def pairs(self) -> int:
        """Number of pairs; of rounds without a peer."""
        return len(self.ratios or self.ours)

    def quartiles(self) -> tuple[float, float, float]:
        """Return lower quartile, median and upper quartile of the ratios; of ours without a peer."""
        return _quartiles(self.ratios or self.ours)

    @property
    def goal(self) -> str:
        """The goal as text."""
        parts = []
        if self.ours_at_least is not None:
            parts.append(f">= {self.ours_at_least:,g} {self.unit}")
        if self.ours_at_most is not None:
            parts.append(f"<= {self.ours_at_most:g} {self.unit}")
        if self.at_least is not None:
            parts.append(f">= {self.at_least:g} x")
        if self.at_most is not None:
            parts.append(f"<= {self.at_most:g} x")
        return " and ".join(parts) + (" (must)" if parts and self.must else "")

    @property
    def is_reached(self) -> bool | None:
        """Whether the worse quartile reaches the goal; None without a goal."""
        checks = []
        lower, _, upper = _quartiles(self.ours)
        if self.ours_at_least is not None:
            checks.append(lower >= self.ours_at_least)
        if self.ours_at_most is not None:
            checks.append(upper <= self.ours_at_most)
        lower, _, upper = self.quartiles()
        if self.at_least is not None:
            checks.append(lower >= self.at_least)
        if self.at_most is not None:
            checks.append(upper <= self.at_most)
        return all(checks) if checks else None

    def summary(self) -> str:
        """Return one line for the terminal."""
        lower, median, upper = self.quartiles()
        unit = "x" if self.peer else self.unit
        return f"{self.name}: {median:.3g} {unit} ({lower:.3g} to {upper:.3g}) {self.goal}"


def count_failed(figures: Sequence[Figure], side: str, result: LoadResult) -> None:
    """Count the failed sends of a measurement. Raises RuntimeError if they are more than 0.1 % of those sent.

    A broker refuses sends that have waited for too long (SYSTEM_BUSY); with more, a rate says nothing.
    """
    if not result.errors:
        return
    print(f"  {result.errors} sends failed on {side}: {result.values}", flush=True)
    if result.errors > _MOST_FAILED * result.messages:
        raise RuntimeError(f"{result.errors} of {result.messages} sends failed on {side}")
    for figure in figures:
        figure.failed[side] += result.errors


# Measures one side once; the values are in the order of the figures.
Side = Callable[[], Awaitable[Sequence[float]]]


async def alternate(
    figures: Sequence[Figure], ours: Side, peer: Side, rounds: int, *, warm_up: bool = False
) -> None:
    """Measure both sides `rounds` times in turns, and add the results to the figures.

    With `warm_up` each side first runs the same load once without being counted.
    """
    if warm_up:
        print("  warming up with the same load", flush=True)
        await ours()
        await peer()
    for number in range(rounds):
        sides = (("ours", ours), ("peer", peer))
        for name, side in sides if number % 2 == 0 else reversed(sides):
            _add(figures, name, number, await side())
            await asyncio.sleep(0.5)
    for figure in figures:
        print(f"  {figure.summary()}", flush=True)


async def repeat(figures: Sequence[Figure], ours: Side, rounds: int) -> None:
    """Measure `rounds` times, for figures without a peer."""
    for number in range(rounds):
        _add(figures, "ours", number, await ours())
    for figure in figures:
        print(f"  {figure.summary()}", flush=True)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, median, upper


def _add(figures: Sequence[Figure], side: str, number: int, values: Sequence[float]) -> None:
    for figure, value in zip(figures, values, strict=True):
        getattr(figure, side).append(value)
    shown = ", ".join(f"{value:,.4g} {figure.unit}" for value, figure in zip(values, figures, strict=True))
    print(f"  round {number + 1}, {side}: {shown}", flush=True)
