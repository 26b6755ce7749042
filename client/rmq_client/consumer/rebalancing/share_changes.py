"""Telling an application when its consumer's share of a topic's queues has changed."""

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

log = logging.getLogger("rmq.client.consumer")


@dataclass(frozen=True, slots=True)
class ShareChange:
    """A consumer's share of a topic: its `queues` now, and which of them were `taken` or `given_up` since.

    `all_queues` are those of the topic that can be read, as far as this client knows. Where messages are
    popped, a queue with the id -1 stands for all queues of a broker.
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]
    given_up: tuple[MessageQueue, ...]
    all_queues: tuple[MessageQueue, ...]


ShareListener: TypeAlias = Callable[[ShareChange], None]
"""Is told of changes, on the loop that the consumer was started on; what it raises is logged."""


class ShareChangeNotifier:
    """Compares shares with those that were told last. Belongs to the network loop."""

    def __init__(
        self,
        listener: ShareListener,
        routes: RouteTable,
        application_loop: asyncio.AbstractEventLoop,
        namespace: Namespace,
    ) -> None:
        """`namespace`: the listener is told without it."""
        self._namespace = namespace
        self._listener = listener
        self._routes = routes
        self._application_loop = application_loop
        self._told: dict[str, set[MessageQueue]] = {}

    def compare(self, queues: Iterable[MessageQueue]) -> None:
        """These are the consumer's now, of all topics."""
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
        except Exception:  # the application's own
            log.exception("the listener for this consumer's share of %s failed", change.topic)
