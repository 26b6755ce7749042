"""Messages that a stream has lost, by queue and range of offsets, as progress reports show them.

The report of the newest offsets has one more member, `#lost`: {topic: {broker: {queue: {"messages": number,
"ranges": [[begin, end], …]}}}}, counted since the start of the query's run. No topic can have that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import BadOffsets
from .offsets import QueueKey, by_queue

LOST: Final = "#lost"
# Ranges kept per queue, the latest ones. The number of messages counts all of them.
MAX_RANGES: Final = 16


@dataclass(frozen=True, slots=True)
class QueueLoss:
    """Lost messages of one queue: their number, and the latest ranges from `begin` up to `end`, excluded."""

    queue: QueueKey
    messages: int
    ranges: tuple[tuple[int, int], ...]


class LossLedger:
    """The losses of one run of a query. Ranges come in any order, and an offset counts once.

    A range below the ranges that are kept no longer counts: it may have been counted before.
    """

    def __init__(self) -> None:
        self._losses: dict[QueueKey, QueueLoss] = {}
        self._floors: dict[QueueKey, int] = {}
        self.messages = 0
        """Lost messages of all queues."""

    def record(self, queue: QueueKey, begin: int, end: int) -> int:
        """Record a lost range. Return how many messages of it are new."""
        known = self._losses.get(queue, QueueLoss(queue, 0, ()))
        begin = max(begin, self._floors.get(queue, 0))
        new = sum(last - first for first, last in uncovered(begin, end, known.ranges))
        if new:
            ranges = _merged([*known.ranges, (begin, end)])
            if len(ranges) > MAX_RANGES:
                self._floors[queue] = ranges[-MAX_RANGES - 1][1]
            self._losses[queue] = QueueLoss(queue, known.messages + new, ranges[-MAX_RANGES:])
            self.messages += new
        return new

    def restart(self, queue: QueueKey) -> None:
        """Note that the offsets of a queue begin anew: later ranges do not overlap earlier ones."""
        self._floors.pop(queue, None)
        known = self._losses.get(queue)
        if known is not None:
            self._losses[queue] = QueueLoss(queue, known.messages, ())

    def losses(self) -> list[QueueLoss]:
        """Return the losses, in the order of the queues."""
        return sorted(self._losses.values(), key=lambda loss: loss.queue)


def uncovered(begin: int, end: int, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of begin <= offset < end that none of these ranges has, in order."""
    parts: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if begin < min(first, end):
            parts.append((begin, min(first, end)))
        begin = max(begin, last)
    if begin < end:
        parts.append((begin, end))
    return parts


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same offsets in as few ranges as possible, in order."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)


def losses_to_nested(losses: list[QueueLoss]) -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return losses in the form of a progress report."""
    nested: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for loss in losses:
        queue = loss.queue
        queues = nested.setdefault(queue.topic, {}).setdefault(queue.broker, {})
        queues[str(queue.queue_id)] = {"messages": loss.messages, "ranges": [list(r) for r in loss.ranges]}
    return nested


def losses_from_nested(nested: object) -> dict[QueueKey, QueueLoss]:
    """Convert the parsed JSON of a progress report. Raises BadOffsets."""
    found = by_queue(nested, _leaf)
    return {queue: QueueLoss(queue, *leaf) for queue, leaf in found.items()}


def _leaf(leaf: object) -> tuple[int, tuple[tuple[int, int], ...]]:
    match leaf:
        case {"messages": int(messages), "ranges": list(ranges)} if all(map(_is_range, ranges)):
            return messages, tuple((begin, end) for begin, end in ranges)
    raise ValueError(f"{leaf!r} is no loss")


def _is_range(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(offset) is int for offset in value)


def split_report(nested: object) -> tuple[object, dict[QueueKey, QueueLoss]]:
    """Return the newest offsets of a report, still nested, and its losses; none if they are unreadable."""
    if not isinstance(nested, Mapping) or LOST not in nested:
        return nested, {}
    rest = {topic: brokers for topic, brokers in nested.items() if topic != LOST}
    try:
        return rest, losses_from_nested(nested[LOST])
    except BadOffsets:
        return rest, {}
