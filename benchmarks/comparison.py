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

    `at_least` or `at_most` is the goal for ours / theirs; a figure without either is only shown.
    """

    name: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    must: bool = False
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Ours / theirs, pair by pair."""
        return [one / other for one, other in zip(self.ours, self.theirs, strict=True) if other]

    def quartiles(self) -> tuple[float, float, float]:
        """Of the ratios: lower quartile, median, upper quartile."""
        ratios = self.ratios
        if len(ratios) < 2:
            return ratios[0], ratios[0], ratios[0]
        lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return lower, median, upper

    @property
    def goal(self) -> str:
        """The goal as text."""
        if self.at_least is not None:
            return f">= {self.at_least:g} x" + (" (must)" if self.must else "")
        if self.at_most is not None:
            return f"<= {self.at_most:g} x" + (" (must)" if self.must else "")
        return ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the median ratio reaches the goal; None where there is none."""
        median = self.quartiles()[1]
        if self.at_least is not None:
            return median >= self.at_least
        if self.at_most is not None:
            return median <= self.at_most
        return None


# Measures one side once; the values are in the order of the figures.
Side = Callable[[], Awaitable[Sequence[float]]]


async def alternate(figures: Sequence[Figure], ours: Side, theirs: Side, rounds: int) -> None:
    """Measure both sides `rounds` times, and note what they gave in the figures."""
    for number in range(rounds):
        sides = (("ours", ours), ("theirs", theirs))
        for name, side in sides if number % 2 == 0 else reversed(sides):
            values = await side()
            for figure, value in zip(figures, values, strict=True):
                getattr(figure, name).append(value)
            shown = ", ".join(f"{v:,.1f} {f.unit}" for v, f in zip(values, figures, strict=True))
            print(f"  round {number + 1}, {name}: {shown}", flush=True)
            await asyncio.sleep(0.5)
    for figure in figures:
        lower, median, upper = figure.quartiles()
        print(f"  {figure.name}: {median:.2f} x ({lower:.2f} to {upper:.2f}) {figure.goal}", flush=True)
