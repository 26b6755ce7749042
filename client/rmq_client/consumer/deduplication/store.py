"""Stores of processed messages: their contract, and one in memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from ...checks import Seconds, check_callable, check_int, check_seconds

_DEFAULT_COUNT: Final = 100_000
_DEFAULT_AGE_SECONDS: Final = 3600.0


class ClaimResult(Enum):
    """Answer of a store to a claim."""

    NEW = "NEW"
    """The caller has the claim, and processes the message."""
    DONE = "DONE"
    """The message has been processed already."""
    BUSY = "BUSY"
    """Another caller has the claim and has not finished."""


@runtime_checkable
class DeduplicationStore(Protocol):
    """Remembers which messages are being processed and which are processed, by key.

    Each method is atomic: of two callers that claim a key at the same time, one gets NEW. A store that
    several processes share, such as a table or Redis, deduplicates among all of them.
    """

    async def claim(self, key: str, token: str, lease_seconds: float) -> ClaimResult:
        """Claim a key for the owner of `token`.

        A claim that was neither confirmed nor released ends after `lease_seconds`, so that a crashed
        process does not keep it. A second claim with the same token is BUSY, too.
        """

    async def confirm(self, key: str, token: str) -> None:
        """Note that the message is processed, also after the end of the lease."""

    async def release(self, key: str, token: str) -> None:
        """End the claim of this token, because the message is not processed. Nothing for any other claim."""


class MemoryDeduplicationStore:
    """The keys of one process, at most `max_keys` processed ones, for at most `max_age_seconds`.

    Beyond `max_keys` the least recently used key is forgotten. A restart forgets all. Any thread may use it.
    """

    def __init__(
        self,
        *,
        max_keys: int = _DEFAULT_COUNT,
        max_age_seconds: Seconds = _DEFAULT_AGE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` returns seconds; it decides about age and leases. Raises InvalidArgumentError."""
        self._max_keys = check_int("max_keys", max_keys, least=1)
        self._max_age_seconds = check_seconds("max_age_seconds", max_age_seconds, above=0)
        self._now = check_callable("now", now, 0, "no argument")
        self._lock = threading.Lock()
        # Processed keys with the times of their confirmations, the least recently used one first.
        self._done: OrderedDict[str, float] = OrderedDict()
        # Claims with their tokens and the ends of their leases. Each is one message in a listener, so they
        # need no bound of their own.
        self._claims: dict[str, tuple[str, float]] = {}

    async def claim(self, key: str, token: str, lease_seconds: float) -> ClaimResult:
        """Claim a key."""
        with self._lock:
            now = self._now()
            if self._is_done(key, now):
                return ClaimResult.DONE
            held = self._claims.get(key)
            if held is not None and now < held[1]:
                return ClaimResult.BUSY
            self._claims[key] = (token, now + lease_seconds)
            return ClaimResult.NEW

    async def confirm(self, key: str, token: str) -> None:
        """Note that the message is processed."""
        with self._lock:
            self._end_claim(key, token)
            self._done[key] = self._now()
            self._done.move_to_end(key)
            self._forget_old()

    async def release(self, key: str, token: str) -> None:
        """End the claim of this token."""
        with self._lock:
            self._end_claim(key, token)

    def __len__(self) -> int:
        """Return the number of processed keys."""
        return len(self._done)

    def _is_done(self, key: str, now: float) -> bool:
        confirmed_at = self._done.get(key)
        if confirmed_at is None:
            return False
        if now - confirmed_at >= self._max_age_seconds:
            del self._done[key]
            return False
        self._done.move_to_end(key)
        return True

    def _end_claim(self, key: str, token: str) -> None:
        held = self._claims.get(key)
        if held is not None and held[0] == token:
            del self._claims[key]

    def _forget_old(self) -> None:
        oldest_allowed = self._now() - self._max_age_seconds
        while self._done:
            key, confirmed_at = next(iter(self._done.items()))
            if len(self._done) <= self._max_keys and confirmed_at > oldest_allowed:
                return
            del self._done[key]
