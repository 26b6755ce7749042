"""Pulls of one pull consumer: the first offset of a queue, and its next messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rmq_remoting.message_queue import MessageQueue

from ...clock import now_ms
from ...errors import BrokerError, ClientError
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi
from ...network.instance import ClientInstance
from ...network.routing import TopicRoute, may_be_of_old_route
from ..offsets.start_position import ConsumeFrom, start_offset
from ..requests.pull_client import PullClient, PullResult
from ..subscription import Subscription

T = TypeVar("T")


class PullSource:
    """Asks the brokers for start offsets and messages. Belongs to the application's loop."""

    def __init__(
        self,
        running: Callable[[], ClientInstance],
        api: BrokerApi,
        client: PullClient,
        group: str,
        consume_from: ConsumeFrom,
        namespace: Namespace,
        subscription: Callable[[str], Subscription | None],
    ) -> None:
        """`running` returns the consumer's client instance, and raises NotRunning after a stop.

        `subscription` returns the consumer's subscription to a topic; without one, all messages are pulled.
        """
        self._running = running
        self._subscription = subscription
        self._api = api
        self._client = client
        self._group = group
        self._consume_from = consume_from
        self._namespace = namespace

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the committed offset of the group, or where it begins without one. Raises ClientError."""
        return await self.at_broker(
            queue,
            lambda address, asked: start_offset(self._api, address, self._group, asked, self._consume_from),
        )

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pull messages of `queue` (full topic name) from `offset` on. Raises ClientError."""
        route = await self._running().route(queue.topic)
        try:
            result = await self._pull(route, queue, offset)
        except ClientError as error:
            if not may_be_of_old_route(error):
                raise
            instance = self._running()
            if not isinstance(error, BrokerError):
                instance.loop.call_soon_threadsafe(instance.routes.request_failed, queue.topic)
                raise
            # Another broker leads the logical queue now.
            route = await instance.run(instance.routes.refresh(queue.topic))
            result = await self._pull(route, queue, offset)
        self._namespace.unwrap_topics(result.messages)
        return result

    async def _pull(self, route: TopicRoute, queue: MessageQueue, offset: int) -> PullResult:
        subscription = self._subscription(queue.topic) or Subscription(queue.topic, "*", now_ms())
        return await self._client.pull(route, queue, offset, subscription, send_subscription=True)

    async def at_broker(self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[T]]) -> T:
        """Ask the queue's broker, as ClientInstance.at_broker. Raises ClientError."""
        return await self._running().at_broker(queue, ask)
