"""Retries of transient failures: which errors are transient, and how long to retry them."""

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

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0

# Errors seen while a broker starts or stops, before a name server knows it, or when a connection closes.
_TRANSIENT: Final = (UnreachableError, RouteError, Busy, Unavailable, TopicNotOnBroker)


def is_transient(error: ClientError) -> bool:
    """Return whether the same request may succeed a little later."""
    return isinstance(error, _TRANSIENT) and not isinstance(error, TlsFailed)


@dataclass(frozen=True, slots=True)
class WaitTimeouts:
    """How long the driver retries, in seconds.

    `unavailable_seconds`: while name servers or brokers do not answer. `topic_seconds`: while brokers are
    registered but no name server knows the topic.
    """

    unavailable_seconds: float = 120.0
    topic_seconds: float = 10.0


class Backoff:
    """Exponential backoff between attempts, for at most `timeout_seconds` of consecutive failures."""

    __slots__ = ("_clock", "_pause", "_since", "_timeout_seconds")

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        """`clock`: seconds of a monotonic clock."""
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._since: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def elapsed_seconds(self) -> float:
        """Return the seconds since the first failure; 0 if there was none."""
        return 0.0 if self._since is None else self._clock() - self._since

    def next_pause(self, cause: object) -> float:
        """Return the seconds to wait before the next attempt. Raises SourceUnavailable after the timeout.

        `cause`: what failed, for the log and the error.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
            log.warning("request failed, retrying timeout=%gs cause=%s", self._timeout_seconds, cause)
        left = self._since + self._timeout_seconds - now
        if left <= 0:
            raise SourceUnavailable(
                f"{cause} (retried for {now - self._since:.1f} s; brokerTimeout sets the limit)"
            )
        pause = min(self._pause, left)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause
