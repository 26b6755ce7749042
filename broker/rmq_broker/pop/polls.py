"""Pops (and asks whether there is something) that wait for a message, by topic, group and queue.

Unlike pulls, of which all that wait for a queue are looked at, one pop is woken for a message, and the next
one where that leaves some. Source: Apache RocketMQ 5.3.3, PopLongPollingService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from rmq_remoting.dispatch import Answer
from rmq_remoting.pop_receipt import pop_retry_topics

from ..delivery.waiting_requests import LookAgain, WaitingRequest, WaitingRequests
from .check_point import QueueKey

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..delivery.arrivals import Arrivals
    from ..settings.pop import PopSettings
    from ..store.api import ConsumeQueue

ANY_QUEUE: Final = -1
# So many of those who are held up are looked at in a tick: each looks into all queues, mostly in vain.
_LOOKS_PER_TICK: Final = 64
# Before its time ends a request has to be answered so early that its client still is there.
AHEAD_MS: Final = 50


@dataclass(slots=True, eq=False)
class Poll(WaitingRequest[QueueKey]):
    """One waiting request; `woken` says that it was to be woken while it was looking."""

    woken: bool = field(init=False, default=False)

    def look_begins(self) -> None:
        self.woken = False

    @property
    def has_missed_arrival(self) -> bool:
        return self.woken


class Polls(WaitingRequests[QueueKey, Poll]):
    """All waiting requests of one kind; `newest_first` says who is woken of those that wait for the same."""

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
        # The queues waited for by topic; a pop waits for its retry topics, too.
        self._by_topic: dict[str, dict[QueueKey, None]] = {}
        # Who is to be looked at with the next ticks, in this order.
        self._later: dict[QueueKey, None] = {}

    # --- waiting ---

    def count_of(self, key: QueueKey) -> int:
        """How many wait for a queue."""
        return len(self._by_key.get(key, ()))

    def has_room(self, key: QueueKey) -> bool:
        """Whether one more may wait for a queue."""
        settings = self._settings
        if self._released or self.count >= settings.max_pop_polling_size:
            return False
        polls = self._by_key.get(key)
        if polls is None:
            return len(self._by_key) < settings.pop_polling_map_size
        return len(polls) <= settings.pop_polling_size

    def hold(
        self, connection: Connection, key: QueueKey, wait_seconds: float, look_again: LookAgain
    ) -> asyncio.Future[Answer]:
        """Keep a request until it can be answered, `wait_seconds` at most; there has to be room for it."""
        if key not in self._by_key:
            if not self._by_topic:
                self._listen(True)
            for topic in _topics_of(key):
                self._by_topic.setdefault(topic, {})[key] = None
        poll = Poll(connection, key, look_again, self._last_tick(wait_seconds))
        self._keep(poll)
        return poll.future

    # --- what ends it ---

    def _arrived(self, queue: ConsumeQueue) -> None:
        """A message came."""
        keys = self._by_topic.get(queue.topic)
        if keys:
            for key in keys:
                if key.queue_id in (ANY_QUEUE, queue.queue_id) or key.topic != queue.topic:
                    self._woken[key] = None
            self._look_soon()

    def wake(self, key: QueueKey) -> None:
        """There may be something for one who waits for exactly this."""
        if key in self._by_key:
            self._woken[key] = None
            self._look_soon()

    def look_later(self, key: QueueKey) -> None:
        """There is something for who waits for this that cannot be had now: look with one of the next ticks.

        What stands in the way is a bound, a lock or a full disk; of most nobody is told when it is gone.
        """
        self._later[key] = None

    def expire(self) -> None:
        """As for all requests; and look at those who are held up, some at a time."""
        later = self._later
        for key in list(islice(later, _LOOKS_PER_TICK)):
            del later[key]
            self.wake(key)
        super().expire()

    def fewer_in_flight(self, queue: QueueKey) -> None:
        """Messages of a queue are done with: they may have been what a pop was held up by."""
        if self._later:
            for key in self._by_topic.get(queue.topic, ()):
                if key.group == queue.group and key in self._later:
                    del self._later[key]
                    self.wake(key)

    def wake_queue(self, key: QueueKey) -> None:
        """A queue can be popped (again): one who waits for it, or for any of the topic, is woken."""
        self.wake(key._replace(queue_id=ANY_QUEUE))
        self.wake(key)

    def topics_removed(self, topics: Collection[str]) -> None:
        """Look at who waits for topics that have just been deleted."""
        for key, polls in self._by_key.items():
            if key.topic in topics:
                self._due.extend(polls)
                self._look_soon()

    def _woken_by(self, key: QueueKey) -> Iterable[Poll]:
        """The first of those that wait for a queue, or the newest; who is looking is woken once more."""
        polls = self._by_key.get(key, {})
        for poll in reversed(polls) if self._newest_first else polls:
            if poll.is_looking:
                poll.woken = True
            elif poll.connection.is_writable:
                return (poll,)
        return ()

    def _forget(self, request: Poll) -> None:
        super()._forget(request)
        key = request.key
        if key not in self._by_key:
            self._later.pop(key, None)
            for topic in _topics_of(key):
                keys = self._by_topic[topic]
                del keys[key]
                if not keys:
                    del self._by_topic[topic]
            if not self._by_topic:
                self._listen(False)


def _topics_of(key: QueueKey) -> tuple[str, ...]:
    """The topics whose messages such a request may get."""
    return (key.topic, *pop_retry_topics(key.topic, key.group))
