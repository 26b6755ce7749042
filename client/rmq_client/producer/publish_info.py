"""Endpoints of one topic's queues, built from a route and used until the route changes."""

from __future__ import annotations

from rmq_remoting.command import Serialization
from rmq_remoting.headers.send import SendTarget
from rmq_remoting.message_queue import MessageQueue

from ..errors import NoQueue
from ..names import AUTO_CREATE_TOPIC
from ..namespaces import Namespace
from ..network.logical_queues import is_logical
from ..network.routing import TopicRoute
from .encoding import QueueEndpoint
from .selection import RoundRobin


class TopicPublishInfo:
    """Endpoints of the writable queues of one route.

    Queues are named without the namespace here; brokers get full names.
    """

    __slots__ = (
        "_by_queue",
        "_group",
        "_namespace",
        "_queue_count",
        "_serialization",
        "queues",
        "round_robin",
        "route",
    )

    def __init__(
        self,
        route: TopicRoute,
        group: str,
        default_queue_count: int,
        serialization: Serialization,
        namespace: Namespace,
    ) -> None:
        """Raises NoQueue if no queue can be written."""
        self.route = route
        self._group = group
        self._namespace = namespace
        self._queue_count = default_queue_count
        self._serialization = serialization
        self._by_queue = {
            endpoint.queue: endpoint
            for queue in route.write_queues
            if (endpoint := self._endpoint(queue)) is not None
        }
        # The number of a static topic's queues stays the same, so that a key keeps its queue.
        self.queues = tuple(
            namespace.unwrap_queues(route.write_queues) if route.is_static else self._by_queue
        )
        if not self._by_queue:
            raise NoQueue(
                f"topic {route.topic} has no queue that can be written: give it write permission and write "
                "queues, and check that a master of its brokers is running"
            )
        self.round_robin = RoundRobin(list(self._by_queue.values()))

    def endpoint(self, queue: MessageQueue) -> QueueEndpoint:
        """Return the endpoint of a queue of the caller's choice. Raises NoQueue if its broker is unknown."""
        endpoint = self._by_queue.get(queue)
        if endpoint is None:
            # A queue beyond those of the route may exist all the same: the broker decides.
            full = self._namespace.wrap_queue(queue)
            endpoint = self._endpoint(full) if full.topic == self.route.topic else None
        if endpoint is None:
            brokers = ", ".join(sorted(self.route.brokers))
            if queue in self.queues:
                leader = self.route.broker_of(self._namespace.wrap_queue(queue))
                name = "its broker" if is_logical(leader) else f"broker {leader}"
                raise NoQueue(
                    f"the master that leads {queue} is not registered: start {name} (rmq static-topic show "
                    f"tells the brokers of each queue; registered: {brokers})"
                )
            raise NoQueue(f"{queue} is not a queue of topic {self.route.topic}, which is on {brokers}")
        return endpoint

    def _endpoint(self, queue: MessageQueue) -> QueueEndpoint | None:
        broker_name = self.route.broker_of(queue)
        address = self.route.brokers.get(broker_name, {}).get(0)
        if address is None:
            return None
        target = SendTarget(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self._queue_count,
            queue_id=queue.queue_id,
            broker_name=broker_name,
        )
        return QueueEndpoint(self._namespace.unwrap_queue(queue), address, target, self._serialization)
