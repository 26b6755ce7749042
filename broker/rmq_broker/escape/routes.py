"""Other masters of the cluster that have a topic, from the name servers.

Source: Apache RocketMQ 5.3.3, TopicRouteInfoManager. Apache's broker stores retries with brokers that have
the retry topic already. Here they go to any master of the cluster if no other broker has it, because a
broker creates the retry topic of a group for the first message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmq_remoting.bodies.route import MASTER_BROKER_ID, BrokerData, ClusterInfo, TopicRouteData
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, RequestError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader

from ..topics.names import RETRY_PREFIX
from ..topics.permissions import is_writeable

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

log = logging.getLogger("rmq.broker.escape")

_TIMEOUT_SECONDS: Final = 3.0
# Greatest age of a route, as of clients; a topic without a place is asked for again sooner.
_MAX_AGE_SECONDS: Final = 30.0
_NO_PLACE_SECONDS: Final = 1.0
_MAX_TOPICS: Final = 4096
_MAX_BYTES: Final = 8 * 1024 * 1024
_MASTER_BYTES: Final = 200


class OtherMaster(NamedTuple):
    """A master of another broker group, with the number of a topic's queues that it accepts messages in."""

    broker_name: str
    address: str
    queues: int


class _Known(NamedTuple):
    masters: tuple[OtherMaster, ...]
    problem: str
    asked_at_seconds: float


class EscapeRoutes:
    """Keeps the other masters of topics; belongs to the loop's thread."""

    def __init__(
        self,
        cluster: str,
        broker_name: str,
        client: RemotingClient,
        name_servers: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        """`clock` counts seconds."""
        self._cluster = cluster
        self._broker_name = broker_name
        self._client = client
        self._name_servers = tuple(name_servers)
        self._clock = clock
        self._known: BoundedCache[str, _Known] = BoundedCache(
            "escape_routes", max_entries=_MAX_TOPICS, max_bytes=_MAX_BYTES, size_of=_size_of
        )
        self.caches: tuple[BoundedCache[Any, Any], ...] = (self._known,)

    async def masters_of(self, topic: str) -> tuple[Sequence[OtherMaster], str]:
        """Return the other masters that accept messages of a topic, by name; without one, the problem."""
        known = self._known.get(topic)
        if known is not None:
            max_age_seconds = _MAX_AGE_SECONDS if known.masters else _NO_PLACE_SECONDS
            if self._clock() - known.asked_at_seconds < max_age_seconds:
                return known.masters, known.problem
        masters, problem = await self._ask(topic)
        self._known.put(topic, _Known(masters, problem, self._clock()))
        return masters, problem

    def forget(self, topic: str) -> None:
        """Ask for a topic's route again before the next message: a send has failed."""
        self._known.discard(topic)

    async def _ask(self, topic: str) -> tuple[tuple[OtherMaster, ...], str]:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        problem = "no name server is set (namesrvAddr)"
        for address in self._name_servers:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
            try:
                response = await self._client.request(address, request, _TIMEOUT_SECONDS)
                masters: list[OtherMaster] = []
                if response.code == ResponseCode.SUCCESS:
                    masters = self._writable(TopicRouteData.decode(response.body))
                if not masters and topic.startswith(RETRY_PREFIX):
                    masters = await self._cluster_members(address)
                if masters:
                    return tuple(sorted(masters)), ""
                problem = (
                    f"name server {address} knows no other master with write permission for topic {topic}"
                )
            except (RequestError, BodyError) as error:
                problem = f"route of topic {topic}: {error}"
        return (), problem

    def _writable(self, route: TopicRouteData) -> list[OtherMaster]:
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        masters = []
        for queues in route.queue_datas:
            address = self._master_address(brokers.get(queues.broker_name))
            if address is not None and is_writeable(queues.perm) and queues.write_queue_nums > 0:
                masters.append(OtherMaster(queues.broker_name, address, queues.write_queue_nums))
        return masters

    async def _cluster_members(self, address: str) -> list[OtherMaster]:
        """Return the other masters of the cluster, each with one queue. Raises RequestError, BodyError."""
        request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        response = await self._client.request(address, request, _TIMEOUT_SECONDS)
        if response.code != ResponseCode.SUCCESS:
            return []
        info = ClusterInfo.decode(response.body)
        found = []
        for name in info.cluster_addr_table.get(self._cluster, ()):
            master = self._master_address(info.broker_addr_table.get(name))
            if master is not None:
                found.append(OtherMaster(name, master, 1))
        return found

    def _master_address(self, broker: BrokerData | None) -> str | None:
        """Return the address of another group's master; None for this group, or without a master."""
        if broker is None or broker.broker_name == self._broker_name:
            return None
        return broker.broker_addrs.get(MASTER_BROKER_ID)


def _size_of(topic: str, known: _Known) -> int:
    return ENTRY_OVERHEAD_BYTES + len(topic) + len(known.problem) + _MASTER_BYTES * len(known.masters)
