"""How long clients waited after a fault: from its begin to the first send that was accepted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

from .history import FaultRecord, Send


def seconds_to_first_accepted(faults: Sequence[FaultRecord], sends: Sequence[Send]) -> dict[str, list[float]]:
    """Return by name of the fault how long it took until a send was accepted that began after the fault.

    Infinity if there is none.
    """
    accepted = sorted((send.sent_at, send.answered_at) for send in sends if send.is_acknowledged)
    # The earliest answer to the sends from each one on.
    earliest: list[float] = [float("inf")] * (len(accepted) + 1)
    for index in range(len(accepted) - 1, -1, -1):
        earliest[index] = min(accepted[index][1], earliest[index + 1])
    found: dict[str, list[float]] = {}
    for fault in faults:
        index = bisect_left(accepted, (fault.began,))
        found.setdefault(fault.name, []).append(earliest[index] - fault.began)
    return found


def report(seconds: dict[str, list[float]]) -> str:
    """A table: median and worst for each fault."""
    lines = [f"{'fault':<34} {'times':>5} {'median s':>9} {'worst s':>9}"]
    for name, values in sorted(seconds.items()):
        lines.append(f"{name:<34} {len(values):>5} {median(values):>9.2f} {max(values):>9.2f}")
    return "\n".join(lines)
