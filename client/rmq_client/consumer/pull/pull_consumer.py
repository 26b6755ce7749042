"""PullConsumer: the application polls for messages of queues that it assigns or shares."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ...bodies.serializers import Serializer, check_serializer
from ...checks import (
    Seconds,
    check_callable,
    check_each,
    check_flag,
    check_instance,
    check_int,
    check_offset,
    check_optional,
    check_queue,
    check_queues,
    check_received,
    check_seconds,
    check_time_ms,
    refuse,
)
from ...clock import now_ms
from ...errors import UsageError
from ...hooks.consume import ConsumeHook, SettlementKind
from ...hooks.consumption import ConsumptionHooks, HookedConsumer
from ...lifetime import not_running
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi
from ...network.instance import ClientInstance
from ...producer.producer import trace_producer
from ...settings import ClientSettings, check_namesrv, checked_settings
from ...tasks import uninterrupted
from ...trace.dispatcher import Tracing
from ...trace.tracer import Tracer
from ..body_decoder import BodyDecoder
from ..dead_lettering import DeadLetterSender, check_reason
from ..flow_control import FlowControl
from ..offsets.offset_reader import OffsetReader
from ..offsets.start_position import ConsumeFrom, check_consume_from, offset_of
from ..polling_member import PollingMember
from ..read_ahead import ReadAhead
from ..rebalancing.allocation import Allocation, averagely, with_namespace
from ..rebalancing.rebalance_listener import RebalanceCalls, RebalanceListener
from ..requests.pull_client import PullClient, PullResult, PullSettings
from ..subscription import Subscription, Topics, subscriptions_to
from ..timing import ConsumerTiming
from .offset_committer import OffsetCommitter
from .polling import Polling
from .prefetch_buffer import PrefetchBuffer, Taken
from .prefetched_queue import PrefetchedQueue
from .pull_rebalancer import PullRebalancer
from .pull_source import PullSource
from .queue_changes import QueueChanges
from .queue_listeners import QueueListeners, QueuesListener

log = logging.getLogger(__name__)

_DEFAULT_PULL: Final = PullSettings()
_DEFAULT_FLOW_CONTROL: Final = FlowControl()
_DEFAULT_TIMING: Final = ConsumerTiming()
_DEFAULT_SETTINGS: Final = ClientSettings()


class PullConsumer(BodyDecoder, OffsetReader, HookedConsumer):
    """Reads queues at the application's own pace.

    ::

        async with PullConsumer("127.0.0.1:9876", group="audit", topics="orders") as consumer:
            for message in await consumer.poll(timeout_seconds=5):
                ...
            await consumer.commit()

    Messages are prefetched, up to `flow_control` per queue. The application assigns queues, or it subscribes
    to topics, whose queues the members of the group share. The application decides when to `commit`; with
    `auto_commit` the consumer commits every few seconds. Belongs to one loop.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        topics: Topics = (),
        consume_from: ConsumeFrom = "last",
        pull: PullSettings = _DEFAULT_PULL,
        flow_control: FlowControl = _DEFAULT_FLOW_CONTROL,
        auto_commit: bool = False,
        allocation: Allocation = averagely,
        rebalance_listener: RebalanceListener | None = None,
        timing: ConsumerTiming = _DEFAULT_TIMING,
        hooks: Sequence[ConsumeHook] = (),
        trace: Tracing | None = None,
        serializer: Serializer | None = None,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """Prepare a consumer. Raises InvalidArgumentError.

        `topics` are subscribed to at the start, as by `subscribe`: one name, several names, or a mapping of
        names to tags or to an `Sql` expression. Without them, `assign` queues or `subscribe` later.
        `consume_from` counts for queues without a committed offset of the group. `auto_commit`: every
        `timing.commit_seconds`, `poll` commits the messages of earlier polls; so do `stop` and giving up a
        queue. `allocation`: how the group's members divide the queues of subscribed topics.
        `rebalance_listener` is waited for when queues of subscribed topics come and leave. Of `timing`, only
        commits and rebalancing count. `hooks` get received messages and commits. `trace`: messages
        that `poll` returns are traced as consumed. `serializer` reads bodies for `decode`.
        """
        self._settings = checked_settings(settings)
        self._namespace = Namespace(settings.namespace)
        self._group = self._namespace.checked_group(group)
        self.group = group
        self._topics = subscriptions_to(topics, self._namespace, now_ms())
        self._consume_from = check_consume_from(consume_from)
        self._namesrv = check_namesrv(namesrv)
        self._pull_settings = check_instance("pull", pull, PullSettings, "pass PullSettings(...)")
        self._auto_commit = check_flag("auto_commit", auto_commit)
        self._allocation = check_callable("allocation", allocation, 3, "client id, queues and client ids")
        self._rebalance_listener = check_optional(
            "rebalance_listener", rebalance_listener, RebalanceListener, "derive it from RebalanceListener"
        )
        self._timing = check_instance("timing", timing, ConsumerTiming, "pass ConsumerTiming(...)")
        self._hooks = check_each("hooks", hooks, ConsumeHook, "derive hooks from ConsumeHook")
        # None without a hook that is told: polls and commits then spend nothing on them.
        self._told: ConsumptionHooks | None = None
        self._tracing = check_optional("trace", trace, Tracing, "pass Tracing() or None")
        self._serializer = None if serializer is None else check_serializer("serializer", serializer)
        self._listeners = QueueListeners(self._namespace)
        bounds = check_instance("flow_control", flow_control, FlowControl, "pass FlowControl(...)")
        self._prefetched = PrefetchBuffer(bounds)
        self._polling = Polling(self._prefetched, self._check_reading, lambda: self.is_running)
        # Whether topics were subscribed to, or queues assigned, which may be none.
        self._is_reading = False
        self._subscriptions: dict[str, Subscription] = {}
        self._instance: ClientInstance | None = None
        self._starts_or_stops = asyncio.Lock()
        # Created by start().
        self._loop: asyncio.AbstractEventLoop
        self._member: PollingMember
        self._sharing: PullRebalancer
        self._api: BrokerApi
        self._source: PullSource
        self._committer: OffsetCommitter
        self._calls: RebalanceCalls
        self._changes: QueueChanges
        self._dead_letters: DeadLetterSender

    # --- lifecycle ---

    async def start(self) -> None:
        """Join the group, and subscribe to the topics. Raises ClientError, also for an unknown topic."""
        async with self._starts_or_stops:
            await self._start()
        try:
            for topic, subscription in self._topics.items():
                await self._subscribe(topic, subscription)
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        self._loop = asyncio.get_running_loop()
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        bridge = instance.bridge()
        self._told = ConsumptionHooks.of(self.group, self._namespace, self._hooks)
        self.read_ahead.taken = None if self._told is None else self._told.received
        self._api = BrokerApi(bridge, self._settings)
        self._source = PullSource(
            self._running,
            self._api,
            PullClient(bridge, self._group, self._pull_settings, self._settings),
            self._group,
            self._consume_from,
            self._namespace,
            self._subscription_to,
        )
        self._calls = RebalanceCalls(self._rebalance_listener, self._loop, self._namespace)
        self._dead_letters = DeadLetterSender(instance, self._group, self._namespace)
        self._committer = OffsetCommitter(
            self._api,
            self._source,
            self._group,
            self._timing.commit_seconds,
            None if self._told is None else self._told.committed,
        )
        self._polling.committer = self._committer if self._auto_commit else None
        self._changes = QueueChanges(
            self._prefetched, self._source, self._calls, self._polling.committer, self._running
        )
        self._sharing = PullRebalancer(
            instance,
            self._group,
            with_namespace(self._namespace, self._allocation),
            self._timing,
            self._share,
        )
        self._member = PollingMember(
            self._group, self._consume_from, group_changed=self._sharing.request_rebalance
        )
        self._listeners.start(instance)
        instance.routes.on_change.append(self._route_changed)
        try:
            await self._start_tracer(instance)
            await uninterrupted(instance.run(instance.add_consumer(self._member)))
        except BaseException:
            await uninterrupted(self._stop(instance))
            raise
        self._instance = instance

    async def _start_tracer(self, instance: ClientInstance) -> None:
        if self._tracing is not None:
            sender = partial(trace_producer, self._namesrv, self._settings)
            self._polling.tracer = Tracer(self._tracing, instance, self.group, sender)
            await self._polling.tracer.start()

    async def stop(self) -> None:
        """Stop reading and leave the group. With `auto_commit` offsets are committed, otherwise not."""
        await uninterrupted(self._end(self._prefetched.positions))

    async def _end(self, done: Callable[[], dict[MessageQueue, int]]) -> None:
        async with self._starts_or_stops:
            await self._end_now(done)

    async def _end_now(self, done: Callable[[], dict[MessageQueue, int]]) -> None:
        instance = self._instance
        if instance is None:
            return
        if instance.is_forked:
            self._instance = None
            return
        self._polling.settle()
        is_sharing = bool(self._sharing.topics)
        await self._sharing.stop()
        if is_sharing:
            await self._calls.revoked(self._prefetched.queues())
        await self._committer.wait()
        if self._auto_commit:
            await self._committer.commit_or_log(done())
        self._instance = None
        self._prefetched.changed.set()
        await self._stop(instance)

    async def _stop(self, instance: ClientInstance) -> None:
        await self._sharing.stop()
        if self._route_changed in instance.routes.on_change:
            instance.routes.on_change.remove(self._route_changed)
        self._listeners.stop()
        await self._changes.close_all()
        tracer, self._polling.tracer = self._polling.tracer, None
        try:
            if tracer is not None:
                await tracer.stop()
        finally:
            await instance.release_after(instance.remove_consumer(self._member))

    @property
    def read_ahead(self) -> ReadAhead[Taken]:
        """Messages that the blocking face iterates over."""
        return self._polling.read_ahead

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._instance is not None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error, the messages of the last poll count as not processed.
        positions = self._prefetched.positions if error is None else self._prefetched.processed
        await uninterrupted(self._end(positions))

    # --- assignment ---

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic. Raises ClientError."""
        topic = self._namespace.checked_topic(topic)
        instance = self._running()
        route = await instance.run(instance.routes.refresh(topic))
        return self._namespace.unwrap_queues(route.read_queues)

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Mapping[str, str] = "*") -> None:
        """Read these queues from now on, and no others. Queues that stay keep their position.

        `expression`: tags such as `paid || sent`, or an `Sql` expression, for all topics or by topic. Raises
        ClientError, and UsageError for a consumer that subscribes to topics.
        """
        wanted = list(dict.fromkeys(self._namespace.wrap_queues(check_queues("queues", queues))))
        if not isinstance(expression, (str, Mapping)):
            raise refuse(
                "expression", expression, "must be tags, an Sql(...), or a mapping of topics to them"
            )
        instance = self._running()
        self._polling.settle()
        if self._sharing.topics:
            raise UsageError(
                f"consumer {self.group} subscribes to topics: it cannot have queues assigned, too"
            )
        topics = dict.fromkeys(queue.topic for queue in wanted)
        if isinstance(expression, str):
            by_topic = dict.fromkeys(topics, expression)
        else:
            by_topic = {self._namespace.checked_topic(topic): one for topic, one in expression.items()}
        fresh = {topic: Subscription(topic, by_topic.get(topic, "*"), now_ms()) for topic in topics}
        await instance.run(self._member.subscribe(instance, list(fresh.values())))
        known, self._subscriptions = self._subscriptions, fresh
        self._is_reading = True
        await self._changes.give_up([queue for queue in self._prefetched.queues() if queue not in wanted])
        for queue in wanted:
            fetched = self._prefetched.get(queue)
            if fetched is None:
                self._changes.read(queue)
            elif not known[queue.topic].wants_as(fresh[queue.topic]):
                await fetched.restart(fetched.position)

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read this consumer's share of a topic's queues, which changes as members of the group join and
        leave.

        Raises ClientError, and UsageError for a consumer that has queues assigned.
        """
        topic = self._namespace.checked_topic(topic)
        await self._subscribe(topic, Subscription(topic, expression, now_ms()))

    async def _subscribe(self, topic: str, subscription: Subscription) -> None:
        instance = self._running()
        self._polling.settle()
        if self._prefetched and not self._sharing.topics:
            raise UsageError(f"consumer {self.group} has queues assigned: it cannot subscribe, too")
        known = self._subscriptions
        fresh = {**known, topic: subscription}
        await instance.run(self._member.subscribe(instance, list(fresh.values())))
        self._subscriptions = fresh
        self._is_reading = True
        if topic in known and not known[topic].wants_as(fresh[topic]):
            for fetched in self._prefetched.of_topic(topic):
                await fetched.restart(fetched.position)
        await self._sharing.add_topic(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic. Raises ClientError."""
        topic = self._namespace.checked_topic(topic)
        instance = self._running()
        self._polling.settle()
        await self._sharing.remove_topic(topic)
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if name != topic}
        await instance.run(self._member.subscribe(instance, list(self._subscriptions.values())))

    async def listen_to_queues(self, topic: str, listener: QueuesListener) -> list[MessageQueue]:
        """Have `listener` called, on this consumer's loop, when the topic's queues change; return the current
        ones.

        Routes are refreshed every `settings.route_refresh_seconds`. Raises ClientError.
        """
        check_callable("listener", listener, 2, "the topic and its queues")
        queues = await self.queues(topic)
        topic = self._namespace.wrap(topic)
        self._running()
        self._listeners.add(topic, listener, queues)
        return queues

    def assigned_queues(self) -> list[MessageQueue]:
        """Return the queues that are read."""
        return sorted(self._namespace.unwrap_queues(self._prefetched.queues()))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return no messages of these queues for now. Raises UsageError for a queue that is not assigned."""
        for queue in check_queues("queues", queues):
            self._of(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues again. Raises UsageError for a queue that is not assigned."""
        for queue in check_queues("queues", queues):
            self._of(queue).resume()

    # --- offsets and routes ---

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset`, and drop prefetched messages. Raises UsageError."""
        check_offset("offset", offset)
        await self._go_to(queue, offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Continue at the oldest message of the queue. Raises ClientError."""
        await self._seek_to(queue, "first")

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the newest message. Raises ClientError."""
        await self._seek_to(queue, "last")

    async def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Continue at the first message that was stored at that time or later. Raises ClientError."""
        check_time_ms("time", time)
        await self._seek_to(queue, time)

    async def offset_for_time(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at that time or later, without moving.

        `time` has a time zone. Raises ClientError.
        """
        queue = self._namespace.wrap_queue(check_queue("queue", queue))
        check_time_ms("time", time)
        self._running()
        return await self._offset_of(queue, time)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` returns of this queue. Raises ClientError."""
        fetched = self._of(queue)
        if fetched.position is None:
            return await self._source.first_offset(fetched.queue)
        return fetched.position

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the offsets up to which `poll` has returned messages, or the given ones.

        Raises ClientError for the first queue that could not be committed; the other queues are.
        """
        if offsets is not None:
            if not isinstance(offsets, Mapping):
                raise refuse("offsets", offsets, "must be a mapping of queues to offsets")
            for queue, offset in offsets.items():
                check_queue("offsets", queue)
                check_offset("offsets", offset)
        self._running()
        self._polling.settle()
        if offsets is None:
            await self._committer.commit(self._prefetched.positions())
        else:
            wrap = self._namespace.wrap_queue
            await self._committer.commit({wrap(queue): offset for queue, offset in offsets.items()})

    # --- messages ---

    async def poll(self, max_messages: int = 32, timeout_seconds: Seconds = 5.0) -> list[MessageExt]:
        """Return messages of the assigned queues, in the order of each queue; none if none arrive in time.

        Raises UsageError if there is nothing to read, neither topics nor assigned queues. Raises ClientError
        if a queue cannot be read and no other has messages. Reading goes on, and the next poll may succeed.
        """
        check_int("max_messages", max_messages, least=1)
        seconds = check_seconds("timeout_seconds", timeout_seconds)
        self._check_reading()
        if self._told is None:
            return await self._polling.poll(max_messages, seconds)
        with self._told.receiving(lambda: list(self._subscriptions)) as received:
            received.extend(await self._polling.poll(max_messages, seconds))
        return received

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Yield message by message until the consumer is stopped; commits include them. Raises as `poll`."""
        while self._instance is not None:
            for message in await self.poll(max_messages=1):
                yield message

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pull once, apart from prefetching and without a change of position. Raises ClientError."""
        check_queue("queue", queue)
        check_offset("offset", offset)
        self._running()
        wrapped = self._namespace.wrap_queue(queue)
        if self._told is None:
            return await self._source.pull(wrapped, offset)
        with self._told.receiving(lambda: [wrapped.topic]) as received:
            result = await self._source.pull(wrapped, offset)
            received.extend(result.messages)
        return result

    async def dead_letter(self, message: MessageExt, reason: str = "") -> None:
        """Make a message a dead letter of the group. It changes no offset: commit as for other messages.

        `reason` becomes the property `dead_letter_reason` of the dead letter. Raises ClientError: the message
        is no dead letter then, unless the error's `is_outcome_unknown` is true.
        """
        check_received("message", message)
        check_reason(reason)
        self._running()
        if self._told is None:
            await self._dead_letters.send(message, reason)
            return
        with self._told.settling(SettlementKind.DEAD_LETTER, [message]):
            await self._dead_letters.send(message, reason)

    # --- sharing and committing ---

    async def _share(self, topic: str, queues: frozenset[MessageQueue], wait_seconds: float) -> None:
        await self._changes.share(topic, queues, wait_seconds, lambda: topic in self._sharing.topics)

    def _route_changed(self, topic: str) -> None:
        """Called on the network loop."""
        if topic in self._sharing.topics:
            self._sharing.request_rebalance()
        self._listeners.route_changed(topic)

    # --- brokers ---

    async def _seek_to(self, queue: MessageQueue, where: ConsumeFrom) -> None:
        wrapped = self._of(queue).queue
        offset = await self._offset_of(wrapped, where)
        self._running()
        await self._go_to(queue, offset)  # it may have been given up in the meantime

    async def _offset_of(self, queue: MessageQueue, where: ConsumeFrom) -> int:
        return await self._source.at_broker(
            queue, lambda address, asked: offset_of(self._api, address, asked, where)
        )

    async def _go_to(self, queue: MessageQueue, offset: int) -> None:
        fetched = self._of(queue)
        self._prefetched.forget_polled(fetched)
        await fetched.restart(offset)

    def _offset_instance(self) -> ClientInstance:
        return self._running()

    def _offset_group(self) -> str:
        return self._group

    async def _own_queues(self) -> list[MessageQueue]:
        self._polling.settle()
        return sorted(self._prefetched.queues())

    async def _position(self, queue: MessageQueue) -> int | None:
        fetched = self._prefetched.get(queue)
        return None if fetched is None else fetched.position

    def _subscription_to(self, topic: str) -> Subscription | None:
        return self._subscriptions.get(topic)

    def _of(self, queue: MessageQueue) -> PrefetchedQueue:
        check_queue("queue", queue)
        self._running()
        self._polling.settle()
        fetched = self._prefetched.get(self._namespace.wrap_queue(queue))
        if fetched is None:
            raise UsageError(f"{queue} is not assigned to this consumer: assign() it first")
        return fetched

    def _check_reading(self) -> None:
        self._running()
        if not self._is_reading:
            raise UsageError(
                f"consumer {self.group} reads nothing: name topics with topics=..., or call subscribe() or "
                "assign()"
            )

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise not_running(f"consumer {self.group}")
        self._check_process()
        self._check_loop(self._loop)
        return self._instance
