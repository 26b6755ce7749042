"""Time series of counters over the last minute, hour and day, from a few small samples.

Source of the shape: Apache RocketMQ 5.3.3, StatsItem and StatsItemSet. Unlike there, a counter's first sample
is taken at its creation and the last one at each request. So figures of a minute need no wait of ten seconds,
and figures of an hour no wait of ten minutes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

# Period of the samples, and the samples of each of the three spans.
SAMPLE_EVERY_SECONDS: Final = 10
_HOUR_EVERY: Final = 60
_DAY_EVERY: Final = 360
_MINUTE_POINTS: Final = 6
_HOUR_POINTS: Final = 6
_DAY_POINTS: Final = 24
# Shortest time that a rate is computed over: one message 10 ms ago is not a hundred per second.
_MIN_RATE_MS: Final = SAMPLE_EVERY_SECONDS * 1000

_POINT: Final = 4  # time, messages, bytes, calls


class Totals(NamedTuple):
    """Totals of a counter since its creation; `calls`: requests, 0 if they are not counted."""

    messages: int
    size_bytes: int
    calls: int


class Span(NamedTuple):
    """Figures of a span: the sum, the sum per second, and the sum per call (0 if calls are not counted)."""

    sum: int
    per_second: float
    per_call: float


class Spans(NamedTuple):
    """Figures of up to a minute, an hour and a day before now.

    A span begins with a sample: at least 50 s, 50 minutes and 23 hours ago, or at the counter's creation.
    """

    minute: Span
    hour: Span
    day: Span


class TimeSeries:
    """The history of one counter, in at most 1,152 bytes. One thread samples it; others may read."""

    __slots__ = ("_day", "_hour", "_minute", "_samples", "_totals")

    def __init__(self, totals: Callable[[], Totals], now_ms: int) -> None:
        """`totals` returns the totals so far; they are 0 at the creation of the series."""
        self._totals = totals
        self._samples = 0
        self._minute = array("q", (now_ms, 0, 0, 0))
        self._hour = self._minute[:]
        self._day = self._minute[:]

    def sample(self, now_ms: int) -> None:
        """Sample the totals; must be called every SAMPLE_EVERY_SECONDS."""
        point = (now_ms, *self._totals())
        self._samples += 1
        _append(self._minute, point, _MINUTE_POINTS)
        if self._samples % _HOUR_EVERY == 0:
            _append(self._hour, point, _HOUR_POINTS)
        if self._samples % _DAY_EVERY == 0:
            _append(self._day, point, _DAY_POINTS)

    def messages(self, now_ms: int) -> Spans:
        """Return the messages of each span."""
        return self._spans(now_ms, 1)

    def size_bytes(self, now_ms: int) -> Spans:
        """Return the bytes of each span."""
        return self._spans(now_ms, 2)

    def per_second(self, now_ms: int) -> float:
        """Return the messages per second of the last minute."""
        return _span(self._minute, (now_ms, *self._totals()), 1).per_second

    def _spans(self, now_ms: int, value: int) -> Spans:
        now = (now_ms, *self._totals())
        return Spans(*(_span(points, now, value) for points in (self._minute, self._hour, self._day)))


Key = TypeVar("Key", bound=Hashable)


class SeriesTable(Generic[Key]):
    """Series by key. A tenth of them is sampled each second, to spread the work."""

    def __init__(self) -> None:
        self._slices: tuple[dict[Key, TimeSeries], ...] = tuple({} for _ in range(SAMPLE_EVERY_SECONDS))
        self._turn = 0

    def add(self, key: Key, totals: Callable[[], Totals], now_ms: int) -> None:
        """Begin a series; an existing one of that key is replaced."""
        self._slice(key)[key] = TimeSeries(totals, now_ms)

    def find(self, key: Key) -> TimeSeries | None:
        """Return the series of a key."""
        return self._slice(key).get(key)

    def discard(self, key: Key) -> None:
        """Drop the series of a key, if there is one."""
        self._slice(key).pop(key, None)

    def sample(self, now_ms: int) -> None:
        """Sample the next tenth of the series; must be called once a second."""
        for series in self._slices[self._turn].values():
            series.sample(now_ms)
        self._turn = (self._turn + 1) % len(self._slices)

    def __len__(self) -> int:
        return sum(map(len, self._slices))

    def _slice(self, key: Key) -> dict[Key, TimeSeries]:
        return self._slices[hash(key) % len(self._slices)]


def _append(points: array[int], point: tuple[int, ...], limit: int) -> None:
    points.extend(point)
    if len(points) > limit * _POINT:
        del points[:_POINT]


def _span(points: array[int], now: tuple[int, ...], value: int) -> Span:
    first = points[:_POINT]
    total = now[value] - first[value]
    calls = now[3] - first[3]
    elapsed_ms = max(now[0] - first[0], _MIN_RATE_MS)
    return Span(total, total * 1000 / elapsed_ms, total / calls if calls > 0 else 0.0)
