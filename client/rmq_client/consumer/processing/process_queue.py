"""The messages of one queue that a consumer holds: pulled, and not yet consumed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..flow_control import FlowControl
from .message_state import TRANSITIONS, MessageEvent, MessageState, next_state


class QueuedMessage:
    """A message and where it is in its life. `size`: of its body as it came; a listener may change it."""

    __slots__ = ("message", "size", "state")

    def __init__(self, message: MessageExt) -> None:
        self.message = message
        self.size = len(message.body)
        self.state = MessageState.READY


class ProcessQueue:
    """Messages by offset, and how far the queue has been consumed without a gap. Belongs to one loop.

    `closing`: no call of the listener may begin any more; `dropped`: the queue is no longer this consumer's,
    and results that come later count no more. `lock_expires_at`: when the broker's lock must not be relied
    upon any more, for queues that are consumed in order. Other threads may read these three.
    `uncommitted`: messages in flight whose calls are over, where an ordered listener commits by hand.
    """

    __slots__ = (
        "_max_offset",
        "_offsets",
        "_pending",
        "bytes",
        "closing",
        "created_at",
        "dropped",
        "last_consumed_at",
        "last_locked_at",
        "last_pull_at",
        "lock_expires_at",
        "queue",
        "uncommitted",
        "unlock_attempts",
    )

    def __init__(self, queue: MessageQueue, now: float) -> None:
        """`now`, here and below: seconds of a monotonic clock."""
        self.queue = queue
        self.closing = False
        self.dropped = False
        self.bytes = 0
        self.created_at = now
        self.last_pull_at = now
        self.last_consumed_at = now
        self.last_locked_at: float | None = None
        self.lock_expires_at = math.inf
        self.unlock_attempts = 0
        self.uncommitted: list[MessageExt] = []
        self._pending: dict[int, QueuedMessage] = {}
        # Offsets in order; those that are consumed leave when they come to the front.
        self._offsets: deque[int] = deque()
        self._max_offset = -1

    def drop(self) -> None:
        """It is no longer this consumer's."""
        self.closing = self.dropped = True

    # --- messages ---

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Take in what was pulled, in the order of offsets; returns those that were not held already."""
        pending, offsets = self._pending, self._offsets
        fresh = []
        for message in messages:
            offset = message.queue_offset
            if offset not in pending:
                held = pending[offset] = QueuedMessage(message)
                offsets.append(offset)
                self.bytes += held.size
                self._max_offset = max(self._max_offset, offset)
                fresh.append(message)
        return fresh

    def move(self, messages: Iterable[MessageExt], event: MessageEvent) -> None:
        """Something happened to messages that are held and stay so. Raises StateError."""
        pending = self._pending
        for message in messages:
            held = pending[message.queue_offset]
            held.state = next_state(held.state, event)

    def finish(self, messages: Iterable[MessageExt], event: MessageEvent, now: float) -> int | None:
        """Something ended the life of messages: they leave.

        Returns the offset up to which all is consumed, None where nothing was held. Raises StateError.
        """
        self.last_consumed_at = now
        pending, offsets = self._pending, self._offsets
        if not pending:
            return None
        for message in messages:
            held = pending.get(message.queue_offset)
            if held is None:
                continue
            # Written out, as it is done for every message.
            if event not in TRANSITIONS[held.state]:
                next_state(held.state, event)  # raises
            held.state = TRANSITIONS[held.state][event]
            del pending[message.queue_offset]
            self.bytes -= held.size
        while offsets and offsets[0] not in pending:
            offsets.popleft()
        return offsets[0] if offsets else self._max_offset + 1

    def take(self, max_messages: int) -> list[MessageExt]:
        """The first messages that are ready, for a call; they are in flight then."""
        taken: list[MessageExt] = []
        for offset in self._offsets:
            held = self._pending.get(offset)
            if held is not None and held.state is MessageState.READY:
                held.state = next_state(held.state, MessageEvent.TAKEN)
                taken.append(held.message)
                if len(taken) == max_messages:
                    break
        return taken

    def in_state(self, state: MessageState) -> list[MessageExt]:
        """The messages that are in that state, in order."""
        return [
            held.message
            for offset in self._offsets
            if (held := self._pending.get(offset)) is not None and held.state is state
        ]

    def messages(self) -> list[MessageExt]:
        """All that is held, in order."""
        return [held.message for offset in self._offsets if (held := self._pending.get(offset)) is not None]

    def holds(self, message: MessageExt) -> bool:
        """Whether the message still waits to be consumed."""
        return message.queue_offset in self._pending

    # --- measures ---

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
