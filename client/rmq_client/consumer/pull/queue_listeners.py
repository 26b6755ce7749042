"""Listeners for changes of a topic's readable queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from rmq_remoting.message_queue import MessageQueue

from ...namespaces import Namespace
from ...network.instance import ClientInstance

log = logging.getLogger(__name__)

QueuesListener: TypeAlias = Callable[[str, list[MessageQueue]], None]
"""Is called with a topic and its readable queues when these have changed."""


class QueueListeners:
    """The listeners of one pull consumer, by full topic name. Belongs to the application's loop."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._listeners: dict[str, tuple[QueuesListener, list[MessageQueue]]] = {}
        self._instance: ClientInstance | None = None
        self._loop: asyncio.AbstractEventLoop

    def start(self, instance: ClientInstance) -> None:
        """Compare with the routes of this client instance, and call listeners on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._instance = instance

    def stop(self) -> None:
        """Stop calling listeners."""
        self._instance = None

    def add(self, topic: str, listener: QueuesListener, queues: list[MessageQueue]) -> None:
        """Have `listener` called when the topic's queues differ from `queues`. Not after `stop`."""
        instance = self._instance
        assert instance is not None, "start() comes first"
        self._listeners[topic] = (listener, queues)
        instance.loop.call_soon_threadsafe(instance.routes.watch, topic)

    def route_changed(self, topic: str) -> None:
        """Compare the queues of a topic with those that its listener knows. Called on the network loop."""
        if topic in self._listeners and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._compare, topic)

    def _compare(self, topic: str) -> None:
        instance = self._instance
        route = None if instance is None else instance.routes.existing.get(topic)
        if route is None:
            return
        listener, known = self._listeners[topic]
        queues = self._namespace.unwrap_queues(route.read_queues)
        if queues != known:
            self._listeners[topic] = (listener, queues)
            try:
                listener(self._namespace.unwrap(topic), queues)
            except Exception:  # raised by the application's code
                log.exception("queue listener failed topic=%s", topic)
