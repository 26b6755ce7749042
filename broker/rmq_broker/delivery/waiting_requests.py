"""Requests that found nothing and wait (long polling): until there is something for them, or their time ends.

A waiting request costs nothing. It looks again when it is woken, and for the last time when its time ends.
Subclasses decide what a request waits for and which of several waiting requests is woken.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from rmq_remoting.answers import Answer, HeldAnswer
from rmq_remoting.daemon.demand import Demand
from rmq_remoting.tiers import has_share

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection


class _Outcome(Enum):
    STILL_WAITING = "there is still nothing for the request"


# Outcome of a look that found nothing: the request waits on.
STILL_WAITING: Final = _Outcome.STILL_WAITING

# The outcome of a look. An answer of None ends the request without a response: its client has disconnected.
LookResult = Answer | Literal[_Outcome.STILL_WAITING]
# The same, or a future of it where a disk has to be read first.
Look = LookResult | asyncio.Future[LookResult]
# Looks again for a request. The argument tells whether its time has ended: then the outcome is an answer.
LookAgain = Callable[[bool], Look]

# Precision of the end of a request's time: the period in which `WaitingRequests.expire` is to be called.
TICK_SECONDS: Final = 0.1
# How many woken requests look in one iteration of the loop, and how many expired ones. Thousands may wait for
# one queue, and each answer may be large.
_SLICE: Final = 64
# How many requests of a disconnected client are dropped in one iteration of the loop.
_DROP_SLICE: Final = 256
# Most bytes of header fields and bodies of all waiting requests of one kind; usually 350 for a request.
MAX_BYTES: Final = 128 * 1024 * 1024
# A connection may have as much as this once half of `MAX_BYTES` is used.
_LEAST_SHARE_BYTES: Final = 1024 * 1024

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True, eq=False)
class WaitingRequest(ABC, Generic[Key]):
    """One waiting request; `key` stands for what it waits for."""

    connection: Connection
    key: Key
    look_again: LookAgain
    last_tick: int
    size_bytes: int
    future: HeldAnswer = field(init=False, default_factory=HeldAnswer)
    is_looking: bool = field(init=False, default=False)  # a look waits for the disk
    time_is_up: bool = field(init=False, default=False)  # its time has ended during that look
    was_woken: bool = field(init=False, default=False)  # it was woken during that look

    @abstractmethod
    def look_begins(self) -> None:
        """Forget earlier wake-ups: the look that begins covers them."""

    @property
    @abstractmethod
    def has_missed_arrival(self) -> bool:
        """Whether something arrived since the look began."""


Request = TypeVar("Request", bound=WaitingRequest[Any])
_Place = TypeVar("_Place")


class WaitingRequests(ABC, Generic[Key, Request]):
    """Waiting requests of one kind, by key, by connection, and by the tick in which their time ends."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self.clock = clock
        self.count = 0
        self.size_bytes = 0
        # Of the task that calls `expire`, and of another one that looks after waiting requests.
        self.demand = Demand(self._has_waiting)
        self.check_demand = Demand(self._has_waiting)
        # Requests that `has_share` refused.
        self.refused = 0
        # Dictionaries without values: sets in the order of insertion, the longest-waiting request first.
        self._by_key: dict[Key, dict[Request, None]] = {}
        self._by_connection: dict[Connection, dict[Request, None]] = {}
        self._bytes_of: dict[Connection, int] = {}
        # Connections that are closed, with requests to be dropped.
        self._closed: set[Connection] = set()
        self._by_tick: dict[int, dict[Request, None]] = {}
        self._next_tick = int(clock() / TICK_SECONDS)
        self._woken: dict[Key, None] = {}
        # Requests that have to look, woken ones apart from expired ones: neither waits for the other.
        self._due: deque[Request] = deque()
        self._expired: deque[Request] = deque()
        self._look_scheduled = False
        self._released = False

    @abstractmethod
    def _woken_by(self, key: Key) -> Iterable[Request]:
        """Return the requests that look when something has arrived for `key`."""

    # --- waiting ---

    def has_share(self, connection: Connection, request: RemotingCommand, most: int) -> bool:
        """Whether a request of this connection may wait, where `most` may wait in all; count it if not."""
        own = len(self._by_connection.get(connection, ()))
        own_bytes = self._bytes_of.get(connection, 0) + held_bytes(request)
        if has_share(self.count, own, most) and has_share(
            self.size_bytes, own_bytes, MAX_BYTES, _LEAST_SHARE_BYTES
        ):
            return True
        self.refused += 1
        return False

    def _last_tick(self, wait_seconds: float) -> int:
        """Return the tick in which the time of a request ends that waits from now on."""
        return max(self._next_tick, int((self.clock() + wait_seconds) / TICK_SECONDS) + 1)

    def _has_waiting(self) -> bool:
        return self.count > 0

    def _keep(self, request: Request) -> None:
        if not self.count:
            # No tick was missed: while nothing waits, nobody calls `expire`.
            self._next_tick = max(self._next_tick, int(self.clock() / TICK_SECONDS))
            self.demand.arise()
            self.check_demand.arise()
        self._by_key.setdefault(request.key, {})[request] = None
        self._by_connection.setdefault(request.connection, {})[request] = None
        self._bytes_of[request.connection] = self._bytes_of.get(request.connection, 0) + request.size_bytes
        self._by_tick.setdefault(request.last_tick, {})[request] = None
        self.count += 1
        self.size_bytes += request.size_bytes

    # --- the end of a wait ---

    def expire(self) -> None:
        """Let the requests answer whose time has ended; called every `TICK_SECONDS` while one waits."""
        now = int(self.clock() / TICK_SECONDS)
        while self._next_tick <= now:
            requests = self._by_tick.get(self._next_tick)
            if requests is not None:
                self._expired.extend(requests)
                self._look_soon()
            self._next_tick += 1

    def connection_closed(self, connection: Connection) -> None:
        """Drop the requests of a client that has disconnected, which may be tens of thousands, in slices."""
        if connection in self._by_connection:
            self._closed.add(connection)
            self._drop_slice(connection)

    def _drop_slice(self, connection: Connection) -> None:
        for request in list(islice(self._by_connection.get(connection, ()), _DROP_SLICE)):
            self._end(request, None)
        if connection in self._by_connection:
            asyncio.get_running_loop().call_soon(self._drop_slice, connection)
        else:
            self._closed.discard(connection)

    def release_all(self) -> None:
        """Answer every waiting request now, with or without a message, and hold no more."""
        self._released = True
        for requests in list(self._by_key.values()):
            for request in list(requests):
                self._look(request, time_is_up=True)

    # --- looking ---

    def _look_soon(self) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            asyncio.get_running_loop().call_soon(self._look_at_slice)

    def _look_at_slice(self) -> None:
        """Let one slice of the due requests look. Keys woken while others are due wait for the next round."""
        self._look_scheduled = False
        due, expired = self._due, self._expired
        if not due:
            woken, self._woken = self._woken, {}
            due.extend(request for key in woken for request in self._woken_by(key))
        answered: dict[Connection, None] = {}
        for requests in (due, expired):
            for _ in range(min(_SLICE, len(requests))):
                request = requests.popleft()
                self._look(request, time_is_up=requests is expired)
                if request.future.done():
                    answered[request.connection] = None
        for connection in answered:
            connection.flush()
        if due or expired or self._woken:
            self._look_soon()

    def _look(self, request: Request, *, time_is_up: bool) -> None:
        if request.future.done() or (self._closed and request.connection in self._closed):
            return
        if request.is_looking:
            request.time_is_up |= time_is_up
            request.was_woken = True
            return
        if not request.connection.is_writable:
            # Answers would pile up here. A client that does not read until the time ends gets none.
            if time_is_up:
                self._end(request, None)
            return
        request.was_woken = False
        request.look_begins()
        try:
            look = request.look_again(time_is_up)
        except Exception as error:  # answered by the dispatcher, as for any request that fails
            self._forget(request)
            request.future.set_exception(error)
            return
        if isinstance(look, asyncio.Future):
            request.is_looking = True
            look.add_done_callback(partial(self._looked, request, time_is_up))
        elif look is not STILL_WAITING:
            self._end(request, look)
        elif time_is_up:
            self._end(request, None)

    def _looked(self, request: Request, time_was_up: bool, look: asyncio.Future[LookResult]) -> None:
        """A look that waited for the disk has ended; `time_was_up`: the time had ended when it began."""
        request.is_looking = False
        error = None if look.cancelled() else look.exception()
        if request.future.done():  # its client has disconnected
            return
        if look.cancelled() or error is not None:
            self._forget(request)
            request.future.set_exception(error or asyncio.CancelledError())
            return
        result = look.result()
        if result is not STILL_WAITING:
            self._end(request, result)
        elif time_was_up:
            self._end(request, None)
        elif request.time_is_up or request.was_woken or request.has_missed_arrival:
            (self._expired if request.time_is_up else self._due).append(request)
            self._look_soon()

    def _end(self, request: Request, answer: Answer) -> None:
        self._forget(request)
        if not request.future.done():
            request.future.set_result(answer)

    def _forget(self, request: Request) -> None:
        connection = request.connection
        self.count -= 1
        self.size_bytes -= request.size_bytes
        self._bytes_of[connection] -= request.size_bytes
        _discard(self._by_key, request.key, request)
        _discard(self._by_connection, connection, request)
        if connection not in self._by_connection:
            del self._bytes_of[connection]
        _discard(self._by_tick, request.last_tick, request)


def held_bytes(request: RemotingCommand) -> int:
    """Return the bytes of a request that stay in memory while it waits."""
    return len(request.body) + len(request.raw_ext or b"")


def _discard(table: dict[_Place, dict[Request, None]], place: _Place, request: Request) -> None:
    requests = table[place]
    del requests[request]
    if not requests:
        del table[place]
