"""Routes of topics: a cache per list of name servers, refreshed every 30 s and after failed requests.

A route is an immutable snapshot. Only the network loop replaces the snapshots. Every thread may read the two
dictionaries, and sees either the old or the new snapshot of a topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rmq_remoting.bodies.constants import MASTER_BROKER_ID
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message_queue import MessageQueue
from rmq_remoting.tasks import cancel_all, is_being_cancelled, shielded

from ..errors import BrokerError, BrokerUnreachable, ClientError, TopicNotFound, UnreachableError
from ..names import AUTO_CREATE_TOPIC
from .bridge import stopped_error
from .name_servers import NameServers
from .plain_answers import QueuesOnBroker, RouteData

log = logging.getLogger(__name__)

_PERM_READ: Final = 4
_PERM_WRITE: Final = 2
# Interval of requests for a topic that brokers are about to create, until name servers know it.
_PROVISIONAL_REFRESH_SECONDS: Final = 2.0

# Addresses of a broker by broker id; 0 is the master.
Addresses = Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class TopicRoute:
    """The queues of one topic and their brokers. Compared by identity.

    `provisional`: the topic does not exist yet. The queues are those that brokers will create it with at the
    first message. `is_static`: a static topic, whose logical queues have parts on several brokers. `leaders`
    has the name of the broker that leads each of them: all requests about a logical queue go to its leader.
    """

    topic: str
    write_queues: tuple[MessageQueue, ...]
    read_queues: tuple[MessageQueue, ...]
    brokers: Mapping[str, Addresses]
    provisional: bool = False
    is_static: bool = False
    leaders: Mapping[MessageQueue, str] = field(default_factory=dict)

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker that is asked about a queue."""
        return self.leaders.get(queue, queue.broker_name) if self.leaders else queue.broker_name

    def on_broker(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the name of the broker that is asked about it, as requests name the queue."""
        name = self.broker_of(queue)
        return queue if name == queue.broker_name else MessageQueue(queue.topic, name, queue.queue_id)

    def address_of(self, queue: MessageQueue, broker_id: int = MASTER_BROKER_ID) -> str | None:
        """Return the address of a queue's broker, or of another one with the same name."""
        return self.broker_address(self.broker_of(queue), broker_id)

    def known_address_of(self, queue: MessageQueue, broker_id: int = MASTER_BROKER_ID) -> str:
        """Return the address as `address_of`. Raises BrokerUnreachable without one."""
        return self.known_address(self.broker_of(queue), queue, broker_id)

    def broker_address(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> str | None:
        """Return the address of that broker, or of another one with the same name."""
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        return addresses.get(broker_id) or addresses[min(addresses)]

    def is_master(self, broker_name: str, address: str) -> bool:
        """Whether this is the address of that broker's master."""
        return self.brokers.get(broker_name, {}).get(MASTER_BROKER_ID) == address

    def known_address(self, broker_name: str, about: object, broker_id: int = MASTER_BROKER_ID) -> str:
        """Return the address as `broker_address`.

        Raises BrokerUnreachable, which names `about`, without one.
        """
        address = self.broker_address(broker_name, broker_id)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {broker_name} is known for {about}")
        return address

    def same_as(self, other: TopicRoute) -> bool:
        """Whether both routes are equal."""
        return (
            self.write_queues == other.write_queues
            and self.read_queues == other.read_queues
            and self.brokers == other.brokers
            and self.provisional == other.provisional
            and self.is_static == other.is_static
            and self.leaders == other.leaders
        )


def topic_route(topic: str, data: RouteData) -> TopicRoute:
    """Return the snapshot of a name server's answer (Apache RocketMQ 5.3.3, MQClientInstance)."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    if data.is_static:
        leaders = {MessageQueue(topic, *queue): leader for queue, leader in data.leaders.items()}
        return TopicRoute(topic, tuple(leaders), tuple(leaders), brokers, is_static=True, leaders=leaders)
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
    return TopicRoute(
        topic,
        tuple(writable),
        tuple(sorted(readable)),
        brokers,
    )


def may_be_of_old_route(error: ClientError) -> bool:
    """Whether a new route may serve a request that failed.

    No broker answered, or another one leads the logical queue.
    """
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    return isinstance(error, UnreachableError)


def provisional_route(topic: str, template: RouteData, queue_count: int) -> TopicRoute:
    """Return the route that `topic` will have on the brokers that create topics on demand.

    `template` is the route of TBW102, which only such brokers have.
    """
    for queues in template.queue_datas:
        queues.write_queue_nums = queues.read_queue_nums = min(queue_count, queues.read_queue_nums)
    route = topic_route(topic, template)
    return TopicRoute(topic, route.write_queues, (), route.brokers, provisional=True)


def _write_queues(
    topic: str, queue_datas: Iterable[QueuesOnBroker], brokers: Mapping[str, Addresses]
) -> Iterator[MessageQueue]:
    for queues in queue_datas:
        if queues.perm & _PERM_WRITE and MASTER_BROKER_ID in brokers.get(queues.broker_name, {}):
            for queue_id in range(queues.write_queue_nums):
                yield MessageQueue(topic, queues.broker_name, queue_id)


def _ordered_queues(topic: str, configuration: str) -> Iterator[MessageQueue]:
    """Yield fixed queues of `broker-a:4;broker-b:2`, also of brokers that are down at the moment."""
    for item in configuration.split(";"):
        broker_name, _, count = item.strip().partition(":")
        if broker_name and count.isdigit():
            for queue_id in range(int(count)):
                yield MessageQueue(topic, broker_name, queue_id)


class RouteTable:
    """Routes of all requested topics. Its coroutines belong to the network loop.

    `existing` holds the topics that exist; `publishable` also those that brokers will create.
    """

    def __init__(self, name_servers: NameServers, refresh_seconds: float) -> None:
        self.existing: dict[str, TopicRoute] = {}
        self.publishable: dict[str, TopicRoute] = {}
        # Called with a topic whose route is new or has changed.
        self.on_change: list[Callable[[str], None]] = []
        self._name_servers = name_servers
        self._refresh_seconds = refresh_seconds
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}
        # Requests whose errors are raised to a caller, and therefore not logged.
        self._awaited: set[asyncio.Task[TopicRoute]] = set()
        self._wanted: set[str] = set()

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return every broker of any route: addresses by broker name and id."""
        brokers: dict[str, dict[int, str]] = {}
        for route in [*self.publishable.values(), *self.existing.values()]:
            for name, addresses in route.brokers.items():
                brokers.setdefault(name, {}).update(addresses)
        return brokers

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of an existing topic. Raises TopicNotFound, NameServerUnreachable, BrokerError."""
        return self.existing.get(topic) or await self.refresh(topic)

    async def route_to_publish(self, topic: str, queue_count: int) -> TopicRoute:
        """Return the route for sends. For a new topic it is provisional, if brokers create topics on demand.

        `queue_count`: the most queues per broker of a new topic. Raises as `route`.
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
        """Ask the name servers again. Concurrent requests for one topic share the answer.

        Raises as `route`, and NotRunning if `stop` interrupts it.
        """
        fetch = self._start_fetch(topic)
        self._awaited.add(fetch)
        try:
            return await shielded(fetch)
        except asyncio.CancelledError:
            if fetch.cancelled() and not is_being_cancelled():  # cancelled by stop(), not by the caller
                raise stopped_error() from None
            raise

    def watch(self, topic: str) -> None:
        """Keep the topic's route up to date, also while the topic does not exist yet."""
        self._wanted.add(topic)

    def request_failed(self, topic: str) -> None:
        """Ask again in the background, because a request by this route failed."""
        self._start_fetch(topic)

    async def keep_refreshing(self) -> None:
        """Refresh all routes in intervals, until cancelled."""
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
        """Cancel the requests in flight."""
        await cancel_all(self._in_flight.values())

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
            "route changed topic=%s write_queues=%d read_queues=%d brokers=%s",
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
        is_raised = task in self._awaited
        self._awaited.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, TopicNotFound) and topic in self.existing:
            log.warning("topic gone from the name servers topic=%s; its last known route stays in use", topic)
        elif not isinstance(error, ClientError):
            log.error("route not refreshed topic=%s", topic, exc_info=error)
        elif not is_raised and not isinstance(error, TopicNotFound):
            log.warning("route not refreshed topic=%s cause=%s; the known route stays in use", topic, error)
