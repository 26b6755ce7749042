"""Automatic batching: messages that are sent at about the same time go as one request.

Each sender still waits for its own result. A batch goes out when it is full, or has lingered; and, unless
the policy says otherwise, at the end of the current turn of the loop when no other batch of the kind is under
way: a lone sender never waits for company, and under load batches fill up while others are on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from struct import Struct
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

from ..errors import UsageError
from ..names import RETRY_TOPIC_PREFIX
from ..results import SendResult

# Item size, 0, 0, flag, body length; see rmq_remoting.message_batch, which this is an inlined form of.
_ITEM: Final = Struct(">iiiii")
_MIN_ITEM_BYTES: Final = _ITEM.size + 2

# What only a message on its own can ask for.
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


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch goes out: at `max_bytes` or `max_messages`, and at the latest after `linger_ms`.

    `eager`: also at once, when no other batch to the same topic is under way.
    """

    linger_ms: float = 5.0
    max_bytes: int = 64 * 1024
    max_messages: int = 500
    eager: bool = True

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.linger_ms < 0 or self.max_bytes < 1 or self.max_messages < 1:
            raise UsageError(f"{self}: linger_ms must not be negative, the bounds must be at least 1")


def can_batch(message: Message) -> bool:
    """Whether brokers take this message as part of a batch."""
    return _NOT_IN_BATCHES.isdisjoint(message.properties) and not message.topic.startswith(RETRY_TOPIC_PREFIX)


def batch_item(flag: int, body: bytes, properties: bytes) -> bytes:
    """One message as an item of a batch."""
    return b"".join(
        (
            _ITEM.pack(_MIN_ITEM_BYTES + len(body) + len(properties), 0, 0, flag, len(body)),
            body,
            len(properties).to_bytes(2, "big"),
            properties,
        )
    )


@dataclass(slots=True)
class Batch:
    """Messages that go together: encoded items, and who waits for which.

    `timeout_seconds`: how long the most patient of those waits; 0: as long as is usual.
    """

    topic: str
    queue: MessageQueue | None
    wait_store_ok: bool
    items: list[bytes] = field(default_factory=list)
    msg_ids: list[str] = field(default_factory=list)
    waiting: list[asyncio.Future[SendResult]] = field(default_factory=list)
    size_bytes: int = 0
    timeout_seconds: float = 0.0

    def add(self, item: bytes, msg_id: str) -> None:
        """Take a message in."""
        self.items.append(item)
        self.msg_ids.append(msg_id)
        self.size_bytes += len(item)


# Batches of different keys never mix: the broker treats a batch as one message of one queue. And who waits
# longer than is usual goes with its like (the last item), so that a batch can be given up for all at once.
_Key = tuple[str, "MessageQueue | None", bool, bool]


class Batcher:
    """Collects messages into batches. Belongs to one loop.

    Its own bound is the caller's back-pressure: what has been admitted there waits here.
    """

    def __init__(self, policy: BatchPolicy, deliver: Callable[[Batch], Awaitable[None]]) -> None:
        """`deliver` sends a batch, resolves `waiting`, and does not raise."""
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
        """Take a message in; the future gives its result.

        `timeout_seconds`: how long its batch is to be tried at least, where that is longer than is usual.
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
        future: asyncio.Future[SendResult] = self._loop.create_future()
        batch.add(item, msg_id)
        batch.waiting.append(future)
        batch.timeout_seconds = max(batch.timeout_seconds, timeout_seconds)
        if len(batch.items) >= policy.max_messages or batch.size_bytes >= policy.max_bytes:
            self._send(key)
        return future

    def flush(self) -> None:
        """Send all that is collected now."""
        for key in list(self._open):
            self._send(key)

    async def stop(self) -> None:
        """Send all that is collected, and wait for it, also where nobody else waits any more."""
        self.flush()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, key: _Key) -> None:
        if self._policy.eager and not self._in_flight.get(key):
            # Who is to run in this turn of the loop anyhow can still add to the batch.
            self._loop.call_soon(self._send_if_open, key, self._open[key])
        else:
            self._timers[key] = self._loop.call_later(self._policy.linger_ms / 1000, self._send, key)

    def _send_if_open(self, key: _Key, batch: Batch) -> None:
        """Send this batch, unless it filled up and went meanwhile."""
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
                    # Those whom this batch woke may send again before the next one goes.
                    self._loop.call_soon(self._send_if_open, key, collected)
