"""What keeps a push consumer from its messages: for `wait_ready`, and for the error listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable

from ...errors import ClientError, TimedOut

log = logging.getLogger(__name__)

ErrorListener = Callable[[ClientError], object]
"""Is called on the loop that the consumer was started on. Its exceptions are logged."""


class Obstacles:
    """The last error of each topic and queue that gives no messages. Belongs to the network loop."""

    def __init__(self, listener: ErrorListener | None, application_loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._application_loop = application_loop
        self._errors: dict[Hashable, ClientError] = {}
        self._ready = asyncio.Event()

    def met(self, where: Hashable, error: ClientError) -> None:
        """Note an error, and tell the application if it is the first one there, or of another kind."""
        known = self._errors.get(where)
        self._errors[where] = error
        if self._listener is not None and type(known) is not type(error):
            try:
                self._application_loop.call_soon_threadsafe(_tell, self._listener, error)
            except RuntimeError:
                log.debug("error listener not called, its loop has ended")

    def passed(self, where: Hashable) -> None:
        """Note that a topic or queue works."""
        self._errors.pop(where, None)

    def forget_all_but(self, known: Callable[[Hashable], bool]) -> None:
        """Forget the errors of topics and queues that are no longer consumed."""
        for where in [where for where in self._errors if not known(where)]:
            del self._errors[where]

    def balanced(self) -> None:
        """Note that this consumer has its whole share."""
        if not self._errors:
            self._ready.set()

    async def wait_ready(self, about: str, timeout_seconds: float) -> None:
        """Wait until this consumer has had its whole share. Raises the error in the way, or TimedOut."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ready.wait()
        except TimeoutError:
            text = f"{about} was not ready within {timeout_seconds:g} s"
            for error in self._errors.values():
                error.add_note(text)
                raise error from None
            raise TimedOut(
                f"{text}: it has not got its share of the queues; is the group rebalanced?"
            ) from None


def _tell(listener: ErrorListener, error: ClientError) -> None:
    try:
        listener(error)
    except Exception:
        log.exception("error listener failed")
