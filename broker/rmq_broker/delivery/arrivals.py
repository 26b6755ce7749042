"""Telling waiting requests of stored messages.

Each listener costs a call per stored message, so a listener is registered only while some request waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.api import Arrival, ConsumeQueue

# Registers (True) and unregisters (False) a listener.
Listen = Callable[[bool], None]


class Appends(Protocol):
    """The part of the store that appends messages; it calls one function for each."""

    on_arrival: Arrival


class Arrivals:
    """Calls listeners with the queue of each stored message; belongs to the loop."""

    def __init__(self, appender: Appends, always: Arrival) -> None:
        """`always` is called for every message, before the other listeners."""
        self._appender = appender
        self._listeners = {always: None}
        self._changed()

    def listener(self, listener: Arrival) -> Listen:
        """Return the switch that registers and unregisters a listener."""

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
