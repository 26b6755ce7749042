"""The part of a consumer that reads offsets of queues: ends, beginnings, commits, lag."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from rmq_remoting.message_queue import MessageQueue

from ...checks import check_queue, check_queues
from ...namespaces import Namespace
from ...network.broker_api import BrokerApi
from ...network.instance import ClientInstance
from ...settings import ClientSettings
from .lag import ConsumerLag, ConsumerQueueLag
from .start_position import ConsumeFrom, start_offset

T = TypeVar("T")

# Queues that are asked about side by side.
_SIDE_BY_SIDE: Final = 16


class OffsetReader(ABC):
    """Asks the brokers about the queues of a consumer. Full topic names inside, the application's outside."""

    _settings: ClientSettings
    _namespace: Namespace
    _consume_from: ConsumeFrom

    async def beginning_offsets(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> dict[MessageQueue, int]:
        """Return the offset of the oldest message of each queue; without `queues`, of this consumer's.

        Raises ClientError.
        """
        return await self._of_each(queues, self._beginning)

    async def end_offsets(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Return the offset that the next message of each queue will get; without `queues`, of this
        consumer's.

        Raises ClientError.
        """
        return await self._of_each(queues, self._end_offset)

    async def committed_offsets(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> dict[MessageQueue, int | None]:
        """Return the committed offset of the group in each queue, None without one; without `queues`, in
        this consumer's.

        Raises ClientError.
        """
        return await self._of_each(queues, self._committed)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group in a queue, None without one. Raises ClientError."""
        check_queue("queue", queue)
        self._offset_instance()
        return await self._committed(self._namespace.wrap_queue(queue))

    async def lag(self, queues: Iterable[MessageQueue] | None = None) -> ConsumerLag:
        """Return how far this consumer is behind in each queue; without `queues`, in its own.

        A queue in which it has processed nothing counts from where it begins there: the committed offset, or
        else `consume_from`. Messages in retry topics do not count. Raises ClientError.
        """
        found = await self._of_each(queues, self._lag_of)
        return ConsumerLag(tuple(found[queue] for queue in sorted(found)))

    # --- for the kinds of consumers ---

    @abstractmethod
    def _offset_instance(self) -> ClientInstance:
        """Return the running client instance. Raises NotRunning."""

    @abstractmethod
    def _offset_group(self) -> str:
        """Return the full name of the group."""

    @abstractmethod
    async def _own_queues(self) -> list[MessageQueue]:
        """Return the queues of this consumer, with full topic names."""

    async def _position(self, queue: MessageQueue) -> int | None:
        """Return the offset of the next message to process, None if none has been processed."""
        return None

    async def _committed(self, queue: MessageQueue) -> int | None:
        api, group = self._api_of_brokers(), self._offset_group()
        return await self._at_broker(
            queue, lambda address, asked: api.committed_offset(address, group, asked)
        )

    # --- one queue ---

    async def _beginning(self, queue: MessageQueue) -> int:
        return max(0, await self._at_broker(queue, self._api_of_brokers().min_offset))

    async def _end_offset(self, queue: MessageQueue) -> int:
        return await self._at_broker(queue, self._api_of_brokers().max_offset)

    async def _lag_of(self, queue: MessageQueue) -> ConsumerQueueLag:
        # The end is asked for last: a message that is processed in the meantime is no negative lag.
        committed, position = await self._committed(queue), await self._position(queue)
        if position is None:
            position = committed
        if position is None:
            api, group = self._api_of_brokers(), self._offset_group()
            position = await self._at_broker(
                queue, lambda address, asked: start_offset(api, address, group, asked, self._consume_from)
            )
        end = await self._end_offset(queue)
        return ConsumerQueueLag(self._namespace.unwrap_queue(queue), position, committed, end)

    def _api_of_brokers(self) -> BrokerApi:
        return BrokerApi(self._offset_instance().bridge(), self._settings)

    async def _at_broker(self, queue: MessageQueue, ask: Callable[[str, MessageQueue], Awaitable[T]]) -> T:
        return await self._offset_instance().at_broker(queue, ask)

    async def _of_each(
        self, queues: Iterable[MessageQueue] | None, ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        if queues is None:
            self._offset_instance()
            chosen = await self._own_queues()
        else:
            chosen = self._namespace.wrap_queues(dict.fromkeys(check_queues("queues", queues)))
            self._offset_instance()
        turns = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def ask_in_turn(queue: MessageQueue) -> T:
            async with turns:
                return await ask(queue)

        answers = await asyncio.gather(*(ask_in_turn(queue) for queue in chosen))
        return dict(zip(self._namespace.unwrap_queues(chosen), answers, strict=True))


async def readable_queues(instance: ClientInstance, topics: Iterable[str]) -> list[MessageQueue]:
    """Return all readable queues of these topics (full names). Raises ClientError."""
    routes = [await instance.route(topic) for topic in topics]
    return [queue for route in routes for queue in route.read_queues]


async def expand_brokers(instance: ClientInstance, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return the queues, with each that stands for all queues of a broker (id -1) replaced by those."""
    found: list[MessageQueue] = []
    for queue in queues:
        if queue.queue_id >= 0:
            found.append(queue)
            continue
        known = await readable_queues(instance, [queue.topic])
        found += [one for one in known if one.broker_name == queue.broker_name]
    return found
