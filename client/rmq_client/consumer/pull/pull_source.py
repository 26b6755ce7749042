"""Pulls of one pull consumer: the first offset of a queue, and its next messages."""

from __future__ import annotations

from collections.abc import Callable

from rmq_remoting.message_queue import MessageQueue

from ...clock import now_ms
from ...errors import UnreachableError
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi
from ...network.instance import ClientInstance
from ..offsets.start_position import ConsumeFrom, start_offset
from ..requests.pull_client import PullClient, PullResult
from ..subscription import Subscription


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
        address = await self.address_of(queue)
        return await start_offset(self._api, address, self._group, queue, self._consume_from)

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pull messages of `queue` (full topic name) from `offset` on. Raises ClientError."""
        instance = self._running()
        route = await instance.route(queue.topic)
        subscription = self._subscription(queue.topic) or Subscription(queue.topic, "*", now_ms())
        try:
            result = await self._client.pull(route, queue, offset, subscription, send_subscription=True)
        except UnreachableError:
            instance = self._running()
            instance.loop.call_soon_threadsafe(instance.routes.request_failed, queue.topic)
            raise
        self._namespace.unwrap_topics(result.messages)
        return result

    async def address_of(self, queue: MessageQueue) -> str:
        """Return the address of the queue's broker. Raises ClientError."""
        return (await self._running().route(queue.topic)).known_address(queue.broker_name, queue)
