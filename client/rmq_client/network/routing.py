"""Where topics are: a cache of routes per list of name servers, fresh every 30 s and when a request fails.

A route is an immutable snapshot. The network loop alone replaces the snapshots; every thread may read the two
dictionaries, and sees either the old snapshot of a topic or the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_remoting.bodies.route import MASTER_BROKER_ID, QueueData, TopicRouteData
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.tasks import is_being_cancelled

from ..errors import BrokerUnreachable, ClientError, TopicNotFound
from ..names import AUTO_CREATE_TOPIC
from .bridge import stopped_error
from .name_servers import NameServers

log = logging.getLogger("rmq.client.routing")

_PERM_READ: Final = 4
_PERM_WRITE: Final = 2
# Until the name servers know a topic that brokers are about to create, they are asked this often.
_PROVISIONAL_REFRESH_SECONDS: Final = 2.0

# A broker's addresses by broker id; 0 is the master.
Addresses = Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class TopicRoute:
    """The queues of one topic and the brokers that have them. Compared by identity.

    `provisional`: the topic does not exist yet; the queues are those that brokers will create it with when
    the first message comes.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Addresses]
    provisional: bool = False

    def broker_address(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> str | None:
        """The address of that broker; another of the same name if that one is not there."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        return addresses.get(broker_id) or addresses[min(addresses)]

    def is_master(self, broker_name: str, address: str) -> bool:
        """Whether this is the address of that broker's master."""
        return self.brokers.get(broker_name, {}).get(MASTER_BROKER_ID) == address

    def known_address(self, broker_name: str, about: object, broker_id: int = MASTER_BROKER_ID) -> str:
        """As `broker_address`; `about` is what it is wanted for. Raises BrokerUnreachable without one."""
        address = self.broker_address(broker_name, broker_id)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {broker_name} is known for {about}")
        return address

    def same_as(self, other: TopicRoute) -> bool:
        """Whether nothing has changed."""
        return (
            self.write_queues == other.write_queues
            and self.read_queues == other.read_queues
            and self.brokers == other.brokers
            and self.provisional == other.provisional
        )


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """The snapshot of what a name server answered (Apache RocketMQ 5.3.3, MQClientInstance)."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    queue_datas = sorted(data.queue_datas, key=lambda queues: queues.broker_name)
    writable = (
        _ordered_queues(topic, data.order_topic_conf)
        if data.order_topic_conf
        else _write_queues(topic, queue_datas, brokers)
    )
    readable = (
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in queue_datas
        if queues.perm & _PERM_READ
        for queue_id in range(queues.read_queue_nums)
    )
    return TopicRoute(topic, tuple(writable), tuple(sorted(readable)), brokers)


def provisional_route(topic: str, template: TopicRouteData, queue_count: int) -> TopicRoute:
    """The route that `topic` will have on the brokers that create topics by themselves.

    `template` is the route of TBW102, which only such brokers have.
    """
    for queues in template.queue_datas:
        queues.write_queue_nums = queues.read_queue_nums = min(queue_count, queues.read_queue_nums)
    route = topic_route(topic, template)
    return TopicRoute(topic, route.write_queues, (), route.brokers, provisional=True)


def _write_queues(
    topic: str, queue_datas: Iterable[QueueData], brokers: Mapping[str, Addresses]
) -> Iterator[MessageQueue]:
    for queues in queue_datas:
        if queues.perm & _PERM_WRITE and MASTER_BROKER_ID in brokers.get(queues.broker_name, {}):
            for queue_id in range(queues.write_queue_nums):
                yield MessageQueue(topic, queues.broker_name, queue_id)


def _ordered_queues(topic: str, configuration: str) -> Iterator[MessageQueue]:
    """`broker-a:4;broker-b:2`: fixed queues, whether or not their broker is there at the moment."""
    for item in configuration.split(";"):
        broker_name, _, count = item.strip().partition(":")
        if broker_name and count.isdigit():
            for queue_id in range(int(count)):
                yield MessageQueue(topic, broker_name, queue_id)


class RouteTable:
    """All routes that anybody in this process has asked for. Its coroutines belong to the network loop.

    `existing` holds the topics that exist, `publishable` besides those that brokers will create.
    """

    def __init__(self, name_servers: NameServers, refresh_seconds: float) -> None:
        self.existing: dict[str, TopicRoute] = {}
        self.publishable: dict[str, TopicRoute] = {}
        # Called with the topic whose route is new or has changed.
        self.on_change: list[Callable[[str], None]] = []
        self._name_servers = name_servers
        self._refresh_seconds = refresh_seconds
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}
        self._wanted: set[str] = set()

    def brokers(self) -> dict[str, dict[int, str]]:
        """Every broker in any route: addresses by broker name and id."""
        brokers: dict[str, dict[int, str]] = {}
        for route in [*self.publishable.values(), *self.existing.values()]:
            for name, addresses in route.brokers.items():
                brokers.setdefault(name, {}).update(addresses)
        return brokers

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic that exists. Raises TopicNotFound, NameServerUnreachable, BrokerError."""
        return self.existing.get(topic) or await self.refresh(topic)

    async def route_to_publish(self, topic: str, queue_count: int) -> TopicRoute:
        """The route to send by; one that brokers will create the topic by, where they do.

        `queue_count`: at most so many queues per broker for a new topic. Raises as `route`.
        """
        known = self.publishable.get(topic)
        if known is not None:
            return known
        try:
            return await self.refresh(topic)
        except TopicNotFound:
            try:
                template = await self._name_servers.topic_route(AUTO_CREATE_TOPIC)
            except TopicNotFound:
                template = None
            if template is None:
                raise
        self._wanted.add(topic)
        route = provisional_route(topic, template, queue_count)
        self.publishable[topic] = route
        return route

    async def refresh(self, topic: str) -> TopicRoute:
        """Ask again; who asks for the same topic at the same time shares the answer.

        Raises as `route`, and NotRunning where `stop` ends it.
        """
        fetch = self._start_fetch(topic)
        try:
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            if fetch.cancelled() and not is_being_cancelled():  # by stop(), not the caller
                raise stopped_error() from None
            raise

    def watch(self, topic: str) -> None:
        """Keep the topic's route fresh, also while the topic does not exist yet."""
        self._wanted.add(topic)

    def request_failed(self, topic: str) -> None:
        """A request by this route failed: ask again in the background."""
        self._start_fetch(topic)

    async def keep_refreshing(self) -> None:
        """Refresh all routes again and again, until cancelled."""
        elapsed = 0.0
        while True:
            pause = min(_PROVISIONAL_REFRESH_SECONDS, self._refresh_seconds)
            await asyncio.sleep(pause)
            elapsed += pause
            everything = elapsed >= self._refresh_seconds
            if everything:
                elapsed = 0.0
            for topic in list(self._wanted):
                route = self.publishable.get(topic)
                if everything or (route is not None and route.provisional):
                    self._start_fetch(topic)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._in_flight.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start_fetch(self, topic: str) -> asyncio.Task[TopicRoute]:
        task = self._in_flight.get(topic)
        if task is None:
            task = asyncio.ensure_future(self._fetch(topic))
            task.set_name(f"rmq route of {topic}")
            self._in_flight[topic] = task
            task.add_done_callback(lambda ended: self._fetched(topic, ended))
        return task

    async def _fetch(self, topic: str) -> TopicRoute:
        fresh = topic_route(topic, await self._name_servers.topic_route(topic))
        self._wanted.add(topic)
        known = self.existing.get(topic)
        if known is not None and known.same_as(fresh):
            return known
        self.existing[topic] = self.publishable[topic] = fresh
        log.info(
            "topic %s: %d queues to write, %d to read, on %s",
            topic,
            len(fresh.write_queues),
            len(fresh.read_queues),
            ", ".join(sorted(fresh.brokers)),
        )
        for listener in list(self.on_change):
            listener(topic)
        return fresh

    def _fetched(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._in_flight.pop(topic, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, TopicNotFound) and topic in self.existing:
            log.warning("topic %s has gone from the name servers: its last known route stays in use", topic)
        elif not isinstance(error, ClientError):
            log.error("the route of topic %s could not be read", topic, exc_info=error)
        elif not isinstance(error, TopicNotFound):
            log.warning("the route of topic %s could not be refreshed: %s", topic, error)
