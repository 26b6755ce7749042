"""Who is told of each message that is stored: only who waits for one.

Telling costs a call for each message, so whoever waits now and then listens only as long as that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.api import Arrival, ConsumeQueue

# Begins (True) and ends (False) being told of messages.
Listen = Callable[[bool], None]


class Appends(Protocol):
    """Whoever stores messages, and tells one of each."""

    on_arrival: Arrival


class Arrivals:
    """Tells listeners of the queues that got a message; belongs to the loop."""

    def __init__(self, appender: Appends, always: Arrival) -> None:
        """`always` is told of every message, before the others."""
        self._appender = appender
        self._listeners = {always: None}
        self._changed()

    def listener(self, listener: Arrival) -> Listen:
        """The switch of one who listens from time to time."""

        def listen(on: bool) -> None:
            if on:
                self._listeners[listener] = None
            else:
                self._listeners.pop(listener, None)
            self._changed()

        return listen

    def _changed(self) -> None:
        self._appender.on_arrival = _all_of(tuple(self._listeners))


def _all_of(listeners: tuple[Arrival, ...]) -> Arrival:
    if len(listeners) == 1:
        return listeners[0]

    def arrived(queue: ConsumeQueue) -> None:
        for listener in listeners:
            listener(queue)

    return arrived
