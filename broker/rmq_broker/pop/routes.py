"""Which queues a topic has in the whole cluster, as the name servers say (TopicRouteInfoManager)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from rmq_remoting.bodies.route import TopicRouteData
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import BodyError, RequestError
from rmq_remoting.headers.namesrv import GetRouteInfoRequestHeader
from rmq_remoting.message_queue import MessageQueue

from ..settings.pop import PopSettings
from ..topics.permissions import is_readable
from ..topics.table import TopicTable

log = logging.getLogger("rmq.broker.pop")

_TIMEOUT_SECONDS: Final = 3.0
_MAX_TOPICS: Final = 10_000


class QueueRoutes:
    """Remembers routes for `loadBalancePollNameServerInterval`; without name servers its own queues count."""

    def __init__(
        self,
        settings: PopSettings,
        client: RemotingClient,
        addresses: Sequence[str],
        topics: TopicTable,
        broker_name: str,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._client = client
        self._addresses = tuple(addresses)
        self._topics = topics
        self._broker_name = broker_name
        self._clock = clock
        self._known: dict[str, tuple[float, list[MessageQueue] | None]] = {}
        self._asking: dict[str, asyncio.Task[list[MessageQueue] | None]] = {}

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """The queues to read, sorted; None for a topic that is not known."""
        if not self._addresses:
            return self._own_queues(topic)
        known = self._known.get(topic)
        max_age = self._settings.load_balance_poll_name_server_interval_ms / 1000
        if known is not None and self._clock() - known[0] < max_age and known[1] is not None:
            return known[1]
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(topic), name=f"route of {topic}")
            self._asking[topic] = asking
            asking.add_done_callback(lambda _: self._asking.pop(topic, None))
        return await asyncio.shield(asking)

    async def _ask(self, topic: str) -> list[MessageQueue] | None:
        """Ask the name servers, one after the other; where none answers, what was known counts on."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        for address in self._addresses:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
            try:
                response = await self._client.request(address, request, _TIMEOUT_SECONDS)
                if response.code == ResponseCode.SUCCESS:
                    return self._remember(topic, TopicRouteData.decode(response.body))
                if response.code == ResponseCode.TOPIC_NOT_EXIST:
                    return self._remember(topic, None)
                log.warning("name server %s gives no route of %s: %s", address, topic, response.remark)
            except (RequestError, BodyError) as error:
                log.warning("name server %s gives no route of %s: %s", address, topic, error)
        known = self._known.get(topic)
        return None if known is None else known[1]

    def _remember(self, topic: str, route: TopicRouteData | None) -> list[MessageQueue] | None:
        queues = None
        if route is not None:
            queues = sorted(
                MessageQueue(topic, data.broker_name, queue_id)
                for data in route.queue_datas
                if is_readable(data.perm)
                for queue_id in range(data.read_queue_nums)
            )
        if len(self._known) >= _MAX_TOPICS:
            self._known.clear()
        self._known[topic] = (self._clock(), queues)
        return queues

    def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not is_readable(config.perm):
            return None
        return [MessageQueue(topic, self._broker_name, number) for number in range(config.read_queue_nums)]
