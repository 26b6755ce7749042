"""Sends of encoded messages and batches, for programs that encode by columns and not message by message.

Not part of the public SDK. Messages and their ids are not inspected. Back-pressure is the caller's, and so
are retries beyond `RetryPolicy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rmq_remoting.message_queue import MessageQueue

from ..errors import NotRunning, UsageError
from ..namespaces import Namespace
from ..network.instance import ClientInstance
from ..settings import ClientSettings
from ..tasks import uninterrupted
from .encoding import Outgoing, Stored
from .policies import RetryPolicy
from .sender import MessageSender

_NEW_TOPIC_QUEUES: Final = 4


class EncodedProducer:
    """A producer of encoded messages and batches. Belongs to the loop of its start."""

    def __init__(
        self, namesrv: str | Sequence[str] | None, group: str, settings: ClientSettings, retry: RetryPolicy
    ) -> None:
        """Prepare a producer. Raises UsageError for an invalid group name."""
        self.group = Namespace(settings.namespace).checked_group(group)
        self._namesrv = namesrv
        self._settings = settings
        self._retry = retry
        self._instance: ClientInstance | None = None
        self._sender: MessageSender | None = None

    async def start(self) -> None:
        """Join the group; no request is sent before it is needed. Raises UsageError."""
        if self._instance is not None:
            raise UsageError(f"producer {self.group} has been started already")
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        try:
            sender = MessageSender(instance, self.group, self._retry, _NEW_TOPIC_QUEUES)
            await uninterrupted(instance.run(instance.add_producer(self.group)))
        except BaseException:
            await uninterrupted(instance.release())
            raise
        self._instance, self._sender = instance, sender

    async def stop(self) -> None:
        """Leave the group and release the connections. No send may be in flight."""
        instance, self._instance, self._sender = self._instance, None, None
        if instance is not None:
            await uninterrupted(instance.release_after(instance.remove_producer(self.group)))

    async def queues(self, topic: str, timeout_seconds: float) -> tuple[MessageQueue, ...]:
        """Return the queues that messages of `topic` can go to. Raises ClientError."""
        return (await self._running().publish_info(topic, timeout_seconds)).queues

    async def has_brokers(self) -> bool:
        """Whether the name servers know any broker. Raises ClientError."""
        instance = self._instance
        if instance is None:
            raise self._not_running()
        info = await instance.run(instance.name_servers.cluster_info())
        return bool(info.broker_addr_table)

    async def send(
        self, topic: str, queue: MessageQueue | None, outgoing: Outgoing, timeout_seconds: float
    ) -> Stored:
        """Send to `queue`, or to the topic's queues in turn, and wait for the answer. Raises ClientError."""
        sender = self._running()
        loop = asyncio.get_running_loop()
        began = loop.time()
        publish_info = await sender.publish_info(topic, timeout_seconds)
        remaining = timeout_seconds - (loop.time() - began)
        _, stored = await sender.send(publish_info, queue, outgoing, remaining)
        return stored

    def _running(self) -> MessageSender:
        if self._sender is None:
            raise self._not_running()
        return self._sender

    def _not_running(self) -> NotRunning:
        return NotRunning(f"producer {self.group} is not running: `await start()` first")
