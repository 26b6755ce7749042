"""Messages of all queues of a topic, read without a group: the stored ones by time, and new ones."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Final

from rmq_client import Admin, MessageExt, MessageQueue, UnreachableError

_PER_PULL: Final = 32
_HOLD_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_BUFFERED: Final = 256


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of brokers: by tags (TAG) or by properties (SQL92)."""

    expression: str = "*"
    kind: str = "TAG"


async def stored(
    admin: Admin, begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], wanted: Filter
) -> AsyncGenerator[MessageExt, None]:
    """Yield the messages from the offsets `begins` to before `ends`, in the order of their store times."""
    readers = [_read_queue(admin, queue, begin, ends[queue], wanted) for queue, begin in begins.items()]
    heads: list[tuple[int, int, MessageExt]] = []

    async def take(number: int) -> None:
        message = await anext(readers[number], None)
        if message is not None:
            heapq.heappush(heads, (message.store_timestamp, number, message))

    await asyncio.gather(*map(take, range(len(readers))))
    while heads:
        _, number, message = heapq.heappop(heads)
        yield message
        await take(number)


async def follow(
    admin: Admin, begins: Mapping[MessageQueue, int], wanted: Filter
) -> AsyncGenerator[MessageExt, None]:
    """Yield messages from the offsets on, as they come, for ever. A broker that is away is asked again."""
    arrived: asyncio.Queue[MessageExt | BaseException] = asyncio.Queue(_BUFFERED)

    async def read(queue: MessageQueue, offset: int) -> None:
        while True:
            try:
                piece = await admin.read_queue(
                    queue,
                    offset,
                    max_messages=_PER_PULL,
                    expression=wanted.expression,
                    expression_type=wanted.kind,
                    wait_seconds=_HOLD_SECONDS,
                )
            except UnreachableError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except Exception as error:
                await arrived.put(error)
                return
            for message in piece.messages:
                await arrived.put(message)
            offset = piece.next_offset

    tasks = [asyncio.ensure_future(read(queue, offset)) for queue, offset in begins.items()]
    try:
        while True:
            message = await arrived.get()
            if isinstance(message, BaseException):
                raise message
            yield message
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_queue(
    admin: Admin, queue: MessageQueue, offset: int, end: int, wanted: Filter
) -> AsyncGenerator[MessageExt, None]:
    while offset < end:
        piece = await admin.read_queue(
            queue,
            offset,
            max_messages=_PER_PULL,
            expression=wanted.expression,
            expression_type=wanted.kind,
        )
        for message in piece.messages:
            if message.queue_offset >= end:
                return
            yield message
        if piece.next_offset <= offset:
            return
        offset = piece.next_offset
