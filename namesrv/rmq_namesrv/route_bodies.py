"""Encoded bodies of responses to route requests (TopicRouteData).

A body is joined from pieces that are encoded once per broker and per distinct queues, and is cached until a
broker changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.static_topic import TopicQueueMappingInfo
from rmq_remoting.bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache

from .brokers import BrokerGroup, BrokerTable
from .config import RouteSettings
from .routes import BrokerQueues, Route, RouteTable

# Brokers of one name find each other through topics of this kind, so they must see the real master.
_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"

# Topics with equal routes share a body, so these bounds are rarely near.
_MAX_BODIES: Final = 65_536
_MAX_BODIES_BYTES: Final = 16 * 1024 * 1024


class RouteForm(NamedTuple):
    """The form in which a client asks for a route."""

    standard: bool  # standard JSON, not fastjson's dialect
    acting: bool  # a slave may act as the missing master


class RouteBodies:
    """Encodes routes (TopicRouteData) as a client sees them."""

    def __init__(
        self,
        routes: RouteTable,
        brokers: BrokerTable,
        settings: RouteSettings,
        max_cached_bytes: int = _MAX_BODIES_BYTES,
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._settings = settings
        self._bodies: BoundedCache[tuple[Route, RouteForm], bytes] = BoundedCache(
            "route_bodies",
            max_entries=_MAX_BODIES,
            max_bytes=max_cached_bytes,
            size_of=lambda _, body: len(body) + ENTRY_OVERHEAD_BYTES,
        )
        self._brokers_version = -1  # the version of the broker table that the cached bodies are of
        self.caches = (self._bodies,)

    def get(
        self, topic: str, *, standard: bool, zone_name: str | None = None, order_config: str | None = None
    ) -> bytes | None:
        """Return the body of the response; None if no live broker has the topic.

        `zone_name` excludes masters of other zones; `order_config` is included as it is.
        """
        route = self._routes.get(topic)
        if route is None:
            return None
        acting = self._settings.support_acting_master and not topic.startswith(_MEMBER_TOPIC_PREFIX)
        form = RouteForm(standard, acting)
        mapping = self._routes.mapping(topic)
        if zone_name is not None or order_config is not None or mapping is not None:
            members = [
                (group, queues)
                for group, queues in self._members(route, acting)
                if zone_name is None or _is_near(group, zone_name)
            ]
            # A zone without brokers still has the topic: Apache answers it with empty lists.
            if not members and not self._has_group(route):
                return None
            return _joined(members, standard, order_config, mapping)
        return self._plain(route, form)

    def _plain(self, route: Route, form: RouteForm) -> bytes | None:
        if self._brokers_version != self._brokers.version:
            self._bodies.clear()
            self._brokers_version = self._brokers.version
        body = self._bodies.get((route, form))
        if body is None:
            members = self._members(route, form.acting)
            if not members:
                return None
            body = self._bodies.put((route, form), _joined(members, form.standard))
        return body

    def _members(self, route: Route, acting: bool) -> list[tuple[BrokerGroup, BrokerQueues]]:
        """Return the live brokers of the route; one that has just left may still be in it."""
        members: list[tuple[BrokerGroup, BrokerQueues]] = []
        for name, queues in route.queues.items():
            group = self._brokers.get(name)
            if group is not None:
                acts = acting and group.enable_acting_master and not queues.numbers.writable
                members.append((group.acting if acts else group, queues))
        return members

    def _has_group(self, route: Route) -> bool:
        return any(self._brokers.get(name) is not None for name in route.queues)


def _is_near(group: BrokerGroup, zone_name: str) -> bool:
    """Return whether a client in a zone may use the broker; one without a master serves reads of all zones.

    (Apache RocketMQ 5.3.3, ZoneRouteRPCHook)
    """
    return not group.has_master or (group.zone_name or "").lower() == zone_name.lower()


def _joined(
    members: Sequence[tuple[BrokerGroup, BrokerQueues]],
    standard: bool,
    order_config: str | None = None,
    mapping: Mapping[str, TopicQueueMappingInfo] | None = None,
) -> bytes:
    """Join the encoded TopicRouteData from its pieces: 4 µs instead of 60 for 8 brokers."""
    write = fastjson.dumps_standard if standard else fastjson.dumps
    parts = [
        b'{"brokerDatas":[',
        b",".join([group.encoded[standard] for group, _ in members]),
        b'],"filterServerTable":{},',
    ]
    if order_config is not None:
        parts += (b'"orderTopicConf":', write(order_config), b",")
    parts += (b'"queueDatas":[', b",".join([queues.encoded[standard] for _, queues in members]), b"]")
    if mapping is not None:
        parts += (b',"topicQueueMappingByBroker":', write(mapping))
    parts.append(b"}")
    return b"".join(parts)
