"""Alert rules that compare one metric with a number, evaluated as by promtool: `metric{a="x"} > 5`, for 10m.

Rules with more than that (rates, sums, two metrics) are left to promtool.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

_RULE: Final = re.compile(r"\s*(\w+)(?:\{([^}]*)\})?\s*(==|>=|<=|>|<)\s*([\d.]+(?:\s*\*\s*[\d.]+)*)\s*")
_SERIES: Final = re.compile(r"(\w+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|=)\s*"([^"]*)"')
_VALUES: Final = re.compile(r"(?:(_)|(-?[\d.]+)(?:([+-])([\d.]+))?)(?:x(\d+))?")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_UNITS: Final = {"s": 1 / 60, "m": 1, "h": 60}
# A sample is valid until the next one, at most for this time.
_LOOK_BACK_MINUTES: Final = 5

Labels = frozenset[tuple[str, str]]


def minutes(duration: str) -> float:
    """`10m` and `1h` in minutes."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


@dataclass(frozen=True, slots=True)
class Series:
    """A metric minute by minute; None: no sample."""

    name: str
    labels: Labels
    samples: tuple[float | None, ...]

    @classmethod
    def of(cls, item: Mapping[str, str]) -> Series:
        """Parse promtool's notation, e.g. `1x4 0x30`, `2+1x8 _x50`."""
        named = _SERIES.fullmatch(item["series"])
        assert named is not None, item
        labels = frozenset((name, value) for name, _, value in _MATCHER.findall(named[2] or ""))
        return cls(named[1], labels, tuple(_expanded(item["values"])))

    def value_at(self, minute: int) -> float | None:
        """The newest valid sample."""
        begin = max(0, minute - _LOOK_BACK_MINUTES + 1)
        return next(
            (value for value in reversed(self.samples[begin : minute + 1]) if value is not None), None
        )


def _expanded(values: str) -> Iterator[float | None]:
    for word in values.split():
        found = _VALUES.fullmatch(word)
        assert found is not None, word
        nothing, start, sign, step, times = found.groups()
        if nothing:
            yield from [None] * int(times or 1)
            continue
        change = float(step or 0) * (-1 if sign == "-" else 1)
        yield from (float(start) + change * number for number in range(int(times or 0) + 1))


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """An alert that fires when a metric has been beyond a threshold for a time."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    compare: Callable[[float, float], bool]
    limit: float
    for_minutes: float

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> ThresholdRule | None:
        """Parse a rule of the rules file; None for one that is not a threshold rule."""
        found = _RULE.fullmatch(rule["expr"])
        if found is None:
            return None
        metric, matchers, sign, numbers = found.groups()
        limit = prod(float(number) for number in numbers.split("*"))
        return cls(
            metric,
            tuple(_MATCHER.findall(matchers or "")),
            _COMPARE[sign],
            limit,
            minutes(rule.get("for", "0m")),
        )

    def alerts_at(self, minute: int, series: list[Series]) -> set[Labels]:
        """The labels of the alerts that fire at a minute."""
        return {each.labels for each in series if self._matches(each) and self._fires(each, minute)}

    def _matches(self, series: Series) -> bool:
        labels = dict(series.labels)
        return series.name == self.metric and all(
            re.fullmatch(value if sign == "=~" else re.escape(value), labels.get(name, ""))
            for name, sign, value in self.matchers
        )

    def _fires(self, series: Series, minute: int) -> bool:
        since: int | None = None
        for now in range(minute + 1):
            value = series.value_at(now)
            if value is None or not self.compare(value, self.limit):
                since = None
            elif since is None:
                since = now
        return since is not None and minute - since >= self.for_minutes
