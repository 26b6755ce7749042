"""The messages of a broker in memory."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from rmq_remoting.answers import Answer
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message

from .server import LOOPBACK, FakeServer

BORN_MS: Final = 1_700_000_000_000


@dataclass(slots=True)
class _Held:
    """A held pull."""

    request: RemotingCommand
    header: PullMessageRequestHeader
    future: asyncio.Future[Answer]


@dataclass(slots=True)
class FakeQueue:
    """Messages of one queue; `base` is the offset of the first."""

    records: list[MessageExt] = field(default_factory=list)
    base: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.records)


class FakeStore(FakeServer):
    """Keeps messages in lists, one for each queue, and answers pulls."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__()
        self.topics = topics
        self.queues: dict[tuple[str, int], FakeQueue] = defaultdict(FakeQueue)
        self.bodies: list[bytes] = []
        # Committed offsets by group, topic and queue; pulls commit, too.
        self.offsets: dict[tuple[str, str, int], int] = {}
        self._positions = count(0, 100)
        self._held: dict[tuple[str, int], list[_Held]] = defaultdict(list)

    def put(self, topic: str, body: bytes, queue_id: int = 0, tags: str | None = None) -> MessageExt:
        """Store a message as if a producer had sent it."""
        properties = {"TAGS": tags} if tags else {}
        return self.store(topic, queue_id, body, 0, 0, properties)

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        sys_flag: int,
        flag: int,
        properties: dict[str, str],
        reconsume_times: int = 0,
    ) -> MessageExt:
        queue = self.queues[topic, queue_id]
        message = MessageExt(
            topic,
            body,
            flag,
            properties,
            queue_id,
            queue.end,
            next(self._positions),
            sys_flag,
            BORN_MS,
            (LOOPBACK, 1),
            BORN_MS,
            (LOOPBACK, self._port),
            reconsume_times,
        )
        queue.records.append(message)
        self.bodies.append(body)
        for held in self._held.pop((topic, queue_id), []):
            if not held.future.done():
                held.future.set_result(self._found(held.request, held.header))
        return message

    def pull(self, connection: Connection, request: RemotingCommand) -> Answer | asyncio.Future[Answer]:
        header = PullMessageRequestHeader.decode(request.ext_fields)
        key = (header.topic, header.queue_id)
        queue = self.queues[key]
        if header.sys_flag & 1:
            self.offsets[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        if header.queue_offset < queue.base or header.queue_offset > queue.end:
            goal = queue.base if header.queue_offset < queue.base else queue.end
            return self._pulled(request, ResponseCode.PULL_OFFSET_MOVED, goal, queue, b"")
        if header.queue_offset < queue.end:
            return self._found(request, header)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._held[key].append(_Held(request, header, future))
        loop.call_later(header.suspend_timeout_ms / 1000, self._give_up, request, queue, header, future)
        return future

    def _give_up(
        self,
        request: RemotingCommand,
        queue: FakeQueue,
        header: PullMessageRequestHeader,
        future: asyncio.Future[Answer],
    ) -> None:
        if not future.done():
            code = ResponseCode.PULL_NOT_FOUND
            future.set_result(self._pulled(request, code, header.queue_offset, queue, b""))

    def _found(self, request: RemotingCommand, header: PullMessageRequestHeader) -> Answer:
        queue = self.queues[header.topic, header.queue_id]
        start = header.queue_offset - queue.base
        messages = queue.records[start : start + header.max_msg_nums]
        body = b"".join(encode_stored_message(message) for message in messages)
        after = header.queue_offset + len(messages)
        return self._pulled(request, ResponseCode.SUCCESS, after, queue, body)

    @staticmethod
    def _pulled(
        request: RemotingCommand, code: int, next_offset: int, queue: FakeQueue, body: bytes
    ) -> Answer:
        header = PullMessageResponseHeader(0, next_offset, queue.base, queue.end)
        return request.response(code, ext_fields=header.encode(), body=body)
