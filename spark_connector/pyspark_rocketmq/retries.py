"""What may go over by itself, and how long it is waited for: a broker that is away delays a query."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmq_client import (
    Busy,
    ClientError,
    RouteError,
    TlsFailed,
    TopicNotOnBroker,
    Unavailable,
    UnreachableError,
)

from .errors import SourceUnavailable

log = logging.getLogger("rmq.spark.patience")

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0

# Brokers that start or stop, a name server that does not know of them yet, connections that end.
_TRANSIENT: Final = (UnreachableError, RouteError, Busy, Unavailable, TopicNotOnBroker)


def is_transient(error: ClientError) -> bool:
    """Whether the same request may succeed a little later."""
    return isinstance(error, _TRANSIENT) and not isinstance(error, TlsFailed)


@dataclass(frozen=True, slots=True)
class WaitTimeouts:
    """For how long the driver puts up with what may go over: servers that are away, topics that nobody knows
    though brokers are there.
    """

    unavailable_seconds: float = 120.0
    topic_seconds: float = 10.0


class Backoff:
    """Pauses between attempts, longer each time, until something has failed for `timeout_seconds` on end."""

    __slots__ = ("_clock", "_pause", "_since", "_timeout_seconds")

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that only grow."""
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._since: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def seconds(self) -> float:
        """For how long it has failed."""
        return 0.0 if self._since is None else self._clock() - self._since

    def next_pause(self, trouble: object) -> float:
        """Seconds to wait before the next attempt. Raises SourceUnavailable where it has lasted too long."""
        now = self._clock()
        if self._since is None:
            self._since = now
            log.warning("waiting for up to %g s: %s", self._timeout_seconds, trouble)
        left = self._since + self._timeout_seconds - now
        if left <= 0:
            raise SourceUnavailable(
                f"{trouble} (it has been tried for {now - self._since:.1f} s; brokerTimeout says how long)"
            )
        pause = min(self._pause, left)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause
