"""Metrics of delayed delivery and redelivery.

Names are Apache's where it has one (RocketMQ 5.3.3, BrokerMetricsManager), else they begin with `rmq_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

from ..groups.names import is_system_group

if TYPE_CHECKING:
    from ..delivery.delayed_messages import DelayedMessages
    from ..statistics.broker_statistics import BrokerStatistics
    from ..topics.system_topics import SystemTopics

_LABELS: Final = ("consumer_group", "topic", "is_system")


class DeliveryCollector:
    """Delayed messages, messages sent back, dead letters."""

    def __init__(
        self, delayed: DelayedMessages, statistics: BrokerStatistics, system_topics: SystemTopics
    ) -> None:
        self._delayed = delayed
        self._statistics = statistics
        self._system_topics = system_topics

    def collect(self) -> Iterable[Family]:
        """Return all metric families of delivery."""
        yield from self._delays()
        yield from self._redeliveries()

    def _delays(self) -> Iterator[Family]:
        delayed = self._delayed
        yield Family(
            "rmq_delayed_messages",
            "gauge",
            "Waiting delayed messages, by delay level.",
            [((str(level),), count) for level, count in delayed.waiting().items()],
            ("level",),
        )
        yield counter(
            "rmq_delayed_messages_delivered_total",
            "Delayed messages delivered.",
            delayed.delivered,
        )
        yield counter(
            "rmq_delayed_messages_lost_total",
            "Delayed messages that could not be read or name no valid topic; the log tells each.",
            delayed.lost,
        )
        yield gauge(
            "rmq_delayed_messages_overdue_seconds",
            "Time for which the most overdue delayed message has been due.",
            delayed.overdue_ms() / 1000,
        )
        yield Family(
            "rmq_delayed_messages_lateness_milliseconds",
            "histogram",
            "Lateness of delivered delayed messages.",
            [((), delayed.lateness_ms)],
        )

    def _redeliveries(self) -> Iterator[Family]:
        for name, meaning, counts in (
            (
                "rmq_messages_sent_back_total",
                "Messages that a group sent back and that are redelivered to it.",
                self._statistics.sent_back,
            ),
            (
                "rocketmq_send_to_dlq_messages_total",
                "Messages moved to a group's dead letter topic.",
                self._statistics.dead_letters,
            ),
        ):
            values = [(self._labels(*key), count) for key, count in counts.counts().items()]
            yield Family(name, "counter", meaning, values, _LABELS)

    def _labels(self, group: str, topic: str) -> tuple[str, str, str]:
        is_system = is_system_group(group) or topic in self._system_topics
        return group, topic, "true" if is_system else "false"
