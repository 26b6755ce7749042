"""Held pops and notifications (long polling), by topic, group and queue.

Source: Apache RocketMQ 5.3.3, PopLongPollingService. A message wakes every held pull of its queue, but only
one held pop. The next pop is woken if that one leaves messages. A held notification is woken as one pop is.
Apache's broker then notifies no other client of that message, even if the first one stops without popping it.
This broker does, a tick later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from rmq_remoting.answers import Answer
from rmq_remoting.pop_receipt import pop_retry_topics

from ..delivery.waiting_requests import LookAgain, WaitingRequest, WaitingRequests
from .check_point import QueueKey

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ..delivery.arrivals import Arrivals
    from ..settings.pop import PopSettings
    from ..store.api import ConsumeQueue

ANY_QUEUE: Final = -1
# How many keys are retried in a tick. Each retry reads all queues of a topic, mostly in vain.
_RETRIES_PER_TICK: Final = 64
# A held request is answered this long before its client stops waiting.
AHEAD_MS: Final = 50


@dataclass(slots=True, eq=False)
class HeldPop(WaitingRequest[QueueKey]):
    """One held request; `woken_again`: something arrived for it during its look."""

    woken_again: bool = field(init=False, default=False)

    def look_begins(self) -> None:
        self.woken_again = False

    @property
    def has_missed_arrival(self) -> bool:
        return self.woken_again


class HeldPops(WaitingRequests[QueueKey, HeldPop]):
    """All held requests of one kind. `newest_first`: the request held last is woken first."""

    def __init__(
        self,
        settings: PopSettings,
        arrivals: Arrivals,
        clock: Callable[[], float],
        *,
        newest_first: bool = False,
    ) -> None:
        super().__init__(clock)
        self._listen = arrivals.listener(self._arrived)
        self._settings = settings
        self._newest_first = newest_first
        # Keys by topic. A pop waits for messages of its retry topics, too.
        self._by_topic: dict[str, dict[QueueKey, None]] = {}
        # Keys to retry, mostly of blocked pops, in the order in which the next ticks retry them.
        self._blocked: dict[QueueKey, None] = {}

    # --- waiting ---

    def count_of(self, key: QueueKey) -> int:
        """Return how many requests wait for a key."""
        return len(self._by_key.get(key, ()))

    def has_room(self, connection: Connection, request: RemotingCommand, key: QueueKey) -> bool:
        """Tell whether a request of this connection may wait for a key."""
        settings = self._settings
        if self._released or not self.has_share(connection, request, settings.max_pop_polling_size):
            return False
        held = self._by_key.get(key)
        if held is None:
            return len(self._by_key) < settings.pop_polling_map_size
        return len(held) <= settings.pop_polling_size

    def hold(
        self,
        connection: Connection,
        key: QueueKey,
        wait_seconds: float,
        look_again: LookAgain,
        size_bytes: int = 0,
    ) -> asyncio.Future[Answer]:
        """Hold a request for `wait_seconds` at most; the caller has checked `has_room`."""
        if key not in self._by_key:
            if not self._by_topic:
                self._listen(True)
            for topic in _topics_of(key):
                self._by_topic.setdefault(topic, {})[key] = None
        held = HeldPop(connection, key, look_again, self._last_tick(wait_seconds), size_bytes)
        self._keep(held)
        return held.future

    # --- waking ---

    def _arrived(self, queue: ConsumeQueue) -> None:
        """Wake the keys that a stored message may be for."""
        keys = self._by_topic.get(queue.topic)
        if keys:
            for key in keys:
                if key.queue_id in (ANY_QUEUE, queue.queue_id) or key.topic != queue.topic:
                    self._woken[key] = None
            self._look_soon()

    def wake(self, key: QueueKey) -> None:
        """Wake one request of exactly this key."""
        if key in self._by_key:
            self._woken[key] = None
            self._look_soon()

    def retry_next_tick(self, key: QueueKey) -> None:
        """Wake a request in one of the next ticks: there are messages, but nothing reports its turn.

        A limit, a lock or a full disk blocks it, or the client that was notified of them may not pop them.
        """
        self._blocked[key] = None

    def expire(self) -> None:
        """Answer requests whose time has ended, and retry some of the blocked ones."""
        blocked = self._blocked
        for key in list(islice(blocked, _RETRIES_PER_TICK)):
            del blocked[key]
            self.wake(key)
        super().expire()

    def fewer_in_flight(self, queue: QueueKey) -> None:
        """Retry requests that the number of messages in flight may have blocked: it has fallen."""
        if self._blocked:
            for key in self._by_topic.get(queue.topic, ()):
                if key.group == queue.group and key in self._blocked:
                    del self._blocked[key]
                    self.wake(key)

    def wake_queue(self, key: QueueKey) -> None:
        """Wake one request of a queue and one of any queue of its topic: the queue can be popped again."""
        self.wake(key._replace(queue_id=ANY_QUEUE))
        self.wake(key)

    def topics_removed(self, topics: Collection[str]) -> None:
        """Let all requests of deleted topics look: each is refused."""
        for key, held in self._by_key.items():
            if key.topic in topics:
                self._due.extend(held)
                self._look_soon()

    def _woken_by(self, key: QueueKey) -> Iterable[HeldPop]:
        """Return the first request (or the newest) that can be answered, and mark looking ones before it."""
        held = self._by_key.get(key, {})
        for pop in reversed(held) if self._newest_first else held:
            if pop.is_looking:
                pop.woken_again = True
            elif pop.connection.is_writable and pop.connection not in self._closed:
                return (pop,)
        return ()

    def _forget(self, request: HeldPop) -> None:
        super()._forget(request)
        key = request.key
        if key not in self._by_key:
            self._blocked.pop(key, None)
            for topic in _topics_of(key):
                keys = self._by_topic[topic]
                del keys[key]
                if not keys:
                    del self._by_topic[topic]
            if not self._by_topic:
                self._listen(False)


def _topics_of(key: QueueKey) -> tuple[str, ...]:
    """Return the topics whose messages a request with this key may get."""
    return (key.topic, *pop_retry_topics(key.topic, key.group))
