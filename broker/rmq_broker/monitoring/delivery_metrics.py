"""Metrics of what is delivered later or again.

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
    """Delayed messages, messages that came back, dead letters."""

    def __init__(
        self, delayed: DelayedMessages, statistics: BrokerStatistics, system_topics: SystemTopics
    ) -> None:
        self._delayed = delayed
        self._statistics = statistics
        self._system_topics = system_topics

    def collect(self) -> Iterable[Family]:
        """All families of delivery."""
        yield from self._delays()
        yield from self._returns()

    def _delays(self) -> Iterator[Family]:
        delayed = self._delayed
        yield Family(
            "rmq_delayed_messages",
            "gauge",
            "Delayed messages that wait, by delay level.",
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
            "Delayed messages that could not be read, or belong nowhere; the log says which.",
            delayed.lost,
        )
        yield gauge(
            "rmq_delayed_messages_overdue_seconds",
            "For how long the delayed message that waits longest has been due.",
            delayed.overdue_ms() / 1000,
        )
        yield Family(
            "rmq_delayed_messages_lateness_milliseconds",
            "histogram",
            "How much later than due delayed messages were delivered.",
            [((), delayed.lateness_ms)],
        )

    def _returns(self) -> Iterator[Family]:
        for name, meaning, counts in (
            (
                "rmq_messages_sent_back_total",
                "Messages that a group could not consume and that were stored for it again.",
                self._statistics.sent_back,
            ),
            (
                "rocketmq_send_to_dlq_messages_total",
                "Messages that went to a group's dead letters.",
                self._statistics.dead_letters,
            ),
        ):
            values = [(self._labels(*key), count) for key, count in counts.counts().items()]
            yield Family(name, "counter", meaning, values, _LABELS)

    def _labels(self, group: str, topic: str) -> tuple[str, str, str]:
        is_system = is_system_group(group) or topic in self._system_topics
        return group, topic, "true" if is_system else "false"
