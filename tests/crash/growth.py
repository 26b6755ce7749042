"""Whether a measure has grown during a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

# Allowed growth between the second third of the time and the last: a share, plus an amount of the caller's.
_GROWTH_SHARE: Final = 0.1


def growth(name: str, values: Sequence[float], slack: float) -> str:
    """Print the medians of the second and the last third; return the problem if they grew, or an empty text.

    The first third is not counted, because caches fill then.
    """
    third = max(1, len(values) // 3)
    before, after = statistics.median(values[third:-third] or values), statistics.median(values[-third:])
    print(f"{name}: {before:,.0f}, then {after:,.0f}")
    if after > before * (1 + _GROWTH_SHARE) + slack:
        return f"{name} grew from {before:,.0f} to {after:,.0f}"
    return ""
