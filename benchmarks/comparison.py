"""Two brokers under the same load, in alternating rounds: the ratio of each pair is what counts.

A machine's speed drifts, so that single figures say little; the two rounds of a pair are neighbours, and the
median of the pairs' ratios with its quartiles says what holds. Which side begins alternates too.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figure:
    """One line of the table: what both sides measured, round by round, and what is to be reached.

    `at_least` or `at_most` is the goal for ours / theirs, `ours_at_least` or `ours_at_most` one for ours
    alone, in the figure's unit; a figure without any is only shown. `theirs` may stay empty.
    """

    name: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    ours_at_least: float | None = None
    ours_at_most: float | None = None
    must: bool = False
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Ours / theirs, pair by pair; empty where there is no other side."""
        if not self.theirs:
            return []
        return [one / other for one, other in zip(self.ours, self.theirs, strict=True) if other]

    def quartiles(self) -> tuple[float, float, float]:
        """Of the ratios (of ours, where there is no other side): lower quartile, median, upper quartile."""
        values = self.ratios or self.ours
        if len(values) < 2:
            return values[0], values[0], values[0]
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return lower, median, upper

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
        """Whether the medians reach the goal; None where there is none."""
        checks = []
        if self.ours_at_least is not None:
            checks.append(statistics.median(self.ours) >= self.ours_at_least)
        if self.ours_at_most is not None:
            checks.append(statistics.median(self.ours) <= self.ours_at_most)
        if self.at_least is not None:
            checks.append(self.quartiles()[1] >= self.at_least)
        if self.at_most is not None:
            checks.append(self.quartiles()[1] <= self.at_most)
        return all(checks) if checks else None

    def summary(self) -> str:
        """One line for who waits for it."""
        lower, median, upper = self.quartiles()
        unit = "x" if self.theirs else self.unit
        return f"{self.name}: {median:.3g} {unit} ({lower:.3g} to {upper:.3g}) {self.goal}"


# Measures one side once; the values are in the order of the figures.
Side = Callable[[], Awaitable[Sequence[float]]]


async def alternate(figures: Sequence[Figure], ours: Side, theirs: Side, rounds: int) -> None:
    """Measure both sides `rounds` times, and note what they gave in the figures."""
    for number in range(rounds):
        sides = (("ours", ours), ("theirs", theirs))
        for name, side in sides if number % 2 == 0 else reversed(sides):
            _note(figures, name, number, await side())
            await asyncio.sleep(0.5)
    for figure in figures:
        print(f"  {figure.summary()}", flush=True)


async def repeat(figures: Sequence[Figure], ours: Side, rounds: int) -> None:
    """The same for figures without another side."""
    for number in range(rounds):
        _note(figures, "ours", number, await ours())
    for figure in figures:
        print(f"  {figure.summary()}", flush=True)


def _note(figures: Sequence[Figure], side: str, number: int, values: Sequence[float]) -> None:
    for figure, value in zip(figures, values, strict=True):
        getattr(figure, side).append(value)
    shown = ", ".join(f"{value:,.4g} {figure.unit}" for value, figure in zip(values, figures, strict=True))
    print(f"  round {number + 1}, {side}: {shown}", flush=True)
