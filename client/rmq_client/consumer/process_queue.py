"""The messages of one queue that a consumer holds: pulled, and not yet consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class FlowControl:
    """How much of one queue may wait for the listener; over any of the bounds, nothing more is pulled.

    `max_span`: between the first and the last offset, so that one stuck message does not make everything
    after it come twice when the consumer is restarted.
    """

    max_messages: int = 1_000
    max_bytes: int = 100 * 1024 * 1024
    max_span: int = 2_000

    def __post_init__(self) -> None:
        """Refuse bounds that would let nothing through."""
        if min(self.max_messages, self.max_bytes, self.max_span) < 1:
            raise UsageError(f"{self}: all bounds must be at least 1")


class ProcessQueue:
    """Messages by offset, and how far the queue has been consumed without a gap. Belongs to one loop.

    `dropped`: the queue is no longer this consumer's; results that come later count no more.
    """

    __slots__ = (
        "_max_offset",
        "_offsets",
        "_pending",
        "bytes",
        "created_at",
        "dropped",
        "last_consumed_at",
        "last_pull_at",
        "queue",
    )

    def __init__(self, queue: MessageQueue, now: float) -> None:
        """`now`, here and below: seconds of a monotonic clock."""
        self.queue = queue
        self.dropped = False
        self.bytes = 0
        self.created_at = now
        self.last_pull_at = now
        self.last_consumed_at = now
        self._pending: dict[int, MessageExt] = {}
        # Offsets in order; those that are consumed leave when they come to the front.
        self._offsets: deque[int] = deque()
        self._max_offset = -1

    def put(self, messages: Iterable[MessageExt]) -> None:
        """Take in what was pulled, in the order of offsets."""
        pending, offsets = self._pending, self._offsets
        for message in messages:
            offset = message.queue_offset
            if offset not in pending:
                pending[offset] = message
                offsets.append(offset)
                self.bytes += len(message.body)
                self._max_offset = max(self._max_offset, offset)

    def remove(self, messages: Iterable[MessageExt], now: float) -> int | None:
        """Take out what was consumed; returns the offset up to which all is, None where nothing was held."""
        self.last_consumed_at = now
        pending, offsets = self._pending, self._offsets
        if not pending:
            return None
        for message in messages:
            removed = pending.pop(message.queue_offset, None)
            if removed is not None:
                self.bytes -= len(removed.body)
        while offsets and offsets[0] not in pending:
            offsets.popleft()
        return offsets[0] if offsets else self._max_offset + 1

    def holds(self, message: MessageExt) -> bool:
        """Whether the message still waits to be consumed."""
        return message.queue_offset in self._pending

    def __len__(self) -> int:
        """How many messages are held."""
        return len(self._pending)

    @property
    def min_offset(self) -> int | None:
        """The first offset that is held."""
        return self._offsets[0] if self._offsets else None

    @property
    def max_offset(self) -> int | None:
        """The last offset that was taken in."""
        return self._max_offset if self._max_offset >= 0 else None

    @property
    def span(self) -> int:
        """How far the first and the last offset are apart."""
        return self._max_offset - self._offsets[0] if self._offsets else 0

    def excess(self, limits: FlowControl) -> str | None:
        """Which bound is exceeded, in words; None if none is."""
        if len(self._pending) > limits.max_messages:
            return f"{len(self._pending)} messages wait (over {limits.max_messages})"
        if self.bytes > limits.max_bytes:
            return f"{self.bytes} bytes wait (over {limits.max_bytes})"
        if self.span > limits.max_span:
            return f"offset {self._offsets[0]} waits, {self.span} before the last (over {limits.max_span})"
        return None
