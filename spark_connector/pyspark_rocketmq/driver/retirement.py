"""Queues that no broker offers any more: when they leave a stream, and whether it remembers their offsets.

A queue is absent if the route of its topic exists without it. There are three cases:

- Its broker is registered, and has the topic: there are fewer read queues now, or reading is forbidden. An
  administrator can undo this, so that the stream remembers its offset.
- Its broker is registered, and does not have the topic: the topic was deleted, with its messages. A topic of
  that name that appears later is another one.
- Its broker is not registered: it is down or decommissioned, and may register again with its messages.

A topic given by name that has no route at all stays an error: only topics of a pattern may go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..offsets import QueueKey
from ..options import ReadOptions
from .cluster import Cluster
from .condition_timers import ConditionTimers
from .routes import Offered


class Retirement:
    """Decides which absent queues leave one streaming query."""

    def __init__(self, cluster: Cluster, options: ReadOptions, clock: Callable[[], float]) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._cluster = cluster
        self._options = options
        self._absent = ConditionTimers("queues absent from the routes of their topics", clock)

    def due(
        self, absent: Collection[QueueKey], offered: Offered, *, at_once: bool = False
    ) -> dict[QueueKey, bool]:
        """Return the queues that leave now, and whether the stream is to remember the offset of each.

        `absent`: all queues of the query that `offered` lacks. A queue of a registered broker leaves after
        `topicTimeout`, another one after `brokerTimeout`, or `at_once`. Raises ClientError.
        """
        options = self._options
        candidates = [queue for queue in absent if self._may_leave(queue, offered)]
        seconds = self._absent.update(candidates)
        if not candidates:
            return {}
        registered = self._cluster.registered_brokers()
        if not registered:  # a name server has just been started, or does not answer
            return {}
        leaving: dict[QueueKey, bool] = {}
        for queue in candidates:
            is_registered = queue.broker in registered
            timeout_ms = options.topic_timeout_ms if is_registered else options.broker_timeout_ms
            if at_once or seconds[queue] >= timeout_ms / 1000:
                leaving[queue] = not is_registered or (queue.topic, queue.broker) in offered.places
        return leaving

    def _may_leave(self, queue: QueueKey, offered: Offered) -> bool:
        if self._options.retired_queues == "fail":
            return False
        return queue.topic in offered.topics or self._options.subscribe_pattern is not None
