"""Long polling: pulls that found nothing wait here for a message, or for their time to end.

Apache RocketMQ 5.3.3, PullRequestHoldService. Waiting costs nothing: a pull is looked at when its queue gets
a message and when its time ends; a check every few seconds finds the queues that grew by another way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.dispatch import Answer, HeldAnswer, Result

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..store.queues.consume_queue import ConsumeQueue

# Tries the pull again: its answer, or None to wait on; a promise of that where a disk has to be read first.
# The argument says whether its time has ended, then it has to be answered.
Retry = Callable[[bool], Result]

# Tiers in which a request waits for nothing but a message: that is no backlog.
HOLDING_TIERS: Final = frozenset({"pull", "lite_pull"})
# How exactly the end of a pull's time is met; `HeldPulls.expire` is to be called this often.
TICK_SECONDS: Final = 0.1
# So many pulls are looked at in one go, of those that were woken and of those whose time has ended:
# thousands may wait for one queue, and each answer may be large.
_SLICE: Final = 64


@dataclass(slots=True, eq=False)
class HeldPull:
    """One waiting pull; `seen_offset` is the end of its queue when it was looked at last."""

    connection: Connection
    queue: ConsumeQueue
    retry: Retry
    last_tick: int
    future: asyncio.Future[Answer]
    seen_offset: int = field(init=False)
    is_looking: bool = False  # a look is under way that waits for the disk
    time_is_up: bool = False  # its time ended meanwhile

    def __post_init__(self) -> None:
        self.seen_offset = self.queue.max_offset


_Key = TypeVar("_Key")
# Dictionaries without values: sets that keep their order. Who waits longest is answered first.
_Pulls = dict[HeldPull, None]


class HeldPulls:
    """All waiting pulls: by queue, by connection, and by the tick in which their time ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self._clock = clock
        self._by_queue: dict[ConsumeQueue, _Pulls] = {}
        self._by_connection: dict[Connection, _Pulls] = {}
        self._by_tick: dict[int, _Pulls] = {}
        self._next_tick = self._tick_of(clock())
        self._woken: dict[ConsumeQueue, None] = {}
        # Pulls to look at: woken ones, and those whose time has ended. The ones do not wait for the others.
        self._due: deque[HeldPull] = deque()
        self._expired: deque[HeldPull] = deque()
        self._look_scheduled = False
        self._released = False

    # --- waiting ---

    def hold(
        self, connection: Connection, queue: ConsumeQueue, wait_seconds: float, retry: Retry
    ) -> asyncio.Future[Answer]:
        """Keep a pull until it can be answered, `wait_seconds` at most; after `release_all` not at all."""
        future = HeldAnswer()
        if self._released:
            answer = retry(True)
            if isinstance(answer, asyncio.Future):
                return answer
            future.set_result(answer)
            return future
        tick = max(self._next_tick, self._tick_of(self._clock() + wait_seconds) + 1)
        pull = HeldPull(connection, queue, retry, tick, future)
        self._by_queue.setdefault(queue, {})[pull] = None
        self._by_connection.setdefault(connection, {})[pull] = None
        self._by_tick.setdefault(tick, {})[pull] = None
        self.count += 1
        return future

    # --- what ends it ---

    def arrived(self, queue: ConsumeQueue) -> None:
        """A message came: look at who waits for the queue, once for all messages of this loop iteration."""
        if queue in self._by_queue:
            self._woken[queue] = None
            self._look_soon()

    def expire(self) -> None:
        """Answer the pulls whose time has ended; to be called every `TICK_SECONDS`."""
        now = self._tick_of(self._clock())
        while self._next_tick <= now:
            pulls = self._by_tick.get(self._next_tick)
            if pulls is not None:
                self._expired.extend(pulls)
                self._look_soon()
            self._next_tick += 1

    def check_all(self) -> None:
        """Look at the pulls whose queue has grown unnoticed, or whose peer did not read at the time."""
        for queue, pulls in self._by_queue.items():
            if any(pull.seen_offset != queue.max_offset for pull in pulls):
                self._woken[queue] = None
                self._look_soon()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Look at the pulls of topics that have just been deleted: there is nothing left to wait for."""
        if topics:
            self._woken.update((queue, None) for queue in self._by_queue if queue.topic in topics)
            self._look_soon()

    def connection_closed(self, connection: Connection) -> None:
        """Let go of the pulls of a peer that is gone."""
        for pull in list(self._by_connection.get(connection, ())):
            self._end(pull, None)

    def release_all(self) -> None:
        """Answer every waiting pull now, found something or not, and hold no more."""
        self._released = True
        for pulls in list(self._by_queue.values()):
            for pull in list(pulls):
                self._look_at(pull, time_is_up=True)

    # --- looking ---

    def _look_soon(self) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Look at one slice. What is woken while others are still due waits for the next round."""
        self._look_scheduled = False
        due, expired = self._due, self._expired
        if not due:
            woken, self._woken = self._woken, {}
            due.extend(pull for queue in woken for pull in self._waiting_for(queue))
        for _ in range(min(_SLICE, len(due))):
            self._look_at(due.popleft(), time_is_up=False)
        for _ in range(min(_SLICE, len(expired))):
            self._look_at(expired.popleft(), time_is_up=True)
        if due or expired or self._woken:
            self._look_soon()

    def _waiting_for(self, queue: ConsumeQueue) -> Iterable[HeldPull]:
        return self._by_queue.get(queue, ())

    def _look_at(self, pull: HeldPull, *, time_is_up: bool) -> None:
        if pull.future.done():
            return
        if pull.is_looking:
            pull.time_is_up |= time_is_up
            return
        if not pull.connection.is_writable:
            # Its answers would only pile up here. Who has not read until its time ends gets none.
            if time_is_up:
                self._end(pull, None)
            return
        pull.seen_offset = pull.queue.max_offset
        try:
            answer = pull.retry(time_is_up)
        except Exception as error:  # answered as any request that fails
            self._forget(pull)
            pull.future.set_exception(error)
            return
        if isinstance(answer, asyncio.Future):
            pull.is_looking = True
            answer.add_done_callback(partial(self._looked, pull, time_is_up))
        elif answer is not None or time_is_up:
            self._end(pull, answer)

    def _looked(self, pull: HeldPull, time_is_up: bool, look: asyncio.Future[Answer]) -> None:
        """A look has ended that had to wait for the disk."""
        pull.is_looking = False
        error = None if look.cancelled() else look.exception()
        if pull.future.done():  # its peer has gone
            return
        if look.cancelled() or error is not None:
            self._forget(pull)
            pull.future.set_exception(error or asyncio.CancelledError())
        elif (answer := look.result()) is not None or time_is_up:
            self._end(pull, answer)
        elif pull.time_is_up or pull.seen_offset != pull.queue.max_offset:
            (self._expired if pull.time_is_up else self._due).append(pull)
            self._look_soon()

    def _end(self, pull: HeldPull, answer: Answer) -> None:
        self._forget(pull)
        if not pull.future.done():
            pull.future.set_result(answer)

    def _forget(self, pull: HeldPull) -> None:
        self.count -= 1
        _discard(self._by_queue, pull.queue, pull)
        _discard(self._by_connection, pull.connection, pull)
        _discard(self._by_tick, pull.last_tick, pull)

    @staticmethod
    def _tick_of(seconds: float) -> int:
        return int(seconds / TICK_SECONDS)


def _discard(table: dict[_Key, _Pulls], key: _Key, pull: HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
