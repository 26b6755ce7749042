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

from ...clock import now_ms
from ...errors import NotRunning, UsageError
from ...lifetime import Lifetime
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi
from ...network.instance import ClientInstance
from ...producer.producer import trace_producer
from ...settings import ClientSettings
from ...tasks import uninterrupted
from ...trace.dispatcher import Tracing
from ...trace.tracer import Tracer
from ..flow_control import FlowControl
from ..offsets.start_position import ConsumeFrom, check_consume_from, offset_of
from ..polling_member import PollingMember
from ..rebalancing.allocation import Allocation, averagely, with_namespace
from ..requests.pull_client import PullClient, PullResult, PullSettings
from ..subscription import Subscription
from ..timing import ConsumerTiming
from .offset_committer import OffsetCommitter
from .prefetch_buffer import PrefetchBuffer
from .prefetched_queue import PrefetchedQueue
from .pull_rebalancer import PullRebalancer
from .pull_source import PullSource
from .queue_listeners import QueueListeners, QueuesListener

log = logging.getLogger("rmq.client.pull_consumer")

_DEFAULT_PULL: Final = PullSettings()
_DEFAULT_BUFFER: Final = FlowControl()
_DEFAULT_TIMING: Final = ConsumerTiming()
_DEFAULT_SETTINGS: Final = ClientSettings()


