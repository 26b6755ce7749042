"""A fake of the driver's view of a cluster, without servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from pyspark_rocketmq.driver.cluster import Cluster, QueueState
from pyspark_rocketmq.driver.routes import Offered
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from rmq_client import BrokerUnreachable, ClientError


class FakeDriverCluster:
    """Queues and the offsets that they hold. `away`: queues in routes whose broker does not answer.

    Replicas answer, except for queues in `masters`. `brokers`: those that are registered. `empty_topics`:
    topics with a route but no queues. `first_ms`: store times of the oldest messages. `rounds`: requests for
    states. `doubted`: topics whose routes were put in doubt.
    """

    def __init__(self, held: Mapping[QueueKey, tuple[int, int]]) -> None:
        self.held = dict(held)
        self.away: set[QueueKey] = set()
        self.masters: set[QueueKey] = set()
        self.groups: dict[str, dict[QueueKey, int]] = {}
        self.commits: list[dict[QueueKey, int]] = []
        self.refuses_commits: set[QueueKey] = set()
        self.brokers: frozenset[str] | None = frozenset({"a", "b"})
        self.empty_topics: set[str] = set()
        self.first_ms: dict[QueueKey, int] = {}
        self.rounds = 0
        self.doubted: set[str] = set()
        self.times: dict[QueueKey, dict[int, int]] = {}

    def as_cluster(self) -> Cluster:
        return cast(Cluster, self)

    def topics_matching(self, pattern: re.Pattern[str], *, fresh: bool = True) -> list[str]:
        return sorted({queue.topic for queue in self.held if pattern.fullmatch(queue.topic)})

    def queues(self, topics: Iterable[str]) -> list[QueueKey]:
        return sorted(queue for queue in self.held if queue.topic in set(topics))

    def offered(self, topics: Iterable[str], *, fresh: bool = False) -> Offered:
        wanted = set(topics)
        queues = self.queues(wanted)
        routes = {queue.topic for queue in queues} | (self.empty_topics & wanted)
        return Offered(tuple(queues), frozenset(routes), frozenset((q.topic, q.broker) for q in queues))

    def doubt(self, topics: Iterable[str]) -> None:
        self.doubted.update(topics)

    def registered_brokers(self) -> frozenset[str] | None:
        return self.brokers

    def oldest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        return QueueOffsets({queue: self.held[queue][0] for queue in queues})

    def newest(self, queues: Iterable[QueueKey]) -> QueueOffsets:
        return QueueOffsets({queue: self.held[queue][1] for queue in queues})

    def states(
        self, queues: Iterable[QueueKey]
    ) -> tuple[dict[QueueKey, QueueState], dict[QueueKey, ClientError]]:
        asked = list(queues)
        self.rounds += 1
        failed: dict[QueueKey, ClientError] = {q: BrokerUnreachable("away") for q in asked if q in self.away}
        known = {queue: QueueState(*self.held[queue]) for queue in asked if queue not in self.away}
        return known, failed

    def first_stored_ms(self, queues: Iterable[QueueKey]) -> dict[QueueKey, int]:
        return {queue: self.first_ms[queue] for queue in queues if queue in self.first_ms}

    def served_by_master(self, queues: Iterable[QueueKey]) -> list[QueueKey]:
        return [queue for queue in queues if queue in self.masters]

    def at_times(self, times_ms: Mapping[QueueKey, int]) -> QueueOffsets:
        return QueueOffsets({queue: self.times[queue][time_ms] for queue, time_ms in times_ms.items()})

    def committed(self, group: str, queues: Iterable[QueueKey]) -> QueueOffsets:
        known = self.groups.get(group, {})
        return QueueOffsets({queue: known[queue] for queue in queues if queue in known})

    def commit(self, group: str, offsets: Mapping[QueueKey, int]) -> dict[QueueKey, ClientError]:
        accepted = {queue: at for queue, at in offsets.items() if queue not in self.refuses_commits}
        self.commits.append(accepted)
        self.groups.setdefault(group, {}).update(accepted)
        return {queue: BrokerUnreachable("away") for queue in offsets if queue not in accepted}
