"""Turns: how many requests of a peer run in one go, and which of them wait for the next one. Pure: no I/O."""

from __future__ import annotations

from collections import deque
from typing import Final

from .command import RemotingCommand

# A turn ends after this many requests: their responses are written, and other connections get the loop.
TURN_REQUESTS: Final = 16
# While more requests than this wait for their turn, nothing is read from the peer.
MAX_WAITING_REQUESTS: Final = 256


class RequestTurns:
    """Requests of one peer that wait for their turn, in the order of arrival."""

    __slots__ = ("_batches", "_last_turn_ended_at", "waiting")

    def __init__(self) -> None:
        self._batches: deque[tuple[list[RemotingCommand], float]] = deque()
        self._last_turn_ended_at = 0.0
        self.waiting = 0  # number of requests

    def take(
        self, requests: list[RemotingCommand], now: float, *, all_wait: bool = False
    ) -> list[RemotingCommand]:
        """Return the requests of this read that run at once; the others wait.

        None run at once where earlier requests wait: all keep their order.
        """
        first: list[RemotingCommand] = []
        if not self.waiting and not all_wait:
            first, requests = requests[:TURN_REQUESTS], requests[TURN_REQUESTS:]
        if requests:
            self._batches.append((requests, now))
            self.waiting += len(requests)
        return first

    def next(self) -> tuple[list[RemotingCommand], float] | None:
        """Return the requests of the next turn and since when they have waited; None if none wait.

        Time spent behind earlier requests of the same connection does not count as waiting.
        """
        if not self._batches:
            return None
        requests, received_at = self._batches.popleft()
        if len(requests) > TURN_REQUESTS:
            self._batches.appendleft((requests[TURN_REQUESTS:], received_at))
            requests = requests[:TURN_REQUESTS]
        self.waiting -= len(requests)
        return requests, max(received_at, self._last_turn_ended_at)

    def oldest(self, codes: frozenset[int]) -> float | None:
        """Return since when the oldest request with one of these codes has waited; None if none does.

        From any thread: requests that come or go meanwhile may be missed.
        """
        for requests, received_at in list(self._batches):
            if any(request.code in codes for request in requests):
                return max(received_at, self._last_turn_ended_at)
        return None

    def ended(self, now: float) -> None:
        """Note that a turn has ended: the wait of the next one counts from here."""
        self._last_turn_ended_at = now

    def drop(self) -> None:
        """Drop all requests that wait: the connection ends."""
        self._batches.clear()
        self.waiting = 0
