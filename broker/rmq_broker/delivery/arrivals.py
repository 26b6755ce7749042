"""Listeners for arriving messages that come and go.

Each listener costs a call per message, so a part that waits for messages now and then listens only as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..store.api import ArrivalListener

# Begins (True) or ends (False) to listen.
Listen = Callable[[bool], None]


class ArrivalSource(Protocol):
    """The part of the store that tells of arriving messages."""

    def add_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` with the queue of each message or batch."""

    def remove_arrival_listener(self, listener: ArrivalListener) -> None:
        """Call `listener` no longer."""


class Arrivals:
    """Tells listeners of the queues that got a message; belongs to the event loop's thread."""

    def __init__(self, source: ArrivalSource, always: ArrivalListener) -> None:
        """`always` is called for each message, before the other listeners."""
        self._source = source
        source.add_arrival_listener(always)

    def listener(self, listener: ArrivalListener) -> Listen:
        """Return the switch of a listener, which is off at first."""

        def listen(on: bool) -> None:
            if on:
                self._source.add_arrival_listener(listener)
            else:
                self._source.remove_arrival_listener(listener)

        return listen
