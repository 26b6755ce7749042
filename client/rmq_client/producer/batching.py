"""Automatic batching: messages that are sent at about the same time become one request.

Each sender still waits for its own result. A batch is sent when it is full or has lingered. Unless the policy
says otherwise, it is also sent at the end of the current turn of the loop if no other batch of its kind is in
flight. So a single sender never waits for others, and under load batches fill up while others are in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from rmq_remoting.message import Message
from rmq_remoting.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rmq_remoting.message_queue import MessageQueue

from ..checks import Seconds, check_flag, check_int, check_seconds, set_fields, short_repr
from ..names import RETRY_TOPIC_PREFIX
from ..results import SendResult
from .plain_messages import ITEM, MIN_ITEM_BYTES, PlainEncoder

# Properties that brokers accept only in single messages.
_NOT_IN_BATCHES: Final = frozenset(
    {
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_MESSAGE_TYPE,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TRANSACTION_PREPARED,
    }
)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class BatchPolicy:
    """When a batch is sent: at `max_bytes` or `max_messages`, and after at most `linger_seconds`.

    `eager`: also at once, if no other batch to the same topic is in flight.
    """

    linger_seconds: float
    max_bytes: int
    max_messages: int
    eager: bool

    __repr__ = short_repr

    def __init__(
        self,
        linger_seconds: Seconds = 0.005,
        max_bytes: int = 64 * 1024,
        max_messages: int = 500,
        eager: bool = True,
    ) -> None:
        """Raises InvalidArgumentError."""
        set_fields(
            self,
            linger_seconds=check_seconds("linger_seconds", linger_seconds),
            max_bytes=check_int("max_bytes", max_bytes, least=1),
            max_messages=check_int("max_messages", max_messages, least=1),
            eager=check_flag("eager", eager),
        )


def can_batch(message: Message) -> bool:
    """Whether brokers accept this message in a batch."""
    return _NOT_IN_BATCHES.isdisjoint(message.properties) and not message.topic.startswith(RETRY_TOPIC_PREFIX)


def batch_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message as an item of a batch."""
    return b"".join(
        (
            ITEM.pack(MIN_ITEM_BYTES + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )


@dataclass(slots=True)
class Batch:
    """A batch: encoded items, and the futures of their senders.

    A plain batch has bodies for items and no ids, until `seal` encodes them. `timeout_seconds`: the longest
    timeout of a sender; 0: the usual one.
    """

    topic: str
    queue: MessageQueue | None
    wait_store_ok: bool
    items: list[bytes] = field(default_factory=list)
    msg_ids: list[str] = field(default_factory=list)
    waiting: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size_bytes: int = 0
    timeout_seconds: float = 0.0
    is_plain: bool = False

    def seal(self, encoder: PlainEncoder) -> None:
        """Encode the messages of a plain batch. They become one item."""
        if self.is_plain:
            self.is_plain = False
            items, self.msg_ids = encoder.encode(self.items)
            self.items = [items]

    def add(self, item: bytes, msg_id: str) -> None:
        """Add a message."""
        self.items.append(item)
        self.msg_ids.append(msg_id)
        self.size_bytes += len(item)


# Batches of different keys never mix, since the broker stores a batch like one message of one queue. Senders
# with a longer timeout than usual share batches of their own (the last item), so that all messages of a batch
# time out together.
_Key = tuple[str, "MessageQueue | None", bool, bool]


class Batcher:
    """Collects messages into batches. Belongs to one loop.

    Its bound is the caller's back-pressure: admitted messages wait here.
    """

    def __init__(
        self, policy: BatchPolicy, deliver: Callable[[Batch], Awaitable[None]], plain: PlainEncoder
    ) -> None:
        """`deliver` sends a batch, resolves `waiting`, and does not raise."""
        self._plain = plain
        self._policy = policy
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._open: dict[_Key, Batch] = {}
        self._timers: dict[_Key, asyncio.TimerHandle] = {}
        self._in_flight: dict[_Key, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        item: bytes,
        msg_id: str,
        timeout_seconds: float = 0.0,
    ) -> asyncio.Future[SendResult]:
        """Add a message, and return the future of its result.

        `timeout_seconds`: the least timeout of its batch, if that is longer than usual.
        """
        wait_store_ok = message.properties.get(PROPERTY_WAIT_STORE_MSG_OK) is None or message.wait_store_ok
        key = (message.topic, queue, wait_store_ok, timeout_seconds > 0)
        policy = self._policy
        batch = self._open.get(key)
        if batch is not None and batch.size_bytes + len(item) > policy.max_bytes:
            self._send(key)
            batch = None
        if batch is None:
            batch = self._open[key] = Batch(message.topic, queue, wait_store_ok)
            self._begin(key)
        batch.seal(self._plain)
        future: asyncio.Future[SendResult] = self._loop.create_future()
        batch.add(item, msg_id)
        batch.waiting.append(future)
        batch.timeout_seconds = max(batch.timeout_seconds, timeout_seconds)
        if len(batch.waiting) >= policy.max_messages or batch.size_bytes >= policy.max_bytes:
            self._send(key)
        return future

    def is_open(self, topic: str) -> bool:
        """Whether messages of a topic are being collected, for any queue and with the usual timeout."""
        return (topic, None, True, False) in self._open

    def add_plain(self, topic: str, body: bytes) -> asyncio.Future[SendResult]:
        """Add a message without properties and flag, for any queue and with the usual timeout.

        Return the future of its result.
        """
        key = (topic, None, True, False)
        policy, plain = self._policy, self._plain
        size = len(body) + plain.item_bytes
        batch = self._open.get(key)
        if batch is not None and batch.size_bytes + size > policy.max_bytes:
            self._send(key)
            batch = None
        if batch is None:
            batch = self._open[key] = Batch(topic, None, True, is_plain=True)
            self._begin(key)
        if batch.is_plain:
            batch.items.append(body)
        else:
            item, ids = plain.encode((body,))
            batch.items.append(item)
            batch.msg_ids += ids
        batch.size_bytes += size
        future: asyncio.Future[SendResult] = self._loop.create_future()
        waiting = batch.waiting
        waiting.append(future)
        if len(waiting) >= policy.max_messages or batch.size_bytes >= policy.max_bytes:
            self._send(key)
        return future

    def flush(self) -> None:
        """Send all open batches now."""
        for key in list(self._open):
            self._send(key)

    async def stop(self) -> None:
        """Send all open batches, and wait for all batches in flight, even if their senders no longer wait."""
        self.flush()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, key: _Key) -> None:
        if self._policy.eager and not self._in_flight.get(key):
            # Tasks that run in this turn of the loop can still add messages.
            self._loop.call_soon(self._send_if_open, key, self._open[key])
        else:
            self._timers[key] = self._loop.call_later(self._policy.linger_seconds, self._send, key)

    def _send_if_open(self, key: _Key, batch: Batch) -> None:
        """Send this batch, unless it filled up and was sent in the meantime."""
        if self._open.get(key) is batch:
            self._send(key)

    def _send(self, key: _Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        batch = self._open.pop(key, None)
        if batch is None:
            return
        self._in_flight[key] = self._in_flight.get(key, 0) + 1
        task = self._loop.create_task(self._send_and_go_on(key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_and_go_on(self, key: _Key, batch: Batch) -> None:
        try:
            await self._deliver(batch)
        finally:
            left = self._in_flight[key] - 1
            if left:
                self._in_flight[key] = left
            else:
                del self._in_flight[key]
                collected = self._open.get(key)
                if self._policy.eager and collected is not None:
                    # Senders that this batch woke may add messages before the next one is sent.
                    self._loop.call_soon(self._send_if_open, key, collected)
