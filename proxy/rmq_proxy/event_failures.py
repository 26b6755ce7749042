"""Events that gRPC's core failed to deliver: their number, their log lines, and the end of the port.

An exception of `CompletionQueue.poll` loses one event, and so one operation of one call. The port goes on.
A queue that raises without end delivers no events, so the port cannot answer a call, not even a health check.
Such a port is closed, so that clients are refused and not held.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmq_remoting.repeated_event import RepeatedEvent

log = logging.getLogger("rmq.proxy")

_LOG_SECONDS: Final = 60.0


class EventFailures:
    """The failures of one port. Belongs to one loop."""

    def __init__(self) -> None:
        # Events that were not delivered.
        self.lost = 0
        # Why the port was closed; None while it serves.
        self.cause: str | None = None
        self._closed = asyncio.Event()
        self._loss = RepeatedEvent(_LOG_SECONDS)

    @property
    def is_broken(self) -> bool:
        """Whether the core delivers no events any longer."""
        return self.cause is not None

    def occurred(self, error: Exception) -> None:
        """Count a failure, and log it at most once a minute."""
        self.lost += 1
        if count := self._loss.occurred():
            log.error(
                "gRPC's library lost events count=%d cause=%s: %s; each may leave one call without an answer "
                "until its deadline",
                count,
                type(error).__name__,
                error,
                exc_info=error,
            )

    def give_up(self, error: Exception) -> None:
        """Note that no events come any longer; later calls have no effect."""
        if self.cause is None:
            self.cause = f"{type(error).__name__}: {error}"
            self._closed.set()

    async def broken(self) -> str:
        """Wait until no events come any longer, and return the cause."""
        await self._closed.wait()
        return self.cause or ""