class PullConsumer(Lifetime):
    """Reads queues at the application's own pace.

    ::

        async with PullConsumer("127.0.0.1:9876", group="audit", consume_from="first") as consumer:
            await consumer.assign(await consumer.queues("orders"))
            for message in await consumer.poll(timeout_seconds=5):
                ...
            await consumer.commit()

    Messages are prefetched, up to `buffer` per queue. The application assigns queues, or it subscribes to
    topics, whose queues the members of the group share. The application decides when to `commit`; with
    `auto_commit` the consumer commits every few seconds. Belongs to one loop.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        consume_from: ConsumeFrom = "last",
        pull: PullSettings = _DEFAULT_PULL,
        buffer: FlowControl = _DEFAULT_BUFFER,
        auto_commit: bool = False,
        allocation: Allocation = averagely,
        timing: ConsumerTiming = _DEFAULT_TIMING,
        trace: Tracing | None = None,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """Prepare a consumer. Raises UsageError.

        `consume_from` counts for queues without a committed offset of the group. `auto_commit`: every
        `timing.commit_seconds`, `poll` commits the messages of earlier polls; so do `stop` and giving up a
        queue. `allocation`: how the group's members divide the queues of subscribed topics. Of `timing`, only
        commits and rebalancing count. `trace`: messages that `poll` returns are traced as consumed.
        """
        self._namespace = Namespace(settings.namespace)
        self.group = group
        self._group = self._namespace.checked_group(group)
        self._consume_from = check_consume_from(consume_from)
        self._namesrv = namesrv
        self._pull_settings = pull
        self._auto_commit = auto_commit
        self._allocation = allocation
        self._timing = timing
        self._tracing = trace
        self._tracer: Tracer | None = None
        self._settings = settings
        self._listeners = QueueListeners(self._namespace)
        self._prefetched = PrefetchBuffer(buffer)
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

    # --- lifecycle ---

    async def start(self) -> None:
        """Join the group; nothing is read before `assign` or `subscribe`. Raises UsageError."""
        async with self._starts_or_stops:
            await self._start()

    async def _start(self) -> None:
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        self._loop = asyncio.get_running_loop()
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        bridge = instance.bridge()
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
        self._committer = OffsetCommitter(self._api, self._source, self._group, self._timing.commit_seconds)
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
            self._tracer = Tracer(self._tracing, instance, self.group, sender)
            await self._tracer.start()

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
        await self._sharing.stop()
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
        await _stop_all(self._prefetched.remove(self._prefetched.queues()))
        tracer, self._tracer = self._tracer, None
        try:
            if tracer is not None:
                await tracer.stop()
        finally:
            await instance.release_after(instance.remove_consumer(self._member))

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
        instance = self._running()
        route = await instance.run(instance.routes.refresh(self._namespace.wrap(topic)))
        return self._namespace.unwrap_queues(route.read_queues)

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Mapping[str, str] = "*") -> None:
        """Read these queues from now on, and no others. Queues that stay keep their position.

        `expression`: tags such as `paid || sent`, or an `Sql` expression, for all topics or by topic. Raises
        ClientError, and UsageError for a consumer that subscribes to topics.
        """
        instance = self._running()
        if self._sharing.topics:
            raise UsageError(
                f"consumer {self.group} subscribes to topics: it cannot have queues assigned, too"
            )
        wanted = list(dict.fromkeys(self._namespace.wrap_queues(queues)))
        topics = dict.fromkeys(queue.topic for queue in wanted)
        if isinstance(expression, str):
            by_topic = dict.fromkeys(topics, expression)
        else:
            by_topic = {self._namespace.wrap(topic): one for topic, one in expression.items()}
        fresh = {topic: Subscription(topic, by_topic.get(topic, "*"), now_ms()) for topic in topics}
        await instance.run(self._member.subscribe(instance, list(fresh.values())))
        known, self._subscriptions = self._subscriptions, fresh
        await self._give_up([queue for queue in self._prefetched.queues() if queue not in wanted])
        for queue in wanted:
            fetched = self._prefetched.get(queue)
            if fetched is None:
                self._read(queue)
            elif not known[queue.topic].wants_as(fresh[queue.topic]):
                await fetched.restart(fetched.position)

    async def subscribe(self, topic: str, expression: str = "*") -> None:
        """Read this consumer's share of a topic's queues, which changes as members of the group join and
        leave.

        Raises ClientError, and UsageError for a consumer that has queues assigned.
        """
        instance = self._running()
        if self._prefetched and not self._sharing.topics:
            raise UsageError(f"consumer {self.group} has queues assigned: it cannot subscribe, too")
        topic = self._namespace.wrap(topic)
        known = self._subscriptions
        fresh = {**known, topic: Subscription(topic, expression, now_ms())}
        await instance.run(self._member.subscribe(instance, list(fresh.values())))
        self._subscriptions = fresh
        if topic in known and not known[topic].wants_as(fresh[topic]):
            for fetched in self._prefetched.of_topic(topic):
                await fetched.restart(fetched.position)
        await self._sharing.add_topic(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic. Raises ClientError."""
        instance = self._running()
        topic = self._namespace.wrap(topic)
        await self._sharing.remove_topic(topic)
        self._subscriptions = {name: one for name, one in self._subscriptions.items() if name != topic}
        await instance.run(self._member.subscribe(instance, list(self._subscriptions.values())))

    async def listen_to_queues(self, topic: str, listener: QueuesListener) -> list[MessageQueue]:
        """Have `listener` called, on this consumer's loop, when the topic's queues change; return the current
        ones.

        Routes are refreshed every `settings.route_refresh_seconds`. Raises ClientError.
        """
        queues = await self.queues(topic)
        topic = self._namespace.wrap(topic)
        self._running()
        self._listeners.add(topic, listener, queues)
        return queues

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read."""
        return sorted(self._namespace.unwrap_queues(self._prefetched.queues()))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return no messages of these queues for now. Raises UsageError for a queue that is not assigned."""
        for queue in queues:
            self._of(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues again. Raises UsageError for a queue that is not assigned."""
        for queue in queues:
            self._of(queue).resume()

    # --- offsets and routes ---

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset`, and drop prefetched messages. Raises UsageError."""
        if offset < 0:
            raise UsageError(f"offset {offset}: must be at least 0")
        await self._go_to(queue, offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Continue at the oldest message of the queue. Raises ClientError."""
        await self._seek_to(queue, "first")

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue after the newest message. Raises ClientError."""
        await self._seek_to(queue, "last")

    async def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Continue at the first message that was stored at that time or later. Raises ClientError."""
        await self._seek_to(queue, time)

    async def offset_for_time(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at that time or later, without moving.

        A naive time is local. Raises ClientError.
        """
        queue = self._namespace.wrap_queue(queue)
        return await offset_of(self._api, await self._source.address_of(queue), queue, time)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` returns of this queue. Raises ClientError."""
        fetched = self._of(queue)
        if fetched.position is None:
            return await self._source.first_offset(fetched.queue)
        return fetched.position

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group on the broker, None without one. Raises ClientError."""
        return await self._committer.committed(self._namespace.wrap_queue(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the offsets up to which `poll` has returned messages, or the given ones.

        Raises ClientError for the first queue that could not be committed; the other queues are.
        """
        self._running()
        if offsets is None:
            await self._committer.commit(self._prefetched.positions())
        else:
            wrap = self._namespace.wrap_queue
            await self._committer.commit({wrap(queue): offset for queue, offset in offsets.items()})

    # --- messages ---

    async def poll(self, max_messages: int = 32, timeout_seconds: float = 5.0) -> list[MessageExt]:
        """Return messages of the assigned queues, in the order of each queue; none if none arrive in time.

        Raises ClientError if a queue cannot be read and no other has messages. Reading goes on, and the next
        poll may succeed.
        """
        self._running()
        self._prefetched.begin_poll()
        if self._auto_commit and self._committer.is_due():
            self._committer.commit_in_background(self._prefetched.positions())
        prefetched = self._prefetched
        messages = self._take(max_messages)
        if messages or timeout_seconds <= 0:
            return messages
        try:
            async with asyncio.timeout(timeout_seconds):
                while not messages and self._instance is not None:
                    prefetched.changed.clear()
                    prefetched.raise_failure()
                    await prefetched.changed.wait()
                    messages = self._take(max_messages)
        except TimeoutError:
            pass
        return messages

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Yield message by message until the consumer is stopped; commits include them. Raises as `poll`."""
        while self._instance is not None:
            for message in await self.poll(max_messages=1):
                yield message

    def _take(self, max_messages: int) -> list[MessageExt]:
        messages = self._prefetched.take(max_messages)
        if messages and self._tracer is not None:
            self._tracer.consumed_by_poll(messages)
        return messages

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Pull once, apart from prefetching and without a change of position. Raises ClientError."""
        self._running()
        return await self._source.pull(self._namespace.wrap_queue(queue), offset)

    # --- sharing and committing ---

    async def _share(self, topic: str, queues: frozenset[MessageQueue], wait_seconds: float) -> None:
        """Read these queues of the topic, and no others of it."""
        reading = self._prefetched.queues()
        gone = [queue for queue in reading if queue.topic == topic and queue not in queues]
        await self._give_up(gone)
        fresh = [queue for queue in sorted(queues) if self._prefetched.get(queue) is None]
        if fresh and wait_seconds:
            await asyncio.sleep(wait_seconds)
        if topic in self._sharing.topics:  # it may have been stopped, or have given the topic up
            for queue in fresh:
                self._read(queue)

    def _read(self, queue: MessageQueue) -> None:
        self._running()
        self._prefetched.open(queue, self._source)

    async def _give_up(self, queues: list[MessageQueue]) -> None:
        """Stop reading these queues, and commit their processed messages with `auto_commit`."""
        if not queues:
            return
        processed = self._prefetched.processed()
        done = {queue: processed[queue] for queue in queues if queue in processed}
        await uninterrupted(self._stop_and_commit(self._prefetched.remove(queues), done))

    async def _stop_and_commit(self, fetched: list[PrefetchedQueue], done: dict[MessageQueue, int]) -> None:
        await _stop_all(fetched)
        if self._auto_commit and done:
            await self._committer.commit_or_log(done)

    def _route_changed(self, topic: str) -> None:
        """Called on the network loop."""
        if topic in self._sharing.topics:
            self._sharing.request_rebalance()
        self._listeners.route_changed(topic)

    # --- brokers ---

    async def _seek_to(self, queue: MessageQueue, where: ConsumeFrom) -> None:
        wrapped = self._of(queue).queue
        offset = await offset_of(self._api, await self._source.address_of(wrapped), wrapped, where)
        self._running()
        await self._go_to(queue, offset)  # it may have been given up in the meantime

    async def _go_to(self, queue: MessageQueue, offset: int) -> None:
        fetched = self._of(queue)
        self._prefetched.forget_polled(fetched)
        await fetched.restart(offset)

    def _subscription_to(self, topic: str) -> Subscription | None:
        return self._subscriptions.get(topic)

    def _of(self, queue: MessageQueue) -> PrefetchedQueue:
        fetched = self._prefetched.get(self._namespace.wrap_queue(queue))
        if fetched is None:
            raise UsageError(f"{queue} is not assigned to this consumer: assign() it first")
        return fetched

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunning(f"consumer {self.group} is not running: use `async with PullConsumer(...)`")
        return self._instance


async def _stop_all(fetched: list[PrefetchedQueue]) -> None:
    for one in fetched:
        await one.stop()
