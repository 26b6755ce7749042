"""Rebalancing by brokers, which know whether a group pulls or pops a topic."""

from __future__ import annotations

import logging
from typing import Final

from rmq_remoting.bodies.assignment import MessageRequestMode

from ...network.routing import RouteTable, TopicRoute
from ..requests.pop_client import PopClient
from ..requests.pop_source import PopSource
from .allocation import Allocation, averagely, by_circle
from .rebalance import Announce, Rebalance
from .share import Share

log = logging.getLogger(__name__)

# The brokers' names of the strategies that they support (Apache RocketMQ 5.3.3, QueryAssignmentProcessor).
STRATEGY_NAMES: Final[dict[Allocation, str]] = {averagely: "AVG", by_circle: "AVG_BY_CIRCLE"}


class BrokerRebalance(Rebalance):
    """Asks a broker of the topic for the share (400)."""

    def __init__(
        self,
        group: str,
        client_id: str,
        *,
        routes: RouteTable,
        client: PopClient,
        allocation: Allocation,
        announce: Announce,
    ) -> None:
        """`allocation` is one of STRATEGY_NAMES."""
        super().__init__(group, client_id, routes=routes, announce=announce)
        self._client = client
        self._strategy_name = STRATEGY_NAMES[allocation]

    async def _share(self, route: TopicRoute) -> Share | None:
        topic = route.topic
        assignments = await self._ask_any_broker(
            route,
            lambda address: self._client.assignments(address, topic, self._client_id, self._strategy_name),
        )
        if assignments is None:
            log.info(
                "share unknown, the broker does not know this consumer yet group=%s; a heartbeat is sent",
                self._group,
            )
            await self._announce()
            return None
        pulled, popped = set(), set()
        for assignment in assignments:
            queue = assignment.message_queue
            if queue is None:
                continue
            if assignment.mode is MessageRequestMode.POP:
                popped.add(PopSource(queue.topic, queue.broker_name, queue.queue_id))
            else:
                pulled.add(queue)
        return Share(frozenset(pulled), sole_member=False, sources=frozenset(popped))
