"""Pops (and asks whether there is something) that wait for a message, by topic, group and queue.

Unlike pulls, of which all that wait for a queue are looked at, one pop is woken for a message, and the next
one where that leaves some. Source: Apache RocketMQ 5.3.3, PopLongPollingService.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.dispatch import Answer, Result
from rmq_remoting.pop_receipt import pop_retry_topics

from .check_point import QueueKey

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..config import PopSettings
    from ..store.queues.consume_queue import ConsumeQueue

# Tries again: the answer, or None to wait on; a promise of that where a disk has to be read first. The
# argument says whether the time has ended, then it has to be answered.
Retry = Callable[[bool], Result]

ANY_QUEUE: Final = -1
TICK_SECONDS: Final = 0.1
_SLICE: Final = 64

_Key = TypeVar("_Key")


@dataclass(slots=True, eq=False)
class Poll:
    """One request that waits."""

    connection: Connection
    key: QueueKey
    retry: Retry
    last_tick: int
    future: asyncio.Future[Answer]
    is_looking: bool = False
    time_is_up: bool = False
    woken: bool = False  # while it was looking


_Polls = dict[Poll, None]


class Polls:
    """All waiting requests of one kind; `newest_first` says who is woken of those that wait for the same."""

    def __init__(
        self, settings: PopSettings, clock: Callable[[], float], *, newest_first: bool = False
    ) -> None:
        self.count = 0
        self._settings = settings
        self._clock = clock
        self._newest_first = newest_first
        self._by_key: dict[QueueKey, _Polls] = {}
        self._by_connection: dict[Connection, _Polls] = {}
        self._by_tick: dict[int, _Polls] = {}
        # The queues waited for by topic; a pop waits for its retry topics, too.
        self._by_topic: dict[str, dict[QueueKey, None]] = {}
        self._next_tick = self._tick_of(clock())
        self._woken: dict[QueueKey, None] = {}
        self._due: deque[Poll] = deque()
        self._look_scheduled = False
        self._released = False

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
        self, connection: Connection, key: QueueKey, wait_seconds: float, retry: Retry
    ) -> asyncio.Future[Answer]:
        """Keep a request until it can be answered, `wait_seconds` at most; there has to be room for it."""
        tick = max(self._next_tick, self._tick_of(self._clock() + wait_seconds) + 1)
        poll = Poll(connection, key, retry, tick, asyncio.get_running_loop().create_future())
        if key not in self._by_key:
            for topic in (key.topic, *pop_retry_topics(key.topic, key.group)):
                self._by_topic.setdefault(topic, {})[key] = None
        self._by_key.setdefault(key, {})[poll] = None
        self._by_connection.setdefault(connection, {})[poll] = None
        self._by_tick.setdefault(tick, {})[poll] = None
        self.count += 1
        return poll.future

    # --- what ends it ---

    def arrived(self, queue: ConsumeQueue) -> None:
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

    def wake_queue(self, key: QueueKey) -> None:
        """A queue can be popped (again): one who waits for it, or for any of the topic, is woken."""
        self.wake(key._replace(queue_id=ANY_QUEUE))
        self.wake(key)

    def expire(self) -> None:
        """Answer those whose time has ended; to be called every `TICK_SECONDS`."""
        now = self._tick_of(self._clock())
        while self._next_tick <= now:
            for poll in self._by_tick.get(self._next_tick, ()):
                poll.time_is_up = True
                self._due.append(poll)
            self._next_tick += 1
        if self._due:
            self._look_soon()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Look at who waits for topics that have just been deleted."""
        for key, polls in self._by_key.items():
            if key.topic in topics:
                self._due.extend(polls)
                self._look_soon()

    def connection_closed(self, connection: Connection) -> None:
        """Let go of the requests of a peer that is gone."""
        for poll in list(self._by_connection.get(connection, ())):
            self._end(poll, None)

    def release_all(self) -> None:
        """Answer everybody now, and hold no more."""
        self._released = True
        for polls in list(self._by_key.values()):
            for poll in list(polls):
                poll.time_is_up = True
                self._look_at(poll)

    # --- looking ---

    def _look_soon(self) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._look_scheduled = False
        due = self._due
        if not due:
            woken, self._woken = self._woken, {}
            due.extend(poll for key in woken if (poll := self._next_of(key)) is not None)
        for _ in range(min(_SLICE, len(due))):
            self._look_at(due.popleft())
        if due or self._woken:
            self._look_soon()

    def _next_of(self, key: QueueKey) -> Poll | None:
        """Who is to be woken of those that wait for a queue."""
        polls = self._by_key.get(key, {})
        for poll in reversed(polls) if self._newest_first else polls:
            if poll.is_looking:
                poll.woken = True
            elif poll.connection.is_writable:
                return poll
        return None

    def _look_at(self, poll: Poll) -> None:
        if poll.future.done() or poll.is_looking:
            return
        if not poll.connection.is_writable:
            # Its answers would only pile up here. Who has not read until its time ends gets none.
            if poll.time_is_up:
                self._end(poll, None)
            return
        poll.woken = False
        try:
            answer = poll.retry(poll.time_is_up)
        except Exception as error:  # answered as any request that fails
            self._forget(poll)
            poll.future.set_exception(error)
            return
        if isinstance(answer, asyncio.Future):
            poll.is_looking = True
            answer.add_done_callback(partial(self._looked, poll, poll.time_is_up))
        elif answer is not None or poll.time_is_up:
            self._end(poll, answer)

    def _looked(self, poll: Poll, was_last: bool, look: asyncio.Future[Answer]) -> None:
        """A look has ended that had to wait for the disk; `was_last`: its time was up when it began."""
        poll.is_looking = False
        error = None if look.cancelled() else look.exception()
        if poll.future.done():  # its peer has gone
            return
        if look.cancelled() or error is not None:
            self._forget(poll)
            poll.future.set_exception(error or asyncio.CancelledError())
        elif (answer := look.result()) is not None or was_last:
            self._end(poll, answer)
        elif poll.time_is_up or poll.woken:
            self._due.append(poll)
            self._look_soon()

    def _end(self, poll: Poll, answer: Answer) -> None:
        self._forget(poll)
        if not poll.future.done():
            poll.future.set_result(answer)

    def _forget(self, poll: Poll) -> None:
        self.count -= 1
        if _discard(self._by_key, poll.key, poll):
            key = poll.key
            for topic in (key.topic, *pop_retry_topics(key.topic, key.group)):
                keys = self._by_topic[topic]
                del keys[key]
                if not keys:
                    del self._by_topic[topic]
        _discard(self._by_connection, poll.connection, poll)
        _discard(self._by_tick, poll.last_tick, poll)

    @staticmethod
    def _tick_of(seconds: float) -> int:
        return int(seconds / TICK_SECONDS)


def _discard(table: dict[_Key, _Polls], key: _Key, poll: Poll) -> bool:
    """Take a poll out; whether nobody is left under the key."""
    polls = table[key]
    del polls[poll]
    if not polls:
        del table[key]
    return not polls
