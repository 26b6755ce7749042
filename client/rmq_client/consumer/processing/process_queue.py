"""Messages of one queue that were pulled and not yet consumed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..flow_control import FlowControl
from .message_state import TRANSITIONS, MessageEvent, MessageState, next_state


class QueuedMessage:
    """A message and its state. `size`: of the body as it arrived; a listener may change the body."""

    __slots__ = ("message", "size", "state")

    def __init__(self, message: MessageExt) -> None:
        self.message = message
        self.size = len(message.body)
        self.state = MessageState.READY


class ProcessQueue:
    """Messages by offset, and the offset up to which all are consumed. Belongs to one loop.

    `closing`: no call of the listener may begin any more. `dropped`: the queue no longer belongs to this
    consumer, and later results are ignored. `lock_expires_at`: until when the broker's lock is valid, for
    queues that are consumed in order. Other threads may read these three. `uncommitted`: messages in flight
    whose calls have ended, if an ordered listener commits by hand.
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
        # Offsets in order; consumed ones are removed when they reach the front.
        self._offsets: deque[int] = deque()
        self._max_offset = -1

    def drop(self) -> None:
        """Mark the queue as no longer this consumer's."""
        self.closing = self.dropped = True

    # --- messages ---

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Add pulled messages in the order of their offsets, and return those that are new."""
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
        """Apply an event to messages that stay. Raises StateError."""
        pending = self._pending
        for message in messages:
            held = pending[message.queue_offset]
            held.state = next_state(held.state, event)

    def finish(self, messages: Iterable[MessageExt], event: MessageEvent, now: float) -> int | None:
        """Apply a final event to messages, and remove them.

        Returns the offset up to which all are consumed, None if the queue held none. Raises StateError.
        """
        self.last_consumed_at = now
        pending, offsets = self._pending, self._offsets
        if not pending:
            return None
        for message in messages:
            held = pending.get(message.queue_offset)
            if held is None:
                continue
            # Inlined, because it runs for every message.
            if event not in TRANSITIONS[held.state]:
                next_state(held.state, event)  # raises
            held.state = TRANSITIONS[held.state][event]
            del pending[message.queue_offset]
            self.bytes -= held.size
        while offsets and offsets[0] not in pending:
            offsets.popleft()
        return offsets[0] if offsets else self._max_offset + 1

    def take(self, max_messages: int) -> list[MessageExt]:
        """Return the first ready messages for a call; they are in flight then."""
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
        """Return the messages in that state, in order."""
        return [
            held.message
            for offset in self._offsets
            if (held := self._pending.get(offset)) is not None and held.state is state
        ]

    def messages(self) -> list[MessageExt]:
        """Return all messages, in order."""
        return [held.message for offset in self._offsets if (held := self._pending.get(offset)) is not None]

    def holds(self, message: MessageExt) -> bool:
        """Whether the message has not been consumed yet."""
        return message.queue_offset in self._pending

    # --- measures ---

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._pending)

    @property
    def min_offset(self) -> int | None:
        """The first offset."""
        return self._offsets[0] if self._offsets else None

    @property
    def max_offset(self) -> int | None:
        """The last offset that was added."""
        return self._max_offset if self._max_offset >= 0 else None

    @property
    def span(self) -> int:
        """The distance between the first and the last offset."""
        return self._max_offset - self._offsets[0] if self._offsets else 0

    def excess(self, limits: FlowControl) -> str | None:
        """Return a text about the exceeded bound, None if there is none."""
        if len(self._pending) > limits.max_messages:
            return f"{len(self._pending)} messages wait (over {limits.max_messages})"
        if self.bytes > limits.max_bytes:
            return f"{self.bytes} bytes wait (over {limits.max_bytes})"
        if self.span > limits.max_span:
            return f"offset {self._offsets[0]} waits, {self.span} before the last (over {limits.max_span})"
        return None
