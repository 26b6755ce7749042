"""Counts of events of one kind, such as messages sent back, by group and topic, with their time series."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .time_series import SeriesTable, TimeSeries, Totals

if TYPE_CHECKING:
    from ..clock import ClockMs

GroupTopic = tuple[str, str]


class EventCounts:
    """One kind of event, by group and topic. Belongs to the loop's thread; other threads may read."""

    def __init__(self, now_ms: ClockMs) -> None:
        self.total = 0  # never falls, even when groups or topics are forgotten
        self._now_ms = now_ms
        # By group and topic: messages, and calls of `add`.
        self._counts: dict[GroupTopic, list[int]] = {}
        self._series: SeriesTable[GroupTopic] = SeriesTable()

    def add(self, group: str, topic: str, messages: int = 1) -> None:
        """Count an event of one or several messages."""
        counted = self._counts.get((group, topic))
        if counted is None:
            counted = self._begin((group, topic))
        counted[0] += messages
        counted[1] += 1
        self.total += messages

    def counts(self) -> dict[GroupTopic, int]:
        """Return the messages by group and topic."""
        return {key: counted[0] for key, counted in self._counts.copy().items()}

    def series(self, group: str, topic: str) -> TimeSeries | None:
        """Return the time series of a group and topic."""
        return self._series.find((group, topic))

    def sample(self, now_ms: int) -> None:
        """Sample the counts; must be called once a second."""
        self._series.sample(now_ms)

    def forget_topic(self, topic: str) -> None:
        """Drop the counts of a deleted topic."""
        self._forget([key for key in self._counts if key[1] == topic])

    def forget_group(self, group: str) -> None:
        """Drop the counts of a deleted group."""
        self._forget([key for key in self._counts if key[0] == group])

    def _forget(self, keys: list[GroupTopic]) -> None:
        for key in keys:
            del self._counts[key]
            self._series.discard(key)

    def _begin(self, key: GroupTopic) -> list[int]:
        counted = self._counts[key] = [0, 0]
        self._series.add(key, partial(_totals, counted), self._now_ms())
        return counted


def _totals(counted: list[int]) -> Totals:
    return Totals(counted[0], 0, counted[1])
