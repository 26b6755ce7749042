"""Messages read from queues, at any offset and time, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from rmq_remoting.bodies.heartbeat import SUBSCRIBE_ALL, TAG_EXPRESSION
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_queue import MessageQueue

from ..checks import Seconds, check_queues, check_seconds, check_time_ms
from ..errors import BrokerError, UsageError
from ..pull_status import PullStatus
from ..raw_pulls import PullWish, RawPuller
from ..response_decoding import decode_all
from .arguments import checked, checked_with
from .offsets import OffsetAdmin
from .results import QueueSlice

# A group that every broker has, Apache's included, and that no consumer is a member of.
_TOOLS_GROUP: Final = "TOOLS_CONSUMER"
_MAX_PER_PULL: Final = 32
_PULL_BYTES: Final = 1024 * 1024
_QUEUES_SIDE_BY_SIDE: Final = 8
_END_OF_TIME_MS: Final = 2**63 - 1


class MessageAdmin(OffsetAdmin):
    """Reading messages. No group's offsets change."""

    _puller: RawPuller | None = None

    async def stop(self) -> None:
        """Release the connections."""
        puller, self._puller = self._puller, None
        if puller is not None:
            await puller.stop()
        await super().stop()

    @checked
    async def read_queue(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: str = SUBSCRIBE_ALL,
        expression_type: str = TAG_EXPRESSION,
        wait_seconds: Seconds = 0.0,
    ) -> QueueSlice:
        """Return messages of one queue from `offset` on, and the offset at which to continue.

        `expression` filters by tags (`a || b`), or with `expression_type="SQL92"` by properties. With
        `wait_seconds` the broker holds a request that finds nothing. The offset may be outside of the queue:
        the slice then is empty, and `next_offset` the nearest in the queue. A slice that a filter leaves
        empty has a later `next_offset`, too. Raises ClientError.
        """
        wish = PullWish(
            max_messages=max_messages,
            max_bytes=_PULL_BYTES,
            expression=expression,
            expression_type=expression_type,
            hold_seconds=check_seconds("wait_seconds", wait_seconds),
        )
        full = self._namespace.wrap_queue(queue)
        puller = await self._started_puller()
        pulled = await puller.pull(full, offset, wish)
        messages: list[MessageExt] = []
        if pulled.status is PullStatus.FOUND:
            try:
                messages = await decode_all(pulled.body, self._settings.max_unpacked_body_bytes)
            except MessageDecodeError as error:
                about = f"messages of {queue} from offset {offset} on"
                address = await self._address_of(full)
                raise BrokerError(ResponseCode.SUCCESS, f"unreadable: {error}", address, about) from error
        for message in messages:
            message.broker_name = queue.broker_name
            message.queue_id = queue.queue_id  # of a static topic: the record has that of the broker's queue
            message.queue_offset += pulled.offset_delta
        self._namespace.unwrap_topics(messages)
        return QueueSlice(tuple(messages), pulled.next_offset, pulled.min_offset, pulled.max_offset)

    @checked_with(queues=check_queues)
    async def messages_between(
        self,
        topic: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        expression: str = SUBSCRIBE_ALL,
        expression_type: str = TAG_EXPRESSION,
        queues: Sequence[MessageQueue] | None = None,
        max_messages: int = 1000,
    ) -> list[MessageExt]:
        """Return the messages of a topic stored from `begin` to before `end`, the oldest first.

        Times need a zone; None is the oldest message, and the newest at the time of the call. Of more than
        `max_messages` messages the oldest are returned. `queues` restricts them. Raises ClientError.
        """
        end_ms = _END_OF_TIME_MS if end is None else check_time_ms("end", end)
        if begin is not None and check_time_ms("begin", begin) > end_ms:
            raise UsageError(f"begin {begin} is after end {end}: no message can be stored between them")
        if queues is None:
            queues = self._namespace.unwrap_queues((await self.topic_route(topic)).read_queues)
        turns = asyncio.Semaphore(_QUEUES_SIDE_BY_SIDE)

        async def read(queue: MessageQueue) -> list[MessageExt]:
            async with turns:
                first = self.min_offset(queue) if begin is None else self.search_offset(queue, begin)
                offset = await first
                last = await self.max_offset(queue)
                found: list[MessageExt] = []
                while offset < last and len(found) < max_messages:
                    piece = await self.read_queue(
                        queue,
                        max(0, offset),
                        max_messages=_MAX_PER_PULL,
                        expression=expression,
                        expression_type=expression_type,
                    )
                    wanted = [
                        message
                        for message in piece.messages
                        if message.store_timestamp < end_ms and message.queue_offset < last
                    ]
                    found += wanted
                    if piece.next_offset <= offset or len(wanted) < len(piece.messages):
                        break
                    offset = piece.next_offset
                return found

        each = await asyncio.gather(*map(read, queues))
        messages = [message for found in each for message in found]
        messages.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
        return messages[:max_messages]

    async def _started_puller(self) -> RawPuller:
        """Return the puller. Its group has no namespace, and queues are given to it by their full names."""
        self._running()
        async with self._starting:
            if self._puller is None:
                settings = replace(self._settings, namespace="")
                puller = RawPuller(self._namesrv, group=_TOOLS_GROUP, settings=settings)
                await puller.start()
                self._puller = puller
            return self._puller
