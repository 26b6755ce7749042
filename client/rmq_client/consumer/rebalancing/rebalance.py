"""Rebalancing: the share of this consumer of each subscribed topic."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import ClientError, RouteError
from ...names import RETRY_TOPIC_PREFIX
from ...network.broker_api import BrokerApi
from ...network.routing import RouteTable, TopicRoute
from .allocation import Allocation
from .share import Share

log = logging.getLogger(__name__)

T = TypeVar("T")
Announce = Callable[[], Awaitable[None]]
"""Sends a heartbeat to all brokers."""


class Rebalance(ABC):
    """Determines shares. It changes nothing: the consumer takes and gives up the queues."""

    def __init__(self, group: str, client_id: str, *, routes: RouteTable, announce: Announce) -> None:
        self._group = group
        self._client_id = client_id
        self._routes = routes
        self._announce = announce
        self.failures: dict[str, ClientError] = {}
        """Why the share of a topic is unknown, by topic."""
        self._missing: set[str] = set()

    async def share(self, topic: str) -> Share | None:
        """Return the share of a topic; None if it is unknown now, and everything stays as it is."""
        self.failures.pop(topic, None)
        try:
            route = await self._routes.route(topic)
        except RouteError as error:
            if topic.startswith(RETRY_TOPIC_PREFIX):
                return Share(frozenset(), sole_member=True)  # no message was sent back so far
            self.failures[topic] = error
            if topic not in self._missing:
                self._missing.add(topic)
                log.warning("group waits for a topic group=%s cause=%s", self._group, error)
            return None
        except ClientError as error:
            self.failures[topic] = error
            log.warning("group not rebalanced group=%s cause=%s; retried", self._group, error)
            return None
        self._missing.discard(topic)
        try:
            return await self._share(route)
        except ClientError as error:
            self.failures[topic] = error
            log.warning("group not rebalanced group=%s cause=%s; retried", self._group, error)
            return None

    @abstractmethod
    async def _share(self, route: TopicRoute) -> Share | None:
        """Return the share of a topic with a known route. Raises ClientError."""

    async def _ask_any_broker(self, route: TopicRoute, ask: Callable[[str], Awaitable[T]]) -> T:
        """Return the answer of any broker of the topic, since each one knows the group.

        Raises ClientError.
        """
        names = list(route.brokers)
        random.shuffle(names)
        failure: ClientError = RouteError(f"topic {route.topic} has no broker")
        for name in names:
            address = route.broker_address(name)
            if address is None:
                continue
            try:
                return await ask(address)
            except ClientError as error:
                failure = error
        self._routes.request_failed(route.topic)
        raise failure


class ClientRebalance(Rebalance):
    """Shares that the members of a group compute by one strategy."""

    def __init__(
        self,
        group: str,
        client_id: str,
        *,
        routes: RouteTable,
        api: BrokerApi,
        allocation: Allocation | None,
        announce: Announce,
    ) -> None:
        """Without `allocation`, in broadcasting, this consumer gets all queues."""
        super().__init__(group, client_id, routes=routes, announce=announce)
        self._api = api
        self._allocation = allocation

    async def _share(self, route: TopicRoute) -> Share | None:
        if self._allocation is None:
            return Share(frozenset(route.read_queues), sole_member=True)
        client_ids = await self._ask_any_broker(
            route, lambda address: self._api.consumer_ids(address, self._group)
        )
        if self._client_id not in client_ids:
            log.info(
                "share unknown, the broker does not know this consumer yet group=%s; a heartbeat is sent",
                self._group,
            )
            await self._announce()
            return None
        queues = sorted(route.read_queues)
        try:
            share = self._allocation(self._client_id, queues, sorted(client_ids))
        except Exception:  # possibly the application's own strategy
            log.exception(
                "allocation strategy failed group=%s topic=%s; the assignment stays", self._group, route.topic
            )
            return None
        return Share(frozenset(share), sole_member=len(client_ids) == 1)
