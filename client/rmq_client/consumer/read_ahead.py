"""Messages that the blocking face has handed to the application's thread, to be yielded one by one.

One hop between the threads for each message would cost more than the message itself. The application's thread
takes messages from the front, without a lock. Before any other call of the consumer, its loop takes the rest
back. Commits, seeks and polls therefore count the yielded messages only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rmq_remoting.message import MessageExt

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ahead(Generic[T]):
    """One message. `origin` is the loop's own; `usable_until` is a time of `time.monotonic`, None: always."""

    message: MessageExt
    origin: T
    usable_until: float | None = None


class ReadAhead(Generic[T]):
    """A queue of such messages. `last` is the one that was yielded last.

    `taken` is called on the application's thread, with each yielded message and the seconds that its reader
    waited. It is None without a hook to call.
    """

    __slots__ = ("_waiting", "fill", "last", "taken")

    def __init__(self, fill: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`fill` waits for messages and puts them here, on the loop. Raises ClientError."""
        self.fill = fill
        self._waiting: deque[Ahead[T]] = deque()
        self.last: Ahead[T] | None = None
        self.taken: Callable[[list[MessageExt], float], None] | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, messages: Iterable[Ahead[T]]) -> None:
        """Add messages, on the loop."""
        self._waiting.extend(messages)

    def next(self) -> MessageExt | None:
        """Return the next message, on any thread; None if there is none, or if it has waited for too long."""
        try:
            first = self._waiting.popleft()
        except IndexError:
            return None
        if first.usable_until is not None and time.monotonic() >= first.usable_until:
            self._waiting.appendleft(first)
            return None
        self.last = first
        return first.message

    def take_back(self) -> list[Ahead[T]]:
        """Return all that were not yielded, on the loop."""
        left = []
        while True:
            try:
                left.append(self._waiting.popleft())
            except IndexError:
                return left
