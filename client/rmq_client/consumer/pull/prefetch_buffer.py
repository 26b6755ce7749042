"""The prefetched queues of one pull consumer: which one `poll` takes from next, and up to which offset."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..flow_control import FlowControl
from ..read_ahead import Ahead
from .prefetched_queue import PrefetchedQueue, Source


@dataclass(frozen=True, slots=True)
class Taken:
    """Where a message was taken from, and how often that queue had moved to another offset by then."""

    fetched: PrefetchedQueue
    moves: int


class PrefetchBuffer:
    """Queues are taken from in turn, by full topic names. Belongs to the application's loop.

    `changed` is set when a queue has messages again, or a failure to report.
    """

    def __init__(self, bounds: FlowControl) -> None:
        self.changed = asyncio.Event()
        self._bounds = bounds
        self._queues: dict[MessageQueue, PrefetchedQueue] = {}
        # Queues that have messages, in turn.
        self._ready: deque[PrefetchedQueue] = deque()
        # Of the queues that the last poll took from: the offset of the first message that it returned.
        self._polled_from: dict[MessageQueue, int] = {}

    # --- queues ---

    def __bool__(self) -> bool:
        return bool(self._queues)

    def queues(self) -> list[MessageQueue]:
        """Return the queues that are read."""
        return list(self._queues)

    def of_topic(self, topic: str) -> list[PrefetchedQueue]:
        """Return the prefetched queues of one topic."""
        return [fetched for queue, fetched in self._queues.items() if queue.topic == topic]

    def get(self, queue: MessageQueue) -> PrefetchedQueue | None:
        """Return the prefetched queue, None for a queue that is not read."""
        return self._queues.get(queue)

    def open(self, queue: MessageQueue, source: Source) -> None:
        """Start to read a queue at the group's offset."""
        fetched = PrefetchedQueue(
            queue, source, lambda: self._bounds_of(queue.topic), self._offer, self.forget_polled
        )
        self._queues[queue] = fetched
        fetched.start(None)

    def hold(self, queue: MessageQueue) -> None:
        """Return no messages of a queue that is read, until `let_go`."""
        self._queues[queue].hold()

    def let_go(self, queue: MessageQueue) -> None:
        """Return messages of a held queue again, if it is still read."""
        fetched = self._queues.get(queue)
        if fetched is not None:
            fetched.let_go()

    def remove(self, queues: Iterable[MessageQueue]) -> list[PrefetchedQueue]:
        """Remove queues and return them: the caller has to stop them."""
        return [self._queues.pop(queue) for queue in queues]

    # --- messages ---

    def begin_poll(self) -> None:
        """Begin a new poll: the messages of earlier polls count as processed."""
        self._polled_from.clear()

    def take(self, max_messages: int) -> list[MessageExt]:
        """Return up to `max_messages` messages of the queues that have some."""
        return [message for _, messages in self._take(max_messages) for message in messages]

    def take_ahead(self, max_messages: int) -> list[Ahead[Taken]]:
        """Take messages that can be given back."""
        return [
            Ahead(message, Taken(fetched, fetched.moves))
            for fetched, messages in self._take(max_messages)
            for message in messages
        ]

    def give_back(self, left: list[Ahead[Taken]], last: Ahead[Taken] | None) -> None:
        """Put messages back that were not yielded. The one before, `last`, may still be in process."""
        self._polled_from.clear()
        if last is not None and self._is_current(last.origin):
            self._polled_from[last.origin.fetched.queue] = last.message.queue_offset
        by_queue: dict[PrefetchedQueue, list[MessageExt]] = {}
        for one in left:
            if self._is_current(one.origin):
                by_queue.setdefault(one.origin.fetched, []).append(one.message)
        for fetched, messages in by_queue.items():
            fetched.give_back(messages)

    def _is_current(self, taken: Taken) -> bool:
        """Whether the queue is still read, and from no other offset since."""
        fetched = taken.fetched
        return self._queues.get(fetched.queue) is fetched and fetched.moves == taken.moves

    def _take(self, max_messages: int) -> list[tuple[PrefetchedQueue, list[MessageExt]]]:
        taken: list[tuple[PrefetchedQueue, list[MessageExt]]] = []
        ready, count = self._ready, 0
        while ready and count < max_messages:
            fetched = ready.popleft()
            if self._queues.get(fetched.queue) is fetched:
                if fetched.position is not None:
                    self._polled_from.setdefault(fetched.queue, fetched.position)
                messages = fetched.take(max_messages - count)
                count += len(messages)
                taken.append((fetched, messages))
                if len(fetched):
                    ready.append(fetched)
        return taken

    def raise_failure(self) -> None:
        """Raise the ClientError of a queue that cannot be read, once for each failure."""
        for fetched in self._queues.values():
            if fetched.failure is not None:
                failure, fetched.failure = fetched.failure, None
                raise failure

    # --- offsets ---

    def positions(self) -> dict[MessageQueue, int]:
        """Return the offset up to which `poll` has returned messages, by queue."""
        return {
            queue: fetched.position for queue, fetched in self._queues.items() if fetched.position is not None
        }

    def processed(self) -> dict[MessageQueue, int]:
        """Return the offset up to which messages were returned before the last poll.

        The application may still work on the messages of the last poll.
        """
        return {queue: self._polled_from.get(queue, offset) for queue, offset in self.positions().items()}

    def forget_polled(self, fetched: PrefetchedQueue) -> None:
        """Forget what `poll` returned of a queue that is read from another offset."""
        self._polled_from.pop(fetched.queue, None)

    # --- called by the queues ---

    def _offer(self, fetched: PrefetchedQueue) -> None:
        if len(fetched) and fetched not in self._ready:
            self._ready.append(fetched)
        self.changed.set()

    def _bounds_of(self, topic: str) -> FlowControl:
        """Return how much of one queue of the topic is prefetched."""
        if not self._bounds.is_per_topic:
            return self._bounds
        return self._bounds.for_queues(sum(queue.topic == topic for queue in self._queues))
