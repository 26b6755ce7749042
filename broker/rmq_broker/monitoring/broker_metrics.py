"""The broker's metrics, with the names and labels of Apache RocketMQ 5.3.3 (BrokerMetricsManager).

`rmq_remoting.daemon` has the metrics of every daemon: loop lag, memory, tiers, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.daemon.daemon_metrics import DaemonMetrics
from rmq_remoting.daemon.exposition import PAUSE, Family, counter

from ..groups.names import is_system_group
from ..offsets.table import NO_OFFSET
from ..topics.names import RETRY_PREFIX, TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from rmq_remoting.daemon.exposition import Collector
    from rmq_remoting.daemon.tasks import TaskSupervisor
    from rmq_remoting.tiers import Tier

    from ..clients.consumers import ConsumerTable
    from ..clients.producers import ProducerTable
    from ..clients.queue_locks import QueueLocks
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..pop.in_flight import InFlight
    from ..pulling.held_pulls import HeldPulls
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics, TopicStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicTable

_CONSUME_MODES: Final = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}

# Apache RocketMQ 5.3.3, MQVersion: ten releases with a snapshot before each make a minor version.
_FIRST_REGULAR_VERSION: Final = 212  # V4_0_0_SNAPSHOT
_LAST_VERSION: Final = 611  # V5_9_9


# Queues of groups that are looked at in one step of a scrape: 0.3 ms.
_QUEUES_PER_STEP: Final = 256


class BrokerMetrics(DaemonMetrics):
    """The metrics of a broker's process."""

    def __init__(
        self, settings: BrokerSettings, supervisor: TaskSupervisor, collectors: Iterable[Collector]
    ) -> None:
        labels = {
            "cluster": settings.broker_cluster_name,
            "node_type": "broker",
            "node_id": settings.broker_name,
        }
        super().__init__(settings, settings.bind_address, labels, supervisor, collectors)


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of the broker that its metrics are collected from."""

    settings: BrokerSettings
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    consumers: ConsumerTable
    queue_locks: QueueLocks
    producers: ProducerTable
    statistics: BrokerStatistics
    store: MessageStore
    held_pulls: HeldPulls
    in_flight: InFlight
    tiers: Sequence[Tier]


class BrokerCollector:
    """Metrics of topics, groups, messages and clients. (Of the store: `store_metrics.py`.)"""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterable[Family]:
        """Return all metric families of the broker itself."""
        yield from self._numbers()
        yield from self._messages()
        yield from self._clients()
        yield from self._order()
        yield from self._tiers()
        yield from self._lag()

    def _numbers(self) -> Iterator[Family]:
        observed = self._observed
        for name, meaning, value in (
            (
                "rocketmq_broker_permission",
                "Permission bits of the broker.",
                observed.settings.broker_permission,
            ),
            ("rocketmq_topic_number", "Topics.", len(observed.topics)),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(observed.groups)),
            ("rmq_held_pulls", "Held pulls.", observed.held_pulls.count),
        ):
            yield Family(name, "gauge", meaning, [((), value)])
        yield counter(
            "rmq_held_pulls_refused_total",
            "Pulls without a message refused, because too many are held, in all or of one connection.",
            observed.held_pulls.refused,
        )

    def _messages(self) -> Iterator[Family]:
        observed = self._observed
        topics = observed.statistics.topics.copy()
        groups = observed.statistics.groups.copy()
        labels = ("topic", "message_type", "is_system")
        system = {name: _boolean(name in observed.topics.system_topics) for name in topics}
        for family, meaning, kind, values in (
            (
                "rocketmq_messages_in_total",
                "Messages stored.",
                "counter",
                _by_type(topics, system, lambda topic: (topic.put_messages, topic.delayed_messages)),
            ),
            (
                "rocketmq_throughput_in_total",
                "Bytes stored.",
                "counter",
                _by_type(topics, system, lambda topic: (topic.put_bytes, topic.delayed_bytes)),
            ),
        ):
            yield Family(family, kind, meaning, values, labels)  # type: ignore[arg-type]
        yield Family(
            "rocketmq_message_size",
            "histogram",
            "Size of the messages stored, in bytes.",
            (((name, "normal", system[name]), topic.put_sizes) for name, topic in topics.items()),
            labels,
        )
        out_labels = ("topic", "consumer_group", "is_retry", "is_system")
        yield Family(
            "rocketmq_messages_out_total",
            "counter",
            "Messages delivered.",
            ((self._out_labels(*key), group.got_messages) for key, group in groups.items()),
            out_labels,
        )
        yield Family(
            "rocketmq_throughput_out_total",
            "counter",
            "Bytes delivered.",
            ((self._out_labels(*key), group.got_bytes) for key, group in groups.items()),
            out_labels,
        )

        yield Family(
            "rmq_messages_filtered_total",
            "counter",
            "Messages skipped by a group's filter.",
            ((self._out_labels(*key), group.filtered_messages) for key, group in groups.items()),
            out_labels,
        )

    def _clients(self) -> Iterator[Family]:
        observed = self._observed
        producers: dict[tuple[str, ...], int] = {}
        for client in observed.producers.clients():
            producer = (client.language.name.lower(), version_text(client.version), "remoting")
            producers[producer] = producers.get(producer, 0) + 1
        yield Family(
            "rocketmq_producer_connections",
            "gauge",
            "Producers connected.",
            list(producers.items()),
            ("language", "version", "protocol_type"),
        )
        consumers: dict[tuple[str, ...], int] = {}
        for group in observed.consumers.groups():
            for client in group.members.values():
                consumer = (
                    group.name,
                    client.language.name.lower(),
                    version_text(client.version),
                    _CONSUME_MODES[group.consume_type],
                    "remoting",
                    _boolean(is_system_group(group.name)),
                )
                consumers[consumer] = consumers.get(consumer, 0) + 1
        yield Family(
            "rocketmq_consumer_connections",
            "gauge",
            "Consumers connected.",
            list(consumers.items()),
            ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        )

    def _order(self) -> Iterator[Family]:
        """Locked queues, and groups whose members have different subscriptions."""
        observed = self._observed
        groups = {group.name: group.consistency.variants for group in observed.consumers.groups()}
        yield Family(
            "rmq_queue_locks",
            "gauge",
            "Queues locked by orderly consumers, by group.",
            [((name,), count) for name, count in observed.queue_locks.counts().items()],
            ("consumer_group",),
        )
        yield Family(
            "rmq_group_subscription_variants",
            "gauge",
            "Different subscriptions within a group, if more than one: such a group loses messages.",
            [((name,), variants) for name, variants in groups.items() if variants > 1],
            ("consumer_group",),
        )

    def _tiers(self) -> Iterator[Family]:
        """Waiting requests by tier, under Apache's name."""
        yield Family(
            "rocketmq_processor_watermark",
            "gauge",
            "Requests that wait for their processor or for its result; held pulls are not counted.",
            [((tier.name,), tier.statistics.waiting) for tier in self._observed.tiers],
            ("processor",),
        )

    def _lag(self) -> Iterator[Family]:
        """Lag of each group with committed offsets, and how much of it is in flight."""
        observed = self._observed
        max_offset, popped = observed.store.max_offset, observed.in_flight.by_group()
        lags: list[tuple[tuple[str, ...], int]] = []
        in_flight: list[tuple[tuple[str, ...], int]] = []
        ready: list[tuple[tuple[str, ...], int]] = []
        looked_at = 0
        for group, topic, offsets in observed.offsets.entries():
            if group not in observed.groups:
                continue
            pulled = observed.offsets.pulled_of(group, topic)
            behind = waiting = 0
            for queue_id, offset in list(offsets.items()):
                looked_at += 1
                if looked_at % _QUEUES_PER_STEP == 0:
                    yield PAUSE
                end = max_offset(topic, queue_id)
                behind += max(0, end - offset)
                waiting += max(0, end - max(offset, pulled.get(queue_id, NO_OFFSET)))
            labels, unacknowledged = self._out_labels(group, topic), popped.get((group, topic), 0)
            lags.append((labels, behind + unacknowledged))
            in_flight.append((labels, behind - waiting + unacknowledged))
            ready.append((labels, waiting))
        for name, meaning, values in (
            ("lag", "Stored messages that a group has not acknowledged or committed.", lags),
            ("inflight", "Messages of the lag that are in flight.", in_flight),
            ("ready", "Messages of the lag that are not delivered yet.", ready),
        ):
            label_names = ("topic", "consumer_group", "is_retry", "is_system")
            yield Family(f"rocketmq_consumer_{name}_messages", "gauge", meaning, values, label_names)

    def _out_labels(self, group: str, topic: str) -> tuple[str, str, str, str]:
        is_system = topic in self._observed.topics.system_topics or is_system_group(group)
        return topic, group, _boolean(topic.startswith(RETRY_PREFIX)), _boolean(is_system)


def _by_type(
    topics: Mapping[str, TopicStatistics],
    system: Mapping[str, str],
    counts: Callable[[TopicStatistics], tuple[int, int]],
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield series by topic and kind of message; `counts` returns all messages and the delayed ones."""
    for name, topic in topics.items():
        total, delayed = counts(topic)
        if total > delayed or not delayed:
            kind = "transaction" if name == TRANSACTION_HALF_TOPIC else "normal"
            yield (name, kind, system[name]), total - delayed
        if delayed:
            yield (name, "delay", system[name]), delayed


def version_text(version: int) -> str:
    """Return a client's version as in Apache's labels, e.g. `v5_3_3`; below version 4 the bare number."""
    if version > _LAST_VERSION:
        return "higher_version"
    if version < _FIRST_REGULAR_VERSION:
        return str(version)
    release, is_final = divmod(version - _FIRST_REGULAR_VERSION, 2)
    text = f"v{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return text if is_final else f"{text}_snapshot"


def _boolean(value: bool) -> str:
    return "true" if value else "false"
