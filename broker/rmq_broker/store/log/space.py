"""Whether the log has space for sends."""

from __future__ import annotations

from collections.abc import Callable


class LogSpace:
    """Tells sends to wait while a slow disk provides space; belongs to the event loop's thread.

    Sends wait a little earlier than other appends. The rest of the space is for small records: those of
    acknowledgements, and the broker's own.
    """

    __slots__ = ("_listeners", "is_short")

    def __init__(self) -> None:
        self.is_short = False
        self._listeners: tuple[Callable[[], None], ...] = ()

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` each time that the disk may have provided space."""
        self._listeners += (listener,)

    def ready(self) -> None:
        """Let sends try again: the disk has provided space, or has refused it."""
        self.is_short = False
        for listener in self._listeners:
            listener()
