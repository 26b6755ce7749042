"""The route table: which broker names have queues of a topic, and how many.

A route is immutable, and topics with equal routes share one: 10,000 topics on the same 8 brokers need a
dictionary of 10,000 references and usually a handful of routes. A change replaces the route; the old one is a
snapshot for its holders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from rmq_remoting.bodies.route import QueueData
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo

from .slices import Steps

PERM_WRITE: Final = 2
PERM_READ: Final = 4

# Topics processed between two pauses, which takes about 0.1 ms.
TOPICS_PER_STEP: Final = 256


class QueueNumbers(NamedTuple):
    """Numbers and permissions of a topic's queues, as a broker registers them."""

    perm: int
    read_queue_nums: int
    write_queue_nums: int
    topic_sys_flag: int

    @property
    def writable(self) -> bool:
        """Whether messages may be sent to these queues."""
        return self.perm & PERM_WRITE != 0

    def with_perm(self, perm: int) -> QueueNumbers:
        """Return the same queues with other permissions."""
        return self if perm == self.perm else self._replace(perm=perm)


@dataclass(frozen=True, eq=False)
class BrokerQueues:
    """The queues of a topic on one broker name. Created only by a RouteTable: equal ones are identical."""

    broker_name: str
    numbers: QueueNumbers

    @cached_property
    def encoded(self) -> tuple[bytes, bytes]:
        """The JSON in both forms: fastjson's dialect and standard."""
        perm, read, write, flag = self.numbers
        body = QueueData(
            broker_name=self.broker_name,
            perm=perm,
            read_queue_nums=read,
            write_queue_nums=write,
            topic_sys_flag=flag,
        )
        return body.encode(), body.encode_standard()


@dataclass(frozen=True, eq=False)
class Route:
    """The queues of a topic by broker name, in alphabetical order. Equal routes are identical."""

    queues: Mapping[str, BrokerQueues]


class RouteTable:
    """Routes by topic, and the mappings of static topics. Knows nothing of the brokers' liveness."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._known_queues: WeakValueDictionary[tuple[str, QueueNumbers], BrokerQueues] = (
            WeakValueDictionary()
        )
        self._known_routes: WeakValueDictionary[tuple[BrokerQueues, ...], Route] = WeakValueDictionary()
        # Number of (topic, broker name) pairs.
        self.queue_group_count = 0

    def __len__(self) -> int:
        return len(self._routes)

    @property
    def distinct_routes(self) -> int:
        """Number of distinct routes."""
        return len(self._known_routes)

    def get(self, topic: str) -> Route | None:
        """Return the topic's current route."""
        return self._routes.get(topic)

    def topics(self) -> list[str]:
        """Return the names of all topics. Thread-safe."""
        return list(self._routes)

    def items(self) -> list[tuple[str, Route]]:
        """Return all topics with their routes. Thread-safe."""
        return list(self._routes.items())

    def mapping(self, topic: str) -> Mapping[str, TopicQueueMappingInfo] | None:
        """Return the mapping of a static topic by broker name; None for other topics."""
        return self._mappings.get(topic)

    # --- changes of one topic ---

    def put(self, topic: str, route: Route | None) -> None:
        """Replace a topic's route; None, or a route without queues, deletes the topic."""
        old = self._routes.get(topic)
        if old is not None:
            self.queue_group_count -= len(old.queues)
        if route is not None and route.queues:
            self._routes[topic] = route
            self.queue_group_count += len(route.queues)
        elif old is not None:
            del self._routes[topic]

    def delete(self, topic: str) -> bool:
        """Delete a topic and its mapping; return whether it existed."""
        self._mappings.pop(topic, None)
        found = topic in self._routes
        self.put(topic, None)
        return found

    def put_mapping(self, topic: str, broker_name: str, mapping: TopicQueueMappingInfo) -> None:
        """Set the logical queues of a static topic on a broker."""
        self._mappings.setdefault(topic, {})[broker_name] = mapping

    # --- derived routes ---

    def with_queues(self, route: Route | None, broker_name: str, numbers: QueueNumbers) -> Route:
        """Return the route with a broker's queues added or replaced."""
        key = (broker_name, numbers)
        queues = self._known_queues.get(key)
        if queues is None:
            queues = self._known_queues[key] = BrokerQueues(broker_name, numbers)
        if route is not None and route.queues.get(broker_name) is queues:
            return route
        return self._route({**(route.queues if route is not None else {}), broker_name: queues})

    def without(self, route: Route, broker_names: Collection[str]) -> Route:
        """Return the route without these brokers; it may be empty."""
        return self._route(
            {name: queues for name, queues in route.queues.items() if name not in broker_names}
        )

    def _route(self, queues: dict[str, BrokerQueues]) -> Route:
        ordered = dict(sorted(queues.items()))
        key = tuple(ordered.values())
        route = self._known_routes.get(key)
        if route is None:
            route = self._known_routes[key] = Route(ordered)
        return route

    # --- changes of all topics ---

    def sweep(self, broker_names: Collection[str], change: Callable[[Route], Route]) -> Steps[int]:
        """Replace every route with one of these brokers by `change(route)`; return the number of topics.

        `change` is called once per distinct route. A topic added during a pause is skipped.
        """
        concerned = 0
        changes: dict[Route, Route | None] = {}
        for number, topic in enumerate(self.topics(), 1):
            route = self._routes.get(topic)
            if route is not None:
                if route not in changes:
                    has_any = any(name in route.queues for name in broker_names)
                    changes[route] = change(route) if has_any else None
                new = changes[route]
                if new is not None:
                    concerned += 1
                    if new is not route:
                        self.put(topic, new)
            if number % TOPICS_PER_STEP == 0:
                yield
        return concerned
