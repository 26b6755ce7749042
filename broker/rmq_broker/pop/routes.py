"""Queues of a topic in the whole cluster, from the name servers.

Source: Apache RocketMQ 5.3.3, TopicRouteInfoManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, RequestError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader
from rmq_remoting.message_queue import MessageQueue, java_order

from ..delivery.turns import ITEMS_PER_SLICE
from ..settings.pop import PopSettings
from ..topics.permissions import is_readable
from ..topics.table import TopicTable

if TYPE_CHECKING:
    from ..delivery.turns import LoopSlices

log = logging.getLogger("rmq.broker.pop")

_TIMEOUT_SECONDS: Final = 3.0
_NO_ROUTE: Final = "route lookup failed name_server=%s topic=%s cause=%s; asking the next name server"
_MAX_TOPICS: Final = 10_000
_MAX_BYTES: Final = 64 * 1024 * 1024
_QUEUE_BYTES: Final = 150


class _KnownQueues(NamedTuple):
    """The answer of a name server; `queues` is None for a topic that it does not know."""

    asked_at_seconds: float
    queues: list[MessageQueue] | None


class QueueRoutes:
    """Keeps routes for `loadBalancePollNameServerInterval`; without name servers, this broker's queues."""

    def __init__(
        self,
        settings: PopSettings,
        client: RemotingClient,
        addresses: Sequence[str],
        topics: TopicTable,
        broker_name: str,
        clock: Callable[[], float],
        slices: LoopSlices,
    ) -> None:
        """`slices`: lists of queues are made in these, because a topic may have 65,536."""
        self._settings = settings
        self._client = client
        self._addresses = tuple(addresses)
        self._topics = topics
        self._broker_name = broker_name
        self._clock = clock
        self._slices = slices
        self._known: BoundedCache[str, _KnownQueues] = BoundedCache(
            "topic_routes", max_entries=_MAX_TOPICS, max_bytes=_MAX_BYTES, size_of=_size_of
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._known,)
        self._asking: dict[str, asyncio.Task[list[MessageQueue] | None]] = {}

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Return the readable queues, sorted; None for an unknown topic."""
        if not self._addresses:
            return await self._own_queues(topic)
        known = self._known.get(topic)
        max_age_seconds = self._settings.load_balance_poll_name_server_interval_ms / 1000
        is_recent = known is not None and self._clock() - known.asked_at_seconds < max_age_seconds
        if known is not None and known.queues is not None and is_recent:
            return known.queues
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(topic), name=f"route of {topic}")
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    async def _ask(self, topic: str) -> list[MessageQueue] | None:
        """Ask the name servers, one after the other. If none answers, return the last known queues."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        for address in self._addresses:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
            try:
                response = await self._client.request(address, request, _TIMEOUT_SECONDS)
                if response.code == ResponseCode.SUCCESS:
                    queues = await self._listed(topic, _readable(TopicRouteData.decode(response.body)))
                    return self._remember(topic, queues)
                if response.code == ResponseCode.TOPIC_NOT_EXIST:
                    return self._remember(topic, None)
                log.warning(_NO_ROUTE, address, topic, response.remark)
            except (RequestError, BodyError) as error:
                log.warning(_NO_ROUTE, address, topic, error)
        known = self._known.get(topic)
        return None if known is None else known.queues

    def _remember(self, topic: str, queues: list[MessageQueue] | None) -> list[MessageQueue] | None:
        self._known.put(topic, _KnownQueues(self._clock(), queues))
        return queues

    async def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not is_readable(config.perm):
            return None
        return await self._listed(topic, {self._broker_name: config.read_queue_nums})

    async def _listed(self, topic: str, counts: Mapping[str, int]) -> list[MessageQueue]:
        """Return the queues in order, given how many each broker has."""
        queues: list[MessageQueue] = []
        for name in sorted(counts, key=java_order):
            for first in range(0, counts[name], ITEMS_PER_SLICE):
                if first:
                    await self._slices.pause(self)
                end = min(first + ITEMS_PER_SLICE, counts[name])
                queues += [MessageQueue(topic, name, queue_id) for queue_id in range(first, end)]
        return queues


def _readable(route: TopicRouteData) -> dict[str, int]:
    """Return how many queues of a topic can be read, by broker."""
    counts: dict[str, int] = {}
    for data in route.queue_datas:
        if is_readable(data.perm):
            counts[data.broker_name] = max(data.read_queue_nums, counts.get(data.broker_name, 0))
    return counts


def _size_of(topic: str, known: _KnownQueues) -> int:
    return ENTRY_OVERHEAD_BYTES + len(topic) + _QUEUE_BYTES * len(known.queues or ())
