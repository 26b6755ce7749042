"""SimpleConsumer: the application receives messages and acknowledges each one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...bodies.serializers import Serializer, check_serializer
from ...checks import Seconds, check_choice, check_each, check_int, check_received, check_seconds
from ...clock import now_ms
from ...errors import ClientError, ReceiptExpired, UsageError
from ...hooks.consume import ConsumeHook, SettlementKind
from ...hooks.consumption import ConsumptionHooks, HookedConsumer
from ...lifetime import not_running
from ...namespaces import Namespace
from ...network.instance import ClientInstance
from ...settings import ClientSettings, check_namesrv, checked_settings
from ...tasks import uninterrupted
from ..body_decoder import BodyDecoder
from ..dead_lettering import DeadLetterSender, check_reason
from ..offsets.offset_reader import OffsetReader, readable_queues
from ..polling_member import PollingMember
from ..read_ahead import ReadAhead
from ..requests.ack_sender import AckSender
from ..requests.pop_client import MAX_POPPED, PopClient
from ..requests.pop_receipts import PopHandle
from ..subscription import Subscription, Topics, subscriptions_to
from .message_receiver import MessageReceiver
from .prefetched_messages import PrefetchedMessage

log = logging.getLogger(__name__)

_DEFAULT_SETTINGS: Final = ClientSettings()
_ITERATED_AT_ONCE: Final = 16
# Prefetched messages with this part of the requested invisible time left are returned as they are. Iterating
# lets its own messages wait, and needs more room.
_RECEIVED_SHARE: Final = 0.9
_ITERATED_SHARE: Final = 0.5


class SimpleConsumer(BodyDecoder, OffsetReader, HookedConsumer):
    """Receives messages that are invisible to the other consumers of the group for a while.

    ::

        async with SimpleConsumer("127.0.0.1:9876", group="till", topics="orders") as consumer:
            for message in await consumer.receive(max_messages=16, invisible_seconds=30):
                ...
                await consumer.ack(message)

    A message that is not acknowledged within its invisible time is redelivered, to this or another consumer
    of the group, with its `delivery_attempt` increased by one. After the number of deliveries in the group's
    configuration it becomes a dead letter. Consumers of a group share all queues: there is no rebalancing,
    and no order.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topics: Topics = (),
        consume_from: Literal["first", "last"] = "last",
        invisible_seconds: Seconds = 60.0,
        timeout_seconds: Seconds = 15.0,
        hooks: Sequence[ConsumeHook] = (),
        serializer: Serializer | None = None,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """Prepare a consumer. Raises InvalidArgumentError.

        `topics`: one topic, several topics, or a mapping of topics to tags such as `paid || sent` (`*`: all
        messages) or to an `Sql` expression. `consume_from` counts for queues that the group has never
        consumed. `invisible_seconds` and `timeout_seconds` are the defaults of `receive`, and the values of
        iterating. `hooks` get received messages, acknowledgements and changed invisible times. `serializer`
        reads bodies for `decode`.
        """
        self._settings = checked_settings(settings)
        self._namespace = Namespace(settings.namespace)
        self._group = self._namespace.checked_group(group)
        self.group = group
        self._namesrv = check_namesrv(namesrv)
        check_choice("consume_from", consume_from, ("first", "last"))
        self._consume_from: Literal["first", "last"] = consume_from
        self._invisible_ms = _milliseconds(invisible_seconds)
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds)
        self._hooks = check_each("hooks", hooks, ConsumeHook, "derive hooks from ConsumeHook")
        # None without a hook that is told: the methods then spend nothing on them.
        self._told: ConsumptionHooks | None = None
        self._serializer = None if serializer is None else check_serializer("serializer", serializer)
        self._subscriptions = subscriptions_to(topics, self._namespace, now_ms())
        self._instance: ClientInstance | None = None
        self._starts_or_stops = asyncio.Lock()
        # For iterating on the blocking face.
        self.read_ahead: ReadAhead[PrefetchedMessage] = ReadAhead(self._fill_read_ahead)
        # Created by start().
        self._loop: asyncio.AbstractEventLoop
        self._member: PollingMember
        self._client: PopClient
        self._acks: AckSender
        self._receiver: MessageReceiver
        self._dead_letters: DeadLetterSender

    # --- lifecycle ---

    async def start(self) -> None:
        """Join the group. Raises ClientError, also for a topic that does not exist."""
        async with self._starts_or_stops:
            await self._start()

    async def _start(self) -> None:
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        self._loop = asyncio.get_running_loop()
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        self._told = ConsumptionHooks.of(self.group, self._namespace, self._hooks)
        self.read_ahead.taken = None if self._told is None else self._told.received
        from_newest = self._consume_from == "last"
        self._client = PopClient(
            instance.bridge(), self._group, self._settings, now_ms, from_newest=from_newest
        )
        self._acks = AckSender(self._client)
        self._receiver = MessageReceiver(
            instance, self._client, self._acks, self.group, lambda: self._subscriptions
        )
        self._dead_letters = DeadLetterSender(instance, self._group, self._namespace)
        self._member = PollingMember(self._group, self._consume_from, ConsumeType.CONSUME_POP)
        try:
            await uninterrupted(instance.run(instance.add_consumer(self._member)))
            await self._announce(instance)
        except BaseException:
            await uninterrupted(instance.release_after(instance.remove_consumer(self._member)))
            raise
        self._instance = instance

    async def stop(self) -> None:
        """Leave the group. Popped messages that were not returned become visible again at once."""
        await uninterrupted(self._end())

    async def _end(self) -> None:
        async with self._starts_or_stops:
            instance, self._instance = self._instance, None
            if instance is not None and not instance.is_forked:
                self._receiver.settle(self.read_ahead)
                self._receiver.begin_stop()
                await self._stop(instance)

    async def _stop(self, instance: ClientInstance) -> None:
        try:
            await self._receiver.stop()
            await self._acks.drain(self._settings.request_timeout_seconds)
        finally:
            await instance.release_after(instance.remove_consumer(self._member))

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._instance is not None

    # --- subscriptions ---

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Receive messages of another topic, or with another filter, from now on. Raises ClientError."""
        known = self._subscriptions
        topic = self._namespace.checked_topic(topic)
        self._subscriptions = {**known, topic: Subscription(topic, expression, now_ms())}
        if self._instance is not None:
            try:
                await self._announce(self._instance)
            except ClientError:
                self._subscriptions = known
                raise

    async def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
        topic = self._namespace.checked_topic(topic)
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if name != topic}
        if self._instance is not None:
            await self._announce(self._instance)

    async def _announce(self, instance: ClientInstance) -> None:
        await instance.run(self._member.subscribe(instance, list(self._subscriptions.values())))

    # --- messages ---

    async def receive(
        self,
        max_messages: int = 16,
        invisible_seconds: Seconds | None = None,
        timeout_seconds: Seconds | None = None,
    ) -> list[MessageExt]:
        """Return up to `max_messages`, at most 32, of one topic and broker; none if none arrive in
        `timeout_seconds`.

        They are invisible to other consumers of the group for `invisible_seconds`, which include the
        transfer. Messages that a cancelled call would have returned are returned by the next one. Raises
        ClientError if no broker of the topics can be asked.
        """
        check_int("max_messages", max_messages, least=1, most=MAX_POPPED)
        wait_seconds = (
            self._timeout_seconds
            if timeout_seconds is None
            else check_seconds("timeout_seconds", timeout_seconds)
        )
        invisible_ms = self._invisible_ms if invisible_seconds is None else _milliseconds(invisible_seconds)
        self._running()
        if self._told is None:
            return await self._receive(max_messages, invisible_ms, wait_seconds)
        with self._told.receiving(lambda: list(self._subscriptions)) as received:
            received.extend(await self._receive(max_messages, invisible_ms, wait_seconds))
        return received

    async def _receive(self, max_messages: int, invisible_ms: int, wait_seconds: float) -> list[MessageExt]:
        self._receiver.settle(self.read_ahead)
        messages = await self._receiver.take_prefetched(max_messages, invisible_ms, _RECEIVED_SHARE)
        if messages:
            return messages
        return (await self._receiver.receive(max_messages, invisible_ms, wait_seconds)).messages

    async def ack(self, message: MessageExt) -> None:
        """Acknowledge the message for the group. Concurrent acknowledgements share requests.

        Raises ReceiptExpired if the message no longer belongs to this consumer: it may be redelivered. Raises
        other ClientErrors if that is unknown.
        """
        check_received("message", message)
        self._running()
        if self._told is None:
            await self._ack(message)
            return
        with self._told.settling(SettlementKind.ACK, [message]):
            await self._ack(message)

    async def _ack(self, message: MessageExt) -> None:
        handle = self._client.handle_of(message)
        address = await self._receiver.address_of(message, handle)
        await self._acks.ack(address, self._client.topic_of(message), handle)
        self._check_in_time(handle, "acknowledged")

    async def dead_letter(self, message: MessageExt, reason: str = "") -> None:
        """Make the message a dead letter of the group at once, and acknowledge it.

        `reason` becomes the property `dead_letter_reason` of the dead letter. After an error the message may
        be redelivered, and become a dead letter again. Raises as `ack`.
        """
        check_received("message", message)
        check_reason(reason)
        self._running()
        if self._told is None:
            await self._dead_letter(message, reason)
            return
        with self._told.settling(SettlementKind.DEAD_LETTER, [message]):
            await self._dead_letter(message, reason)

    async def _dead_letter(self, message: MessageExt, reason: str) -> None:
        # Before anything is sent: a message that is visible again may be consumed by another member.
        self._check_in_time(self._client.handle_of(message), "made a dead letter")
        await self._dead_letters.send(message, reason)
        await self._ack(message)

    async def change_invisible_time(self, message: MessageExt, invisible_seconds: Seconds) -> None:
        """Make the message visible again `invisible_seconds` from now, unless it is acknowledged before.

        0: at once.

        The message gets another receipt. The old one, in a copy of it, is useless then. Raises as `ack`.
        """
        check_received("message", message)
        invisible_ms = _milliseconds(invisible_seconds, least=0)
        self._running()
        if self._told is None:
            await self._change_invisible_time(message, invisible_ms)
            return
        delay_seconds = invisible_ms / 1000
        with self._told.settling(SettlementKind.INVISIBLE_TIME, [message], delay_seconds=delay_seconds):
            await self._change_invisible_time(message, invisible_ms)

    async def _change_invisible_time(self, message: MessageExt, invisible_ms: int) -> None:
        handle = self._client.handle_of(message)
        await self._receiver.change_invisible_time(message, handle, invisible_ms)
        self._check_in_time(handle, "kept")

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Yield message by message until the consumer is stopped. Raises as `receive`.

        Several messages are popped at once. A message that waited here for long is made invisible again
        before it is returned. A message that waited for too long is skipped, and redelivered.
        """
        while self._instance is not None:
            for message in await self.next_messages():
                yield message

    async def next_messages(self) -> list[MessageExt]:
        """Return the next message of an iteration, and keep the others of its pop; none if there is none
        for now.
        """
        self._running()
        if self._told is None:
            return await self._next_messages()
        with self._told.receiving(lambda: list(self._subscriptions)) as received:
            received.extend(await self._next_messages())
        return received

    async def _next_messages(self) -> list[MessageExt]:
        receiver = self._receiver
        messages = await receiver.take_prefetched(1, self._invisible_ms, _ITERATED_SHARE)
        if messages:
            return messages
        received = await receiver.receive(_ITERATED_AT_ONCE, self._invisible_ms, self._timeout_seconds)
        receiver.keep(received.messages[1:], self._invisible_ms, received.popped_at)
        return received.messages[:1]

    async def _fill_read_ahead(self) -> None:
        """Wait for messages, and put them into `read_ahead`: for iterating on the blocking face."""
        self._running()
        receiver = self._receiver
        receiver.settle(self.read_ahead)
        taken = await receiver.take_ahead(_ITERATED_AT_ONCE, self._invisible_ms, _ITERATED_SHARE)
        if not taken:
            received = await receiver.receive(_ITERATED_AT_ONCE, self._invisible_ms, self._timeout_seconds)
            receiver.keep(received.messages, self._invisible_ms, received.popped_at)
            taken = await receiver.take_ahead(_ITERATED_AT_ONCE, self._invisible_ms, _ITERATED_SHARE)
        self.read_ahead.put(taken)

    def _offset_instance(self) -> ClientInstance:
        return self._running()

    def _offset_group(self) -> str:
        return self._group

    async def _own_queues(self) -> list[MessageQueue]:
        """Return all queues of its topics: consumers of the group share them."""
        return await readable_queues(self._running(), self._subscriptions)

    def _check_in_time(self, handle: PopHandle, done: str) -> None:
        """Raise ReceiptExpired for a late request: Apache's brokers accept it silently, and may redeliver."""
        late_ms = self._client.overdue_ms(handle.receipt)
        if late_ms > 0:
            raise ReceiptExpired(
                ResponseCode.NO_MESSAGE,
                f"the message was {done} {late_ms} ms after the end of its invisible time: it may be "
                "redelivered; use a longer invisible time",
                handle.receipt.broker_name,
                f"message {handle.offset} of {handle.topic}",
            )

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise not_running(f"consumer {self.group}")
        self._check_process()
        self._check_loop(self._loop)
        return self._instance


def _milliseconds(invisible_seconds: Seconds, *, least: int = 1) -> int:
    """Return an invisible time in the unit of brokers. Raises InvalidArgumentError."""
    seconds = check_seconds("invisible_seconds", invisible_seconds, least=least / 1000)
    return max(least, round(seconds * 1000))
