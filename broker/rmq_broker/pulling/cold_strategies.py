"""When thresholds of cold reads are raised and lowered.

Source: Apache RocketMQ 5.3.3, SimpleColdCtrStrategy, PIDAdaptiveColdCtrStrategy.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

# Weights of the current deviation, of the sum of the last ones, and of their last difference.
_PROPORTIONAL: Final = 0.5
_INTEGRAL: Final = 0.3
_DERIVATIVE: Final = 0.2
_DEVIATIONS: Final = 10
# Share of the global threshold that all groups together are meant to read.
_EXPECTED_SHARE: Final = 0.8


class ColdStrategy(Protocol):
    """Decides once per period, by the cold bytes of all groups in it."""

    def period_ended(self, total_bytes: int, limit_bytes: int) -> None:
        """Take the cold bytes of all groups in a period, and their threshold."""

    @property
    def may_raise(self) -> bool:
        """Whether groups that have reached their thresholds get higher ones."""

    @property
    def must_lower(self) -> bool:
        """Whether the highest thresholds are lowered."""


class SimpleStrategy:
    """Raise at any time, and lower while all groups together read too much."""

    def __init__(self) -> None:
        self._is_over = False

    def period_ended(self, total_bytes: int, limit_bytes: int) -> None:
        """Take the cold bytes of all groups in a period, and their threshold."""
        self._is_over = total_bytes > limit_bytes

    @property
    def may_raise(self) -> bool:
        """Whether groups that have reached their thresholds get higher ones."""
        return True

    @property
    def must_lower(self) -> bool:
        """Whether the highest thresholds are lowered."""
        return self._is_over


class PidStrategy:
    """Follow the deviation from four fifths of the global threshold over the last ten periods (PID)."""

    def __init__(self) -> None:
        self._deviations: deque[int] = deque(maxlen=_DEVIATIONS)

    def period_ended(self, total_bytes: int, limit_bytes: int) -> None:
        """Take the cold bytes of all groups in a period, and their threshold."""
        self._deviations.append(int(limit_bytes * _EXPECTED_SHARE) - total_bytes)

    @property
    def may_raise(self) -> bool:
        """Whether groups that have reached their thresholds get higher ones."""
        return self._decision() > 0

    @property
    def must_lower(self) -> bool:
        """Whether the highest thresholds are lowered."""
        return self._decision() < 0

    def _decision(self) -> float:
        deviations = self._deviations
        if len(deviations) < _DEVIATIONS:
            return 0.0
        newest, before = deviations[-1], deviations[-2]
        return _PROPORTIONAL * newest + _INTEGRAL * sum(deviations) + _DERIVATIVE * (newest - before)
