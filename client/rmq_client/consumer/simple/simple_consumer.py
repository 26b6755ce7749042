"""SimpleConsumer: the application takes messages one by one, and says of each when it is done with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt

from ...clock import now_ms
from ...errors import ClientError, NotRunning, ReceiptExpired, UsageError
from ...lifetime import Lifetime
from ...namespaces import Namespace
from ...network.instance import ClientInstance
from ...settings import ClientSettings
from ...tasks import uninterrupted
from ..polling_member import PollingMember
from ..requests.ack_sender import AckSender
from ..requests.pop_client import PopClient
from ..requests.pop_receipts import PopHandle
from ..subscription import Subscription, Topics, subscriptions_to
from .message_receiver import MessageReceiver

log = logging.getLogger("rmq.client.simple_consumer")

_DEFAULT_SETTINGS: Final = ClientSettings()
_ITERATED_AT_ONCE: Final = 16
_FIRST_PAUSE_SECONDS: Final = 0.005
_MAX_DOUBLINGS: Final = 7
# What waited here is given as it is where so much of the time that is asked for is left. Iterating lets its
# own messages wait, and needs more room.
_RECEIVED_SHARE: Final = 0.9
_ITERATED_SHARE: Final = 0.5


class SimpleConsumer(Lifetime):
    """Takes messages that no other consumer of the group sees for a while.

    ::

        async with SimpleConsumer("127.0.0.1:9876", group="till", subscriptions={"orders": "*"}) as consumer:
            for message in await consumer.receive(max_messages=16, invisible_seconds=30):
                ...
                await consumer.ack(message)

    A message that is not acknowledged within its invisible time comes again, to this consumer or another one
    of the group, with its `delivery_attempt` one higher; when it has been given out too often for the group's
    configuration it becomes a dead letter. Consumers of a group share all queues: there is no rebalancing,
    and no order.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        subscriptions: Topics = (),
        consume_from: Literal["first", "last"] = "last",
        invisible_seconds: float = 60.0,
        await_seconds: float = 15.0,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """`subscriptions`: one topic, several topics, or a mapping of topics to tags such as `paid || sent`
        (`*`: all messages) or to an `Sql` expression.

        `consume_from` counts for queues that the group has never consumed. `invisible_seconds` and
        `await_seconds` are what `receive` uses where it is not told, and what iterating uses. Raises
        UsageError.
        """
        self._namespace = Namespace(settings.namespace)
        self._group = self._namespace.checked_group(group)
        if consume_from not in ("first", "last"):
            raise UsageError(f"consume_from {consume_from!r} must be 'first' or 'last'")
        self.group = group
        self._namesrv = namesrv
        self._consume_from = consume_from
        self._invisible_ms = _milliseconds(invisible_seconds)
        self._await_seconds = await_seconds
        self._settings = settings
        self._subscriptions = subscriptions_to(subscriptions, self._namespace, now_ms())
        self._instance: ClientInstance | None = None
        self._starts_or_stops = asyncio.Lock()
        # Made by start().
        self._member: PollingMember
        self._client: PopClient
        self._acks: AckSender
        self._receiver: MessageReceiver

    # --- life ---

    async def start(self) -> None:
        """Join the group. Raises ClientError, also where a topic does not exist."""
        async with self._starts_or_stops:
            await self._start()

    async def _start(self) -> None:
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        from_newest = self._consume_from == "last"
        self._client = PopClient(
            instance.bridge(), self._group, self._settings, now_ms, from_newest=from_newest
        )
        self._acks = AckSender(self._client)
        self._receiver = MessageReceiver(
            instance, self._client, self._acks, self.group, lambda: self._subscriptions
        )
        self._member = PollingMember(self._group, self._consume_from, ConsumeType.CONSUME_POP)
        try:
            await uninterrupted(instance.run(instance.add_consumer(self._member)))
            await self._announce(instance)
        except BaseException:
            await uninterrupted(instance.release_after(instance.remove_consumer(self._member)))
            raise
        self._instance = instance

    async def stop(self) -> None:
        """Leave the group. Messages that were popped and not handed out go back at once."""
        await uninterrupted(self._end())

    async def _end(self) -> None:
        async with self._starts_or_stops:
            instance, self._instance = self._instance, None
            if instance is not None:
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
        """Whether it has been started and not been stopped."""
        return self._instance is not None

    # --- what is consumed ---

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Take messages of a topic, or of another part of it, from now on. Raises ClientError."""
        known = self._subscriptions
        topic = self._namespace.wrap(topic)
        self._subscriptions = {**known, topic: Subscription(topic, expression, now_ms())}
        if self._instance is not None:
            try:
                await self._announce(self._instance)
            except ClientError:
                self._subscriptions = known
                raise

    async def unsubscribe(self, topic: str) -> None:
        """Take messages of a topic no longer."""
        topic = self._namespace.wrap(topic)
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if name != topic}
        if self._instance is not None:
            await self._announce(self._instance)

    async def _announce(self, instance: ClientInstance) -> None:
        await instance.run(self._member.subscribe(instance, list(self._subscriptions.values())))

    # --- messages ---

    async def receive(
        self,
        max_messages: int = 16,
        invisible_seconds: float | None = None,
        await_seconds: float | None = None,
    ) -> list[MessageExt]:
        """Up to `max_messages` (and 32), of one topic and broker; none if none come within `await_seconds`.

        No other consumer of the group gets them for `invisible_seconds`, of which the way here is a part.
        What a cancelled call would have got, the next one gets. Raises ClientError where no broker of the
        topics can be asked.
        """
        self._running()
        if max_messages < 1:
            raise UsageError(f"max_messages {max_messages} must be at least 1")
        invisible_ms = self._invisible_ms if invisible_seconds is None else _milliseconds(invisible_seconds)
        messages = await self._receiver.take_prefetched(max_messages, invisible_ms, _RECEIVED_SHARE)
        if messages:
            return messages
        wait_seconds = self._await_seconds if await_seconds is None else await_seconds
        return (await self._receiver.receive(max_messages, invisible_ms, wait_seconds)).messages

    async def ack(self, message: MessageExt) -> None:
        """The group is done with the message. Acknowledgements that are under way together go together.

        Raises ReceiptExpired where the message is not this consumer's any more: then it may come again.
        Raises other ClientErrors where that is not known.
        """
        self._running()
        handle = self._client.handle_of(message)
        address = await self._receiver.address_of(message, handle)
        await self._acks.ack(address, self._client.topic_of(message), handle)
        self._check_in_time(handle, "acknowledged")

    async def change_invisible_duration(self, message: MessageExt, seconds: float) -> None:
        """The message comes again `seconds` from now, unless it is acknowledged before; 0: at once.

        It has another receipt then; the old one, in a copy of it, is good for nothing. Raises as `ack`.
        """
        self._running()
        handle = self._client.handle_of(message)
        await self._receiver.change_invisible_time(message, handle, _milliseconds(seconds, least=0))
        self._check_in_time(handle, "kept")

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Message by message, until the consumer is stopped. Raises as `receive`.

        Several are popped at once. One that waited here for long is kept from the others anew before it is
        given; one that waited for too long is passed over, and comes again.
        """
        while self._instance is not None:
            for message in await self.next_messages():
                yield message

    async def next_messages(self) -> list[MessageExt]:
        """What iterating gives next: one message, the others of the same pop being kept; or none, for now."""
        self._running()
        receiver = self._receiver
        messages = await receiver.take_prefetched(1, self._invisible_ms, _ITERATED_SHARE)
        if messages:
            return messages
        received = await receiver.receive(_ITERATED_AT_ONCE, self._invisible_ms, self._await_seconds)
        receiver.keep(received.messages[1:], self._invisible_ms, received.popped_at)
        return received.messages[:1]

    def _check_in_time(self, handle: PopHandle, done: str) -> None:
        """Apache's brokers take what is too late without a word, and the message may come again."""
        late_ms = self._client.overdue_ms(handle.receipt)
        if late_ms > 0:
            raise ReceiptExpired(
                ResponseCode.NO_MESSAGE,
                f"the message was {done}, but {late_ms} ms after its invisible time had ended: it may come "
                "again; use a longer invisible time",
                handle.receipt.broker_name,
                f"message {handle.offset} of {handle.topic}",
            )

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunning(f"consumer {self.group} is not running: use `async with SimpleConsumer(...)`")
        return self._instance


def _milliseconds(seconds: float, *, least: int = 1) -> int:
    """An invisible time as brokers take it. Raises UsageError."""
    milliseconds = round(seconds * 1000)
    if milliseconds < least:
        raise UsageError(f"an invisible time of {seconds} s is too short: {least} ms are the least")
    return milliseconds
