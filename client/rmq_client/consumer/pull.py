"""PullConsumer: the application asks for messages, of queues that it chooses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..brokers import BrokerApi
from ..errors import BrokerUnreachable, NotRunning, UnreachableError, UsageError
from ..instance import ClientInstance, now_ms
from ..names import check_group
from ..routing import TopicRoute
from ..settings import ClientSettings
from ..tasks import uninterrupted
from .fetching import FetchedQueue
from .process_queue import FlowControl
from .pull_client import PullClient, PullResult, PullSettings
from .pull_member import PullMember
from .start_position import ConsumeFrom, beginning, check_consume_from, start_offset
from .subscription import Subscription

_DEFAULT_PULL: Final = PullSettings()
_DEFAULT_BUFFER: Final = FlowControl()
_DEFAULT_SETTINGS: Final = ClientSettings()


class PullConsumer:
    """Reads queues at the application's own pace.

    ::

        async with PullConsumer("127.0.0.1:9876", group="audit", consume_from="first") as consumer:
            await consumer.assign(await consumer.queues("orders"))
            for message in await consumer.poll(timeout_seconds=5):
                ...
            await consumer.commit()

    Messages are fetched ahead, up to `buffer` per queue. There is no rebalancing: who reads what is the
    application's choice, and so is when `commit` tells the brokers how far it is. Belongs to one loop.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str,
        consume_from: ConsumeFrom = "last",
        pull: PullSettings = _DEFAULT_PULL,
        buffer: FlowControl = _DEFAULT_BUFFER,
        settings: ClientSettings = _DEFAULT_SETTINGS,
    ) -> None:
        """`consume_from` counts for queues that the group has no committed offset for. Raises UsageError."""
        check_group(group)
        self.group = group
        self._consume_from = check_consume_from(consume_from)
        self._namesrv = namesrv
        self._pull_settings = pull
        self._buffer = buffer
        self._settings = settings
        self._fetched: dict[MessageQueue, FetchedQueue] = {}
        self._subscriptions: dict[str, Subscription] = {}
        # Queues with something to give, in turn.
        self._ready: deque[FetchedQueue] = deque()
        self._instance: ClientInstance | None = None
        # Made by start().
        self._arrived: asyncio.Event
        self._member: PullMember
        self._api: BrokerApi
        self._client: PullClient

    # --- life ---

    async def start(self) -> None:
        """Begin; nothing is read before `assign`. Raises UsageError."""
        if self._instance is not None:
            raise UsageError(f"consumer {self.group} has been started already")
        self._arrived = asyncio.Event()
        instance = await ClientInstance.acquire(self._namesrv, self._settings)
        crossing = instance.crossing()
        self._api = BrokerApi(crossing, self._settings)
        self._client = PullClient(crossing, self.group, self._pull_settings, self._settings)
        self._member = PullMember(self.group, self._consume_from)
        try:
            await uninterrupted(instance.run(instance.add_consumer(self._member)))
        except BaseException:
            await uninterrupted(self._stop(instance))
            raise
        self._instance = instance

    async def stop(self) -> None:
        """Read no more and leave the group. What was not committed stays so."""
        instance = self._instance
        if instance is None:
            return
        self._instance = None
        self._arrived.set()
        await uninterrupted(self._stop(instance))

    async def _stop(self, instance: ClientInstance) -> None:
        await self._drop(list(self._fetched))
        try:
            await instance.run(instance.remove_consumer(self._member))
        finally:
            await instance.release()

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not been stopped."""
        return self._instance is not None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- what is read ---

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic. Raises ClientError."""
        instance = self._running()
        return list((await instance.run(instance.routes.refresh(topic))).read_queues)

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Mapping[str, str] = "*") -> None:
        """Read these queues from now on, and no others; queues that stay keep their position.

        `expression`: tags such as `paid || sent`, for all topics or by topic. Raises ClientError.
        """
        instance = self._running()
        wanted = list(dict.fromkeys(queues))
        topics = dict.fromkeys(queue.topic for queue in wanted)
        by_topic = dict.fromkeys(topics, expression) if isinstance(expression, str) else expression
        fresh = {topic: Subscription(topic, by_topic.get(topic, "*"), now_ms()) for topic in topics}
        await instance.run(self._member.subscribe(instance, list(fresh.values())))
        known, self._subscriptions = self._subscriptions, fresh
        await self._drop([queue for queue in self._fetched if queue not in wanted])
        for queue in wanted:
            fetched = self._fetched.get(queue)
            if fetched is None:
                fetched = self._fetched[queue] = FetchedQueue(queue, self, self._buffer, self._offer)
                fetched.start(None)
            elif known[queue.topic].tags != fresh[queue.topic].tags:
                await fetched.restart(fetched.position)

    def assignment(self) -> list[MessageQueue]:
        """The queues that are read."""
        return sorted(self._fetched)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give nothing of these queues for now. Raises UsageError for one that is not assigned."""
        for queue in queues:
            self._of(queue).pause()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give of these queues again. Raises UsageError for one that is not assigned."""
        for queue in queues:
            self._of(queue).resume()

    # --- where ---

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read on from `offset`; what was fetched ahead is dropped. Raises UsageError."""
        if offset < 0:
            raise UsageError(f"offset {offset}: offsets begin at 0")
        await self._of(queue).restart(offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Read on from the oldest message that is still there. Raises ClientError."""
        await self._seek_to(queue, "first")

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Read on after the newest message. Raises ClientError."""
        await self._seek_to(queue, "last")

    async def seek_to_time(self, queue: MessageQueue, time: datetime) -> None:
        """Read on from the first message that was stored at that time or later. Raises ClientError."""
        await self._seek_to(queue, time)

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the next message that `poll` gives of this queue. Raises ClientError."""
        position = self._of(queue).position
        return await self.first_offset(queue) if position is None else position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the broker knows for the group, None without one. Raises ClientError."""
        return await self._api.committed_offset(await self._address_of(queue), self.group, queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group is: up to what `poll` has given, or these offsets.

        Raises ClientError for the first queue that could not be committed; the others are.
        """
        self._running()
        if offsets is None:
            offsets = {
                queue: fetched.position
                for queue, fetched in self._fetched.items()
                if fetched.position is not None
            }
        outcomes = await asyncio.gather(
            *(self._commit_one(queue, offset) for queue, offset in offsets.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    # --- messages ---

    async def poll(self, max_messages: int = 32, timeout_seconds: float = 5.0) -> list[MessageExt]:
        """Messages of the assigned queues, in the order of each queue; none if none come in time.

        Raises ClientError where a queue cannot be read and there is nothing else to give: reading goes on all
        the same, and the next poll may succeed.
        """
        self._running()
        messages = self._take(max_messages)
        if messages or timeout_seconds <= 0:
            return messages
        try:
            async with asyncio.timeout(timeout_seconds):
                while not messages and self._instance is not None:
                    self._arrived.clear()
                    self._raise_failure()
                    await self._arrived.wait()
                    messages = self._take(max_messages)
        except TimeoutError:
            pass
        return messages

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Message by message, until the consumer is stopped. Raises as `poll`."""
        while self._instance is not None:
            for message in await self.poll():
                yield message

    def _take(self, max_messages: int) -> list[MessageExt]:
        messages: list[MessageExt] = []
        ready = self._ready
        while ready and len(messages) < max_messages:
            fetched = ready.popleft()
            if self._fetched.get(fetched.queue) is fetched:
                messages += fetched.take(max_messages - len(messages))
                if len(fetched):
                    ready.append(fetched)
        return messages

    def _offer(self, fetched: FetchedQueue) -> None:
        if len(fetched) and fetched not in self._ready:
            self._ready.append(fetched)
        self._arrived.set()

    def _raise_failure(self) -> None:
        for fetched in self._fetched.values():
            if fetched.failure is not None:
                failure, fetched.failure = fetched.failure, None
                raise failure

    # --- Source: where fetched queues get their messages ---

    async def first_offset(self, queue: MessageQueue) -> int:
        """Where the group is in a queue, or begins. Raises ClientError."""
        address = await self._address_of(queue)
        return await start_offset(self._api, address, self.group, queue, self._consume_from)

    async def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """One pull, apart from what is fetched ahead; moves nothing. Raises ClientError."""
        route = await self._route(queue.topic)
        subscription = self._subscriptions.get(queue.topic) or Subscription(queue.topic, "*", now_ms())
        try:
            return await self._client.pull(route, queue, offset, subscription, send_subscription=True)
        except UnreachableError:
            instance = self._running()
            instance.loop.call_soon_threadsafe(instance.routes.request_failed, queue.topic)
            raise

    # --- brokers ---

    async def _drop(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            await self._fetched.pop(queue).stop()

    async def _seek_to(self, queue: MessageQueue, where: ConsumeFrom) -> None:
        fetched = self._of(queue)
        await fetched.restart(await beginning(self._api, await self._address_of(queue), queue, where))

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        await self._api.commit_offset(await self._address_of(queue), self.group, queue, offset)

    async def _address_of(self, queue: MessageQueue) -> str:
        address = (await self._route(queue.topic)).broker_address(queue.broker_name)
        if address is None:
            raise BrokerUnreachable(f"no address of broker {queue.broker_name} is known for {queue}")
        return address

    async def _route(self, topic: str) -> TopicRoute:
        instance = self._running()
        known = instance.routes.existing.get(topic)
        return known if known is not None else await instance.run(instance.routes.route(topic))

    def _of(self, queue: MessageQueue) -> FetchedQueue:
        fetched = self._fetched.get(queue)
        if fetched is None:
            raise UsageError(f"{queue} is not assigned to this consumer: assign() it first")
        return fetched

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunning(f"consumer {self.group} is not running: use `async with PullConsumer(...)`")
        return self._instance
