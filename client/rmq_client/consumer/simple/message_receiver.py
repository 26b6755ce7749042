"""Receiving by POP: the order of the brokers, and popped messages that no `receive` has returned yet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from rmq_remoting.backoff import Backoff
from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import PROPERTY_POP_CK
from rmq_remoting.tasks import shielded

from ...errors import ClientError, NoQueue, UnreachableError, UsageError
from ...lifetime import not_running
from ...network.instance import ClientInstance
from ..read_ahead import Ahead, ReadAhead
from ..requests.ack_sender import AckSender, log_failure
from ..requests.pop_client import PopClient
from ..requests.pop_receipts import PopHandle
from ..requests.pop_source import PopSource
from ..subscription import Subscription
from .arrival_notifications import ArrivalNotifications
from .prefetched_messages import PrefetchedMessage, PrefetchedMessages

log = logging.getLogger(__name__)

# Pauses after notifications without a message.
_BACKOFF: Final = Backoff(0.01, 0.64)


class Received(NamedTuple):
    """Messages, and when they were asked for in seconds of the loop's clock."""

    messages: list[MessageExt]
    popped_at: float


class MessageReceiver:
    """Pops for one started simple consumer. Belongs to the loop of its start.

    A pop that was sent is never abandoned: a cancelled `receive` leaves its messages to the next one.
    """

    def __init__(
        self,
        instance: ClientInstance,
        client: PopClient,
        acks: AckSender,
        group: str,
        subscriptions: Callable[[], dict[str, Subscription]],
    ) -> None:
        """`subscriptions` returns the current ones of the consumer, by full topic name."""
        self._instance = instance
        self._client = client
        self._acks = acks
        self._group = group
        self._subscriptions = subscriptions
        self._notifications = ArrivalNotifications(client, self._address_of)
        self._prefetched = PrefetchedMessages()
        self._pops: set[asyncio.Task[list[MessageExt]]] = set()
        # Pops whose `receive` was cancelled.
        self._orphaned_pops: set[asyncio.Task[list[MessageExt]]] = set()
        self._turn = 0
        self._is_stopped = False

    async def receive(self, max_messages: int, invisible_ms: int, wait_seconds: float) -> Received:
        """Pop, and wait for up to `wait_seconds` while no message is there. Raises ClientError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        empty_pops = 0
        first: PopSource | None = None
        while not self._is_stopped:
            received = await self._pop_any(max_messages, invisible_ms, first)
            if received.messages:
                return received
            seconds = deadline - loop.time()
            if seconds <= 0 or self._is_stopped:
                break
            if empty_pops:
                # There was a message, but another consumer was faster, or the broker holds it back for now.
                await asyncio.sleep(min(_BACKOFF.pause(empty_pops), seconds))
            first = await self._notifications.wait(await self._sources(), deadline - loop.time())
            empty_pops = 0 if first is None else empty_pops + 1
        return Received([], loop.time())

    def keep(self, messages: list[MessageExt], invisible_ms: int, popped_at: float) -> None:
        """Keep popped messages for the next calls."""
        self._prefetched.put(messages, invisible_ms, popped_at)

    async def take_prefetched(
        self, max_messages: int, invisible_ms: int, min_remaining: float
    ) -> list[MessageExt]:
        """Return messages that an earlier call popped.

        A message with less than the fraction `min_remaining` of `invisible_ms` left is made invisible for the
        whole of it again.
        """
        return [one.message for one in await self._take(max_messages, invisible_ms, min_remaining)]

    async def take_ahead(
        self, max_messages: int, invisible_ms: int, min_remaining: float
    ) -> list[Ahead[PrefetchedMessage]]:
        """Return messages as `take_prefetched`, each with the time until which it needs no renewal."""
        taken = await self._take(max_messages, invisible_ms, min_remaining)
        # The clock of uvloop's loop has another origin.
        offset = time.monotonic() - asyncio.get_running_loop().time()
        margin = min_remaining * invisible_ms / 1000
        return [Ahead(one.message, one, one.visible_at - margin + offset) for one in taken]

    def settle(self, ahead: ReadAhead[PrefetchedMessage]) -> None:
        """Take back the messages that the blocking face has not yielded."""
        if ahead:
            self._prefetched.put_back([one.origin for one in ahead.take_back()])

    async def _take(
        self, max_messages: int, invisible_ms: int, min_remaining: float
    ) -> list[PrefetchedMessage]:
        while self._orphaned_pops:
            await asyncio.wait(list(self._orphaned_pops))
        loop = asyncio.get_running_loop()
        now = loop.time()
        taken = self._prefetched.take(max_messages, now)
        old = [one for one in taken if one.visible_at - now < min_remaining * invisible_ms / 1000]
        if not old:
            return taken
        try:
            renewed = await asyncio.gather(*(self._renew(one, invisible_ms) for one in old))
        except asyncio.CancelledError:
            self._prefetched.put_back(taken)
            raise
        visible_at = now + invisible_ms / 1000
        kept = {
            id(one): PrefetchedMessage(one.message, visible_at) if is_ours else None
            for one, is_ours in zip(old, renewed, strict=True)
        }
        return [current for one in taken if (current := kept.get(id(one), one)) is not None]

    async def change_invisible_time(self, message: MessageExt, handle: PopHandle, invisible_ms: int) -> None:
        """Change the invisible time of a message, and give it the new receipt. Raises as PopClient."""
        address = await self.address_of(message, handle)
        receipt = await self._client.change_invisible_time(address, handle, invisible_ms)
        message.properties[PROPERTY_POP_CK] = str(receipt)

    async def address_of(self, message: MessageExt, handle: PopHandle) -> str:
        """Return the address of the broker that a message was popped from. Raises ClientError."""
        return await self._address(self._client.topic_of(message), handle.receipt.broker_name)

    def begin_stop(self) -> None:
        """Pop nothing more; messages of pops in flight are kept for `stop`."""
        self._is_stopped = True

    async def stop(self) -> None:
        """Wait for the pops in flight, and make all messages visible again that were not returned."""
        await self._notifications.stop()
        if self._pops:
            await asyncio.wait(list(self._pops))
        left = self._prefetched.take(len(self._prefetched), asyncio.get_running_loop().time())
        await asyncio.gather(*(self._make_visible(one.message) for one in left))

    # --- popping ---

    async def _pop_any(self, max_messages: int, invisible_ms: int, first: PopSource | None) -> Received:
        """Pop from one source after the other until one has messages. Raises ClientError if all fail."""
        failures: list[tuple[PopSource, ClientError]] = []
        sources = await self._sources()
        if first in sources:
            sources.sort(key=lambda source: source != first)
        popped_at = 0.0
        for source in sources:
            popped_at = asyncio.get_running_loop().time()
            try:
                messages = await self._pop(source, max_messages, invisible_ms)
            except ClientError as error:
                failures.append((source, error))
                if isinstance(error, UnreachableError) and not self._is_stopped:
                    self._instance.loop.call_soon_threadsafe(
                        self._instance.routes.request_failed, source.topic
                    )
                continue
            if messages or self._is_stopped:
                _log_failures(failures)
                return Received(messages, popped_at)
        if failures and len(failures) == len(sources):
            raise failures[-1][1]
        _log_failures(failures)
        return Received([], popped_at)

    async def _pop(self, source: PopSource, max_messages: int, invisible_ms: int) -> list[MessageExt]:
        """Pop without waiting. A cancelled call leaves its messages to the next one."""
        popped_at = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._pop_now(source, max_messages, invisible_ms), name="rmq pop")
        self._pops.add(task)
        task.add_done_callback(self._pops.discard)
        try:
            return await shielded(task)
        except asyncio.CancelledError:

            def keep(ended: asyncio.Task[list[MessageExt]]) -> None:
                self._orphaned_pops.discard(ended)
                if not ended.cancelled() and ended.exception() is None:
                    self._prefetched.put(ended.result(), invisible_ms, popped_at)

            self._orphaned_pops.add(task)
            task.add_done_callback(keep)
            raise

    async def _pop_now(self, source: PopSource, max_messages: int, invisible_ms: int) -> list[MessageExt]:
        address = await self._address_of(source)
        subscription = self._subscriptions().get(source.topic)
        if subscription is None:
            return []
        popped_at = asyncio.get_running_loop().time()
        popped = await self._client.pop(address, source, subscription, max_messages, invisible_ms)
        for message in popped.unwanted:
            # Their tags are others with the same hash code.
            acked = self._acks.post(address, source.topic, self._client.handle_of(message))
            acked.add_done_callback(log_failure)
        if popped.undecoded:
            await asyncio.gather(*(self._make_visible(message) for message in popped.undecoded))
        if self._is_stopped:
            # Nobody can acknowledge these messages any more: stop() makes them visible again.
            self._prefetched.put(popped.messages, invisible_ms, popped_at)
            return []
        return popped.messages

    async def _renew(self, prefetched: PrefetchedMessage, invisible_ms: int) -> bool:
        """Make a prefetched message invisible for longer; whether that worked."""
        message = prefetched.message
        try:
            await self.change_invisible_time(message, self._client.handle_of(message), invisible_ms)
        except ClientError as error:
            log.info("prefetched message dropped id=%s cause=%s; it is redelivered", message.msg_id, error)
            return False
        return True

    async def _make_visible(self, message: MessageExt) -> None:
        try:
            await self.change_invisible_time(message, self._client.handle_of(message), 0)
        except ClientError as error:
            log.info(
                "message not made visible id=%s cause=%s; it is redelivered after its invisible time",
                message.msg_id,
                error,
            )

    # --- brokers ---

    async def _sources(self) -> list[PopSource]:
        """Return all brokers of all topics, each one first in turn. Raises ClientError if none is known."""
        failure: ClientError | None = None
        sources: list[PopSource] = []
        subscriptions = self._subscriptions()
        for topic in subscriptions:
            try:
                route = await self._running().route(topic)
            except ClientError as error:
                failure = error
                continue
            names = dict.fromkeys(queue.broker_name for queue in route.read_queues)
            if route.is_static:  # each broker of a static topic pops from its own queues
                names = dict.fromkeys(route.brokers)
            sources += [PopSource(topic, name) for name in names]
        if not sources:
            if failure is not None:
                raise failure
            if not subscriptions:
                raise UsageError(f"consumer {self._group} has no topics: name some with topics=...")
            raise NoQueue(f"no queue of {', '.join(subscriptions)} can be read")
        self._turn = (self._turn + 1) % len(sources)
        return sources[self._turn :] + sources[: self._turn]

    async def _address_of(self, source: PopSource) -> str:
        self._running()
        return await self._address(source.topic, source.broker_name)

    async def _address(self, topic: str, broker_name: str) -> str:
        return (await self._instance.route(topic)).known_address(broker_name, topic)

    def _running(self) -> ClientInstance:
        if self._is_stopped:
            raise not_running(f"consumer {self._group}")
        return self._instance


def _log_failures(failures: list[tuple[PopSource, ClientError]]) -> None:
    """Log errors that no caller gets, because another source has answered."""
    for source, error in failures:
        log.info("pop failed source=%s cause=%s; another source is tried", source.queue, error)
