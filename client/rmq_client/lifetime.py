"""Objects that are started and stopped, also by `async with`."""

from __future__ import annotations

import asyncio
import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Protocol, Self

from .errors import NotRunning, UsageError


class _Instance(Protocol):
    """The connections that a started object uses."""

    is_forked: bool
    """Whether this process was forked from the one that opened them: it has none of their threads."""


def not_running(what: str) -> NotRunning:
    """Return the error for a call before the start or after the stop, with advice for both faces."""
    return NotRunning(
        f"{what} is not running: begin a block by `async with` (`with` in rmq_client.blocking), or call "
        "start()"
    )


class Lifetime(ABC):
    """Started where an `async with` begins, and stopped where it ends, also by an exception.

    An object that is garbage before it was stopped is reported by a ResourceWarning.
    """

    _instance: _Instance | None = None
    """Set while the object is started."""

    @abstractmethod
    async def start(self) -> None:
        """Start the object."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the object."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        if self._instance is not None and not self._instance.is_forked:
            warnings.warn(
                f"{self._description()} was not stopped: leave its `with` block, or call stop()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def _description(self) -> str:
        """Return the object's kind and group for errors."""
        group = getattr(self, "group", None)
        return type(self).__name__ + (f" of group {group}" if group else "")

    def _check_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raise UsageError on another event loop than `loop`, the one of the start. No loop is fine, too."""
        try:
            current = asyncio.get_running_loop()
        except RuntimeError:
            return
        if current is not loop:
            raise UsageError(
                f"{self._description()} belongs to another event loop, the one of its start: use one object "
                "per loop, or rmq_client.blocking"
            )

    def _check_process(self) -> None:
        """Raise NotRunning in a process that was forked after the start of the object."""
        if self._instance is not None and self._instance.is_forked:
            raise NotRunning(
                f"{self._description()} was started before this process was forked, which has none of its "
                "threads and connections: create and start another one after the fork (with gunicorn in "
                "post_fork, with Celery in worker_process_init)"
            )
