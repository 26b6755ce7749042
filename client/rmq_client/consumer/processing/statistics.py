"""Statistics of a consumer per topic (Apache RocketMQ 5.3.3, ConsumerStatsManager)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

# Six intervals make a minute, or an hour.
_SAMPLES: Final = 7
SAMPLE_SECONDS: Final = 10.0
_LONG_SAMPLE_SECONDS: Final = 600.0


@dataclass(slots=True)
class TopicCounts:
    """Counts since the start: messages, calls, and seconds spent in them."""

    consumed: int = 0
    refused: int = 0
    calls: int = 0
    call_seconds: float = 0.0
    pulled: int = 0
    pulls: int = 0
    pull_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """Rates and means of the last minute, refused messages of the last hour, totals since the start.

    Rates are messages per second. `call_ms` is of the last hour if there was no call in the last minute.
    """

    consumed: int
    refused: int
    consumed_per_second: float
    refused_per_second: float
    call_ms: float
    refused_last_hour: int
    pulled_per_second: float
    pull_ms: float


class TopicRecorder:
    """Counts of one topic, and samples of them. Belongs to one loop."""

    __slots__ = ("_hour", "_minute", "counts")

    def __init__(self, now: float) -> None:
        """`now`, here and below: seconds of a monotonic clock."""
        self.counts = TopicCounts()
        start = (now, TopicCounts())
        self._minute: deque[tuple[float, TopicCounts]] = deque([start], _SAMPLES)
        self._hour: deque[tuple[float, TopicCounts]] = deque([start], _SAMPLES)

    def called(self, consumed: int, refused: int, seconds: float) -> None:
        """Count a finished call of the listener."""
        counts = self.counts
        counts.calls += 1
        counts.consumed += consumed
        counts.refused += refused
        counts.call_seconds += seconds

    def pulled(self, messages: int, seconds: float) -> None:
        """Count a pull with messages."""
        counts = self.counts
        counts.pulls += 1
        counts.pulled += messages
        counts.pull_seconds += seconds

    def sample(self, now: float) -> None:
        """Take a sample of the counts; to be called every SAMPLE_SECONDS."""
        self._minute.append((now, replace(self.counts)))
        if now - self._hour[-1][0] >= _LONG_SAMPLE_SECONDS:
            self._hour.append((now, replace(self.counts)))

    def statistics(self, now: float) -> TopicStatistics:
        """Return the current statistics."""
        counts = self.counts
        then, minute = self._minute[0]
        hour = self._hour[0][1]
        seconds = max(now - then, 1.0)
        calls_since = minute if counts.calls > minute.calls else hour
        return TopicStatistics(
            consumed=counts.consumed,
            refused=counts.refused,
            consumed_per_second=(counts.consumed - minute.consumed) / seconds,
            refused_per_second=(counts.refused - minute.refused) / seconds,
            call_ms=_mean_ms(
                counts.call_seconds - calls_since.call_seconds, counts.calls - calls_since.calls
            ),
            refused_last_hour=counts.refused - hour.refused,
            pulled_per_second=(counts.pulled - minute.pulled) / seconds,
            pull_ms=_mean_ms(counts.pull_seconds - minute.pull_seconds, counts.pulls - minute.pulls),
        )


class ConsumerStatistics:
    """Recorders of all topics of a consumer. Belongs to one loop."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecorder] = {}

    def of(self, topic: str, now: float) -> TopicRecorder:
        """Return the topic's recorder, created at its first use."""
        recorder = self.topics.get(topic)
        if recorder is None:
            recorder = self.topics[topic] = TopicRecorder(now)
        return recorder

    def sample(self, now: float) -> None:
        """Take a sample of all counts."""
        for recorder in self.topics.values():
            recorder.sample(now)


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0
