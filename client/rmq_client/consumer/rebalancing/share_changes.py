"""Notification of an application when its consumer's share of a topic has changed."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rmq_remoting.message_queue import MessageQueue

from ...namespaces import Namespace
from ...network.routing import RouteTable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A consumer's share of a topic: its `queues` now, and those `taken` or `given_up` since the last change.

    `all_queues` are the readable queues of the topic, as far as this client knows. For popped topics, a queue
    with the id -1 stands for all queues of a broker.
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]
    given_up: tuple[MessageQueue, ...]
    all_queues: tuple[MessageQueue, ...]


ShareListener: TypeAlias = Callable[[ShareChange], None]
"""Is called on the loop that the consumer was started on. Its exceptions are logged."""


class ShareChangeNotifier:
    """Compares shares with the last known ones, and calls the listener. Belongs to the network loop."""

    def __init__(
        self,
        listener: ShareListener,
        routes: RouteTable,
        application_loop: asyncio.AbstractEventLoop,
        namespace: Namespace,
    ) -> None:
        """The listener gets names without `namespace`."""
        self._namespace = namespace
        self._listener = listener
        self._routes = routes
        self._application_loop = application_loop
        self._told: dict[str, set[MessageQueue]] = {}

    def compare(self, queues: Iterable[MessageQueue]) -> None:
        """Compare all queues of the consumer, of all topics, with the last known ones."""
        shares: defaultdict[str, set[MessageQueue]] = defaultdict(set)
        for queue in queues:
            shares[queue.topic].add(queue)
        for topic in sorted(shares.keys() | self._told.keys()):
            now, before = shares[topic], self._told.get(topic, set())
            if now != before:
                self._tell(topic, now, before)
        self._told = {topic: share for topic, share in shares.items() if share}

    def _tell(self, topic: str, now: set[MessageQueue], before: set[MessageQueue]) -> None:
        route = self._routes.existing.get(topic)
        change = ShareChange(
            self._namespace.unwrap(topic),
            self._sorted(now),
            self._sorted(now - before),
            self._sorted(before - now),
            () if route is None else self._sorted(route.read_queues),
        )
        if not self._application_loop.is_closed():
            self._application_loop.call_soon_threadsafe(self._call, change)

    def _sorted(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        return tuple(sorted(self._namespace.unwrap_queues(queues)))

    def _call(self, change: ShareChange) -> None:
        try:
            self._listener(change)
        except Exception:  # raised by the application's code
            log.exception("share listener failed topic=%s", change.topic)
