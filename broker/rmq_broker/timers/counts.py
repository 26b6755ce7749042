"""Counters of the timer, and the number of waiting messages by topic.

The numbers by topic are persisted in `timermetrics` (Apache RocketMQ 5.3.3, TimerMetrics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from rmq_remoting.bodies.timer import TimerMetric, TimerMetricsSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.java_hash import string_hash_code

from ..clock import ClockMs

# Upper bounds in seconds of the delays of timed messages, as in Apache's histogram.
DELAY_BOUNDS_SECONDS: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
LATENESS_BOUNDS_MS: Final = (100, 200, 500, 1000, 1200, 2000, 5000, 60_000)


class TimerCounts:
    """Plain counters; belongs to the loop's thread."""

    def __init__(self, now_ms: ClockMs) -> None:
        self.lost = 0  # messages that were skipped: unreadable, or without a valid original queue
        self.recalled = 0
        self.rolled = 0
        self.delivered: Counter[str] = Counter()
        self.entered_total: Counter[str] = Counter()
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        self.delays_seconds: dict[str, Histogram] = {}
        self._now_ms = now_ms
        # The number of waiting messages by topic, and when it changed last.
        self._waiting: dict[str, int] = {}
        self._topics_by_hash: dict[int, str] = {}
        self._changed_ms: dict[str, int] = {}
        self._changes = 0
        self._last_change_ms = now_ms()

    @property
    def waiting(self) -> dict[str, int]:
        """The number of waiting messages by topic, also 0 for topics that had some before."""
        return self._waiting.copy()

    def entered(self, topic: str, delay_ms: int, *, is_delete: bool) -> None:
        """Count a message that begins to wait; one that recalls another message cancels it out."""
        delays = self.delays_seconds.get(topic)
        if delays is None:
            delays = self.delays_seconds[topic] = Histogram(DELAY_BOUNDS_SECONDS)
        delays.observe(max(0, delay_ms) // 1000)
        self.entered_total[topic] += 1
        self._change(topic, -1 if is_delete else 1)

    def left(self, topic: str) -> None:
        """Count a message that was delivered, or that is entered again."""
        self._change(topic, -1)

    def missed(self, topic: str) -> None:
        """Count a recall whose message was not found."""
        self._change(topic, 1)

    def lost_while_waiting(self, topic_hash: int) -> None:
        """Count a message that cannot be delivered; only its topic's hash is known for certain."""
        self.lost += 1
        if topic_hash not in self._topics_by_hash:
            self._topics_by_hash = {string_hash_code(topic): topic for topic in self._waiting}
        topic = self._topics_by_hash.get(topic_hash)
        if topic in self._waiting:
            self._change(topic, -1)

    def set_waiting(self, by_topic: Mapping[str, int]) -> None:
        """Replace the numbers of waiting messages by topic; other topics have none."""
        self._waiting = {**dict.fromkeys(self._waiting, 0), **by_topic}

    def forget_topics(self, topics: Collection[str]) -> None:
        """Drop the counters of deleted topics."""
        for topic in topics:
            for counted in (self._waiting, self._changed_ms, self.delivered, self.entered_total):
                counted.pop(topic, None)
            self.delays_seconds.pop(topic, None)

    def _change(self, topic: str, by: int) -> None:
        self._waiting[topic] = self._waiting.get(topic, 0) + by
        self._changed_ms[topic] = self._last_change_ms = self._now_ms()
        self._changes += 1

    # --- persistence ---

    def encode(self) -> bytes:
        """Encode `timermetrics`, which slaves request, too."""
        version = DataVersion(counter=self._changes, timestamp=self._last_change_ms)
        counts = {
            topic: TimerMetric(count=count, timestamp_ms=self._changed_ms.get(topic, 0))
            for topic, count in self._waiting.items()
        }
        return TimerMetricsSerializeWrapper(data_version=version, timing_count=counts).encode()

    def decode(self, content: bytes) -> None:
        """Replace the numbers by those of `timermetrics`. Raises BodyError."""
        wrapper = TimerMetricsSerializeWrapper.decode(content)
        self._waiting = {topic: metric.count for topic, metric in wrapper.timing_count.items()}
        self._changed_ms = {topic: metric.timestamp_ms for topic, metric in wrapper.timing_count.items()}
        if wrapper.data_version is not None:
            self._changes = wrapper.data_version.counter
            self._last_change_ms = wrapper.data_version.timestamp
