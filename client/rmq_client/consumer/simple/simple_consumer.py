"""SimpleConsumer: the application takes messages one by one, and says of each when it is done with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal, NamedTuple

from rmq_remoting.bodies.heartbeat import ConsumeType
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt
from rmq_remoting.message_properties import PROPERTY_POP_CK

from ...clock import now_ms
from ...errors import ClientError, NoQueue, NotRunning, ReceiptExpired, UnreachableError, UsageError
from ...lifetime import Lifetime
from ...namespaces import Namespace
from ...network.instance import ClientInstance
from ...settings import ClientSettings
from ...tasks import uninterrupted
from ..polling_member import PollingMember
from ..requests.ack_sender import AckSender, log_failure
from ..requests.pop_client import PopClient
from ..requests.pop_receipts import PopHandle
from ..requests.pop_source import PopSource
from ..subscription import Subscription, Topics, subscriptions_to
from .arrival_notifications import ArrivalNotifications
from .prefetched_messages import PrefetchedMessage, PrefetchedMessages

log = logging.getLogger("rmq.client.simple_consumer")

_DEFAULT_SETTINGS: Final = ClientSettings()
_ITERATED_AT_ONCE: Final = 16
_FIRST_PAUSE_SECONDS: Final = 0.005
_MOST_DOUBLINGS: Final = 7
# What waited here is given as it is where so much of the time that is asked for is left. Iterating lets its
# own messages wait, and needs more room.
_RECEIVED_SHARE: Final = 0.9
_ITERATED_SHARE: Final = 0.5


class _Received(NamedTuple):
    """Messages, and when they were asked for, by the loop's clock."""

    messages: list[MessageExt]
    popped_at: float


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
        self._prefetched = PrefetchedMessages()
        self._pops: set[asyncio.Task[list[MessageExt]]] = set()
        # Pops that nobody waits for any more.
        self._left_alone: set[asyncio.Task[list[MessageExt]]] = set()
        self._turn = 0
        self._instance: ClientInstance | None = None
        self._starts_or_stops = asyncio.Lock()
        # Made by start().
        self._member: PollingMember
        self._client: PopClient
        self._acks: AckSender
        self._notifications: ArrivalNotifications

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
        self._notifications = ArrivalNotifications(self._client, self._address_of)
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
                await self._stop(instance)

    async def _stop(self, instance: ClientInstance) -> None:
        await self._notifications.stop()
        try:
            if self._pops:
                await asyncio.wait(list(self._pops))
            await self._give_back(instance)
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
        messages = await self._take_prefetched(max_messages, invisible_ms, _RECEIVED_SHARE)
        if messages:
            return messages
        wait_seconds = self._await_seconds if await_seconds is None else await_seconds
        return (await self._receive(max_messages, invisible_ms, wait_seconds)).messages

    async def _receive(self, max_messages: int, invisible_ms: int, wait_seconds: float) -> _Received:
        """Pop, and wait where there is nothing. Raises ClientError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        in_vain = 0
        first: PopSource | None = None
        while self._instance is not None:
            received = await self._pop_any(max_messages, invisible_ms, first)
            if received.messages:
                return received
            seconds = deadline - loop.time()
            if seconds <= 0:
                break
            if in_vain:
                # There was something, but others were quicker, or the broker holds it back for now.
                pause = _FIRST_PAUSE_SECONDS * 2 ** min(in_vain, _MOST_DOUBLINGS)
                await asyncio.sleep(min(pause, seconds))
            first = await self._notifications.wait(await self._sources(), deadline - loop.time())
            in_vain = 0 if first is None else in_vain + 1
        return _Received([], loop.time())

    async def ack(self, message: MessageExt) -> None:
        """The group is done with the message. Acknowledgements that are under way together go together.

        Raises ReceiptExpired where the message is not this consumer's any more: then it may come again.
        Raises other ClientErrors where that is not known.
        """
        self._running()
        held = self._client.held(message)
        topic = self._client.topic_of(message)
        address = await self._address(topic, held.receipt.broker_name)
        await self._acks.ack(address, topic, held)
        self._check_in_time(held, "acknowledged")

    async def change_invisible_duration(self, message: MessageExt, seconds: float) -> None:
        """The message comes again `seconds` from now, unless it is acknowledged before; 0: at once.

        It has another receipt then; the old one, in a copy of it, is good for nothing. Raises as `ack`.
        """
        self._running()
        held = self._client.held(message)
        await self._change(message, held, _milliseconds(seconds, least=0))
        self._check_in_time(held, "kept")

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
        messages = await self._take_prefetched(1, self._invisible_ms, _ITERATED_SHARE)
        if messages:
            return messages
        received = await self._receive(_ITERATED_AT_ONCE, self._invisible_ms, self._await_seconds)
        self._prefetched.put(received.messages[1:], self._invisible_ms, received.popped_at)
        return received.messages[:1]

    # --- popping ---

    async def _pop_any(self, max_messages: int, invisible_ms: int, first: PopSource | None) -> _Received:
        """What is there at the first place in turn that has something. Raises ClientError if none answers."""
        failure: ClientError | None = None
        answered = False
        sources = await self._sources()
        if first in sources:
            sources.sort(key=lambda source: source != first)
        popped_at = 0.0
        for source in sources:
            popped_at = asyncio.get_running_loop().time()
            try:
                messages = await self._pop(source, max_messages, invisible_ms)
            except ClientError as error:
                log.info("%s", error)
                failure = error
                if isinstance(error, UnreachableError) and self._instance is not None:
                    self._instance.loop.call_soon_threadsafe(
                        self._instance.routes.request_failed, source.topic
                    )
                continue
            answered = True
            if messages or self._instance is None:
                return _Received(messages, popped_at)
        if failure is not None and not answered:
            raise failure
        return _Received([], popped_at)

    async def _pop(self, source: PopSource, max_messages: int, invisible_ms: int) -> list[MessageExt]:
        """Pop without waiting. Who is cancelled leaves what comes to the next one."""
        popped_at = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._pop_now(source, max_messages, invisible_ms), name="rmq pop")
        self._pops.add(task)
        task.add_done_callback(self._pops.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:

            def keep(ended: asyncio.Task[list[MessageExt]]) -> None:
                self._left_alone.discard(ended)
                if not ended.cancelled() and ended.exception() is None:
                    self._prefetched.put(ended.result(), invisible_ms, popped_at)

            self._left_alone.add(task)
            task.add_done_callback(keep)
            raise

    async def _pop_now(self, source: PopSource, max_messages: int, invisible_ms: int) -> list[MessageExt]:
        address = await self._address_of(source)
        subscription = self._subscriptions.get(source.topic)
        if subscription is None:
            return []
        popped_at = asyncio.get_running_loop().time()
        popped = await self._client.pop(address, source, subscription, max_messages, invisible_ms)
        for message in popped.unwanted:
            # Their tags are others with the same hash code.
            acked = self._acks.post(address, source.topic, self._client.held(message))
            acked.add_done_callback(log_failure)
        if self._instance is None:
            # Nobody can acknowledge them any more: stop() gives them back.
            self._prefetched.put(popped.messages, invisible_ms, popped_at)
            return []
        return popped.messages

    async def _take_prefetched(self, max_messages: int, invisible_ms: int, share: float) -> list[MessageExt]:
        """What was popped before; what has less than `share` of `invisible_ms` left gets all of it anew."""
        while self._left_alone:
            await asyncio.wait(list(self._left_alone))
        now = asyncio.get_running_loop().time()
        taken = self._prefetched.take(max_messages, now)
        old = [waiting for waiting in taken if waiting.visible_at - now < share * invisible_ms / 1000]
        if old:
            try:
                renewed = await asyncio.gather(*(self._renew(waiting, invisible_ms) for waiting in old))
            except asyncio.CancelledError:
                self._prefetched.put_back(taken)
                raise
            lost = {id(waiting) for waiting, is_ours in zip(old, renewed, strict=True) if not is_ours}
            taken = [waiting for waiting in taken if id(waiting) not in lost]
        return [waiting.message for waiting in taken]

    async def _renew(self, waiting: PrefetchedMessage, invisible_ms: int) -> bool:
        message = waiting.message
        try:
            await self._change(message, self._client.held(message), invisible_ms)
        except ClientError as error:
            log.info("a message that waited here comes again: %s", error)
            return False
        return True

    async def _give_back(self, instance: ClientInstance) -> None:
        """What nobody has got comes again at once."""

        async def give_back(message: MessageExt) -> None:
            try:
                await self._change(message, self._client.held(message), 0, instance)
            except ClientError as error:
                log.info("a message comes again later: %s", error)

        left = self._prefetched.take(len(self._prefetched), asyncio.get_running_loop().time())
        await asyncio.gather(*(give_back(waiting.message) for waiting in left))

    async def _change(
        self,
        message: MessageExt,
        held: PopHandle,
        invisible_ms: int,
        instance: ClientInstance | None = None,
    ) -> None:
        topic = self._client.topic_of(message)
        address = await self._address(topic, held.receipt.broker_name, instance)
        receipt = await self._client.change_invisible_time(address, held, invisible_ms)
        message.properties[PROPERTY_POP_CK] = str(receipt)

    def _check_in_time(self, held: PopHandle, done: str) -> None:
        """Apache's brokers take what is too late without a word, and the message may come again."""
        late_ms = self._client.overdue_ms(held.receipt)
        if late_ms > 0:
            raise ReceiptExpired(
                ResponseCode.NO_MESSAGE,
                f"the message was {done}, but {late_ms} ms after its invisible time had ended: it may come "
                "again; use a longer invisible time",
                held.receipt.broker_name,
                f"message {held.offset} of {held.topic}",
            )

    # --- where ---

    async def _sources(self) -> list[PopSource]:
        """Where there may be messages, each place first in turn. Raises ClientError if none is known."""
        failure: ClientError | None = None
        sources: list[PopSource] = []
        for topic in self._subscriptions:
            try:
                route = await self._running().route(topic)
            except ClientError as error:
                failure = error
                continue
            names = dict.fromkeys(queue.broker_name for queue in route.read_queues)
            sources += [PopSource(topic, name) for name in names]
        if not sources:
            if failure is not None:
                raise failure
            if not self._subscriptions:
                raise UsageError(f"consumer {self.group} has no topics: name some with subscriptions=...")
            raise NoQueue(f"no queue of {', '.join(self._subscriptions)} can be read")
        self._turn = (self._turn + 1) % len(sources)
        return sources[self._turn :] + sources[: self._turn]

    async def _address_of(self, source: PopSource) -> str:
        return await self._address(source.topic, source.broker_name)

    async def _address(self, topic: str, broker_name: str, instance: ClientInstance | None = None) -> str:
        instance = instance or self._running()
        return (await instance.route(topic)).known_address(broker_name, topic)

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
