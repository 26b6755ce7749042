"""Metrics of timed messages, under Apache's names if it has one (5.3.3, DefaultStoreMetricsManager)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from rmq_remoting.daemon.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from .service import TimerService

_STORE_LABELS: Final = ("storage_type", "storage_medium")
_STORE: Final = ("local", "disk")
_BY_TOPIC: Final = (*_STORE_LABELS, "topic")


class TimerCollector:
    """Collects the metrics of waiting, delivered and delayed messages."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers

    def collect(self) -> Iterable[Family]:
        """Return all families of timed messages."""
        yield from self._apaches()
        yield from self._ours()

    def _apaches(self) -> Iterator[Family]:
        timers, counts = self._timers, self._timers.counts
        for name, meaning, value in (
            (
                "rocketmq_timer_enqueue_lag",
                "Timed messages that are not in the wheel yet.",
                timers.entering.behind,
            ),
            (
                "rocketmq_timer_enqueue_latency_milliseconds",
                "Age of the oldest timed message that is not in the wheel yet.",
                timers.entering.behind_ms(),
            ),
            (
                "rocketmq_timer_dequeue_lag",
                "Entries of the wheel that are not due yet, those of POP included.",
                timers.pending.count,
            ),
            (
                "rocketmq_timer_dequeue_latency_milliseconds",
                "How long the next slot has been due.",
                timers.read_behind_ms(),
            ),
        ):
            yield Family(name, "gauge", meaning, [(_STORE, value)], _STORE_LABELS)
        yield _by_topic(
            "rocketmq_timing_messages",
            "gauge",
            "Timed messages that wait for their delivery time.",
            counts.waiting,
        )
        yield _by_topic(
            "rocketmq_timer_enqueue_total",
            "counter",
            "Timed messages entered into the wheel.",
            counts.entered_total,
        )
        yield _by_topic(
            "rocketmq_timer_dequeue_total", "counter", "Timed messages delivered.", counts.delivered
        )
        yield Family(
            "rocketmq_timer_message_snapshot",
            "gauge",
            "Messages due within the bound in seconds, and not within the previous bound.",
            [((*_STORE, str(bound)), count) for bound, count in timers.distribution.items()],
            (*_STORE_LABELS, "timer_bound_s"),
        )
        yield Family(
            "rocketmq_delay_message_latency_seconds",
            "histogram",
            "Delays of timed messages.",
            [((*_STORE, topic), delays) for topic, delays in counts.delays_seconds.copy().items()],
            _BY_TOPIC,
        )

    def _ours(self) -> Iterator[Family]:
        counts = self._timers.counts
        yield counter(
            "rmq_timer_recalled_total", "Timed messages recalled before their delivery time.", counts.recalled
        )
        yield counter(
            "rmq_timer_rolled_total",
            "Messages entered again, because they were due beyond the window of the wheel.",
            counts.rolled,
        )
        yield counter(
            "rmq_timer_lost_total",
            "Timed messages skipped: unreadable, or without a valid original queue; the log names them.",
            counts.lost,
        )
        yield gauge(
            "rmq_timer_unwritten_bytes",
            "Bytes of the timer log that are not flushed yet.",
            self._timers.pending.timer_log.end - self._timers.pending.timer_log.written,
        )
        yield Family(
            "rmq_timer_lateness_milliseconds",
            "histogram",
            "Time between the due time and the delivery of messages.",
            [((), counts.lateness_ms)],
        )


def _by_topic(
    name: str, kind: Literal["counter", "gauge"], meaning: str, counts: Mapping[str, int]
) -> Family:
    values = [((*_STORE, topic), count) for topic, count in dict(counts).items()]
    return Family(name, kind, meaning, values, _BY_TOPIC)
