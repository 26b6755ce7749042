"""Pauses between attempts that fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

# Further doublings would exceed a float, and every bound.
_MAX_DOUBLINGS: Final = 64


class Backoff:
    """Pauses that double with each failure in a row up to a bound, and are shortened at random.

    The random part (up to a half) keeps clients that failed together from trying again together.
    """

    __slots__ = ("_first_seconds", "_fraction", "_longest_seconds")

    def __init__(
        self, first_seconds: float, longest_seconds: float, fraction: Callable[[], float] = random.random
    ) -> None:
        """`fraction` returns random numbers from 0 to 1; with 0 a pause keeps its full length."""
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._fraction = fraction

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after `failures` (1 or more) in a row."""
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        seconds = min(self._first_seconds * 2.0**doublings, self._longest_seconds)
        return seconds * (1.0 - self._fraction() / 2)
