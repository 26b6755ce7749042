"""Rebalancing: which queues of the subscribed topics are this consumer's share now."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rmq_remoting.message_queue import MessageQueue

from ..brokers import BrokerApi
from ..errors import ClientError, RouteError
from ..names import RETRY_TOPIC_PREFIX
from ..routing import RouteTable, TopicRoute
from .allocation import Allocation

log = logging.getLogger("rmq.client.rebalance")


@dataclass(frozen=True, slots=True)
class Share:
    """The queues of one topic that are this consumer's; `alone`: nobody else can have had them just now."""

    queues: frozenset[MessageQueue]
    alone: bool


class Rebalancer:
    """Computes shares. Changes nothing: the consumer takes and gives up queues by what it says."""

    def __init__(
        self,
        group: str,
        client_id: str,
        *,
        routes: RouteTable,
        api: BrokerApi,
        allocation: Allocation | None,
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        """`announce` tells all brokers of this consumer. Without `allocation`, in broadcasting, all queues
        are its own.
        """
        self._group = group
        self._client_id = client_id
        self._routes = routes
        self._api = api
        self._allocation = allocation
        self._announce = announce
        self._missing: set[str] = set()

    async def share(self, topic: str) -> Share | None:
        """The share of a topic; None where it cannot be told now, and all stays as it is."""
        try:
            route = await self._routes.route(topic)
        except RouteError as error:
            if topic.startswith(RETRY_TOPIC_PREFIX):
                return Share(frozenset(), alone=True)  # nothing has come back yet
            if topic not in self._missing:
                self._missing.add(topic)
                log.warning("group %s waits for its topic: %s", self._group, error)
            return None
        except ClientError as error:
            log.warning("group %s cannot be rebalanced: %s", self._group, error)
            return None
        self._missing.discard(topic)
        if self._allocation is None:
            return Share(frozenset(route.read_queues), alone=True)
        client_ids = await self._client_ids(route)
        if client_ids is None:
            return None
        if self._client_id not in client_ids:
            log.info("group %s: the broker does not know this consumer yet", self._group)
            await self._announce()
            return None
        queues = sorted(route.read_queues)
        try:
            share = self._allocation(self._client_id, queues, sorted(client_ids))
        except Exception:  # the application's own strategy, say
            log.exception("group %s: the queues of %s could not be allocated", self._group, topic)
            return None
        return Share(frozenset(share), alone=len(client_ids) == 1)

    async def _client_ids(self, route: TopicRoute) -> list[str] | None:
        """Any broker of the topic knows the group."""
        names = list(route.brokers)
        random.shuffle(names)
        failure: ClientError | None = None
        for name in names:
            address = route.broker_address(name)
            if address is None:
                continue
            try:
                return await self._api.consumer_ids(address, self._group)
            except ClientError as error:
                failure = error
        self._routes.request_failed(route.topic)
        log.warning("group %s cannot be rebalanced: %s", self._group, failure or "its topic has no broker")
        return None
