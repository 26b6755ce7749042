"""Popped messages that were not returned yet; their invisible time runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmq_remoting.message import MessageExt


@dataclass(frozen=True, slots=True)
class PrefetchedMessage:
    """A popped message; at `visible_at` (seconds of the loop's clock) others may get it."""

    message: MessageExt
    visible_at: float


class PrefetchedMessages:
    """A queue of prefetched messages. Belongs to one loop; bounded by the number of messages of one pop."""

    def __init__(self) -> None:
        self._waiting: deque[PrefetchedMessage] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, messages: Iterable[MessageExt], invisible_ms: int, popped_at: float) -> None:
        """Add messages that were popped at `popped_at`, or a little later."""
        visible_at = popped_at + invisible_ms / 1000
        self._waiting.extend(PrefetchedMessage(message, visible_at) for message in messages)

    def take(self, max_messages: int, now: float) -> list[PrefetchedMessage]:
        """Return the next messages. Messages that are visible to others again are skipped."""
        taken: list[PrefetchedMessage] = []
        while self._waiting and len(taken) < max_messages:
            waiting = self._waiting.popleft()
            if now < waiting.visible_at:
                taken.append(waiting)
        return taken

    def put_back(self, taken: Sequence[PrefetchedMessage]) -> None:
        """Put taken messages back to the front."""
        self._waiting.extendleft(reversed(taken))
