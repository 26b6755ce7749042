"""Requests that found nothing and wait: for what may be there for them, or for their time to end.

Waiting costs nothing: a request is looked at when something comes that it waits for, and when its time ends.
Who waits for what, and who is woken of those that wait for the same, is for subclasses to say.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from rmq_remoting.dispatch import Answer, HeldAnswer, Result

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

# Tries the request again: its answer, or None to wait on; a promise of that where a disk has to be read
# first. The argument says whether its time has ended, then it has to be answered.
Retry = Callable[[bool], Result]

# How exactly the end of a request's time is met; `WaitingRequests.expire` is to be called this often.
TICK_SECONDS: Final = 0.1
# So many requests are looked at in one go, of those that were woken and of those whose time has ended:
# thousands may wait for one queue, and each answer may be large.
_SLICE: Final = 64

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True, eq=False)
class WaitingRequest(ABC, Generic[Key]):
    """One request that waits; `key` is what it waits for."""

    connection: Connection
    key: Key
    retry: Retry
    last_tick: int
    future: HeldAnswer = field(init=False, default_factory=HeldAnswer)
    is_looking: bool = field(init=False, default=False)  # a look is under way that waits for the disk
    time_is_up: bool = field(init=False, default=False)  # its time ended meanwhile
    was_woken: bool = field(init=False, default=False)  # it was to be looked at meanwhile

    @abstractmethod
    def look_begins(self) -> None:
        """Forget what came until now: the look will see it."""

    @property
    @abstractmethod
    def has_missed_some(self) -> bool:
        """Whether something came since the look began."""


Request = TypeVar("Request", bound=WaitingRequest[Any])
_Place = TypeVar("_Place")


class WaitingRequests(ABC, Generic[Key, Request]):
    """All waiting requests of one kind: by what they wait for, by connection, and by the tick they end in."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self._clock = clock
        # Dictionaries without values: sets that keep their order. Who waits longest comes first.
        self._by_key: dict[Key, dict[Request, None]] = {}
        self._by_connection: dict[Connection, dict[Request, None]] = {}
        self._by_tick: dict[int, dict[Request, None]] = {}
        self._next_tick = self._tick_of(clock())
        self._woken: dict[Key, None] = {}
        # Requests to look at: woken ones, and those whose time has ended. Neither wait for the others.
        self._due: deque[Request] = deque()
        self._expired: deque[Request] = deque()
        self._look_scheduled = False
        self._released = False
        # Who has been given answers by the look that is under way.
        self._answered: dict[Connection, None] = {}

    @abstractmethod
    def _woken_by(self, key: Key) -> Iterable[Request]:
        """Who is to be looked at when something has come for `key`."""

    # --- waiting ---

    def _last_tick(self, wait_seconds: float) -> int:
        """In which tick the time of a request ends that waits from now on."""
        return max(self._next_tick, self._tick_of(self._clock() + wait_seconds) + 1)

    def _keep(self, request: Request) -> None:
        self._by_key.setdefault(request.key, {})[request] = None
        self._by_connection.setdefault(request.connection, {})[request] = None
        self._by_tick.setdefault(request.last_tick, {})[request] = None
        self.count += 1

    # --- what ends it ---

    def expire(self) -> None:
        """Answer the requests whose time has ended; to be called every `TICK_SECONDS`."""
        now = self._tick_of(self._clock())
        while self._next_tick <= now:
            requests = self._by_tick.get(self._next_tick)
            if requests is not None:
                self._expired.extend(requests)
                self._look_soon()
            self._next_tick += 1

    def connection_closed(self, connection: Connection) -> None:
        """Let go of the requests of a peer that is gone."""
        for request in list(self._by_connection.get(connection, ())):
            self._end(request, None)

    def release_all(self) -> None:
        """Answer every waiting request now, found something or not, and hold no more."""
        self._released = True
        for requests in list(self._by_key.values()):
            for request in list(requests):
                self._look_at(request, time_is_up=True)

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
            due.extend(request for key in woken for request in self._woken_by(key))
        for _ in range(min(_SLICE, len(due))):
            self._look_at(due.popleft(), time_is_up=False)
        for _ in range(min(_SLICE, len(expired))):
            self._look_at(expired.popleft(), time_is_up=True)
        for connection in self._answered:
            connection.flush()
        self._answered.clear()
        if due or expired or self._woken:
            self._look_soon()

    def _look_at(self, request: Request, *, time_is_up: bool) -> None:
        if request.future.done():
            return
        if request.is_looking:
            request.time_is_up |= time_is_up
            request.was_woken = True
            return
        if not request.connection.is_writable:
            # Its answers would only pile up here. Who has not read until its time ends gets none.
            if time_is_up:
                self._end(request, None)
            return
        request.was_woken = False
        request.look_begins()
        try:
            answer = request.retry(time_is_up)
        except Exception as error:  # answered as any request that fails
            self._forget(request)
            request.future.set_exception(error)
            return
        if isinstance(answer, asyncio.Future):
            request.is_looking = True
            answer.add_done_callback(partial(self._looked, request, time_is_up))
        elif answer is not None or time_is_up:
            self._end(request, answer)

    def _looked(self, request: Request, time_is_up: bool, look: asyncio.Future[Answer]) -> None:
        """A look has ended that had to wait for the disk; `time_is_up`: it had ended when the look began."""
        request.is_looking = False
        error = None if look.cancelled() else look.exception()
        if request.future.done():  # its peer has gone
            return
        if look.cancelled() or error is not None:
            self._forget(request)
            request.future.set_exception(error or asyncio.CancelledError())
        elif (answer := look.result()) is not None or time_is_up:
            self._end(request, answer)
        elif request.time_is_up or request.was_woken or request.has_missed_some:
            (self._expired if request.time_is_up else self._due).append(request)
            self._look_soon()

    def _end(self, request: Request, answer: Answer) -> None:
        self._forget(request)
        if not request.future.done():
            if answer is not None:
                self._answered[request.connection] = None
            request.future.set_result(answer)

    def _forget(self, request: Request) -> None:
        self.count -= 1
        _discard(self._by_key, request.key, request)
        _discard(self._by_connection, request.connection, request)
        _discard(self._by_tick, request.last_tick, request)

    @staticmethod
    def _tick_of(seconds: float) -> int:
        return int(seconds / TICK_SECONDS)


def _discard(table: dict[_Place, dict[Request, None]], place: _Place, request: Request) -> None:
    requests = table[place]
    del requests[request]
    if not requests:
        del table[place]
