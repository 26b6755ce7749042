"""Ranges of queues: the driver plans them, and the tasks on the executors read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..offsets import QueueKey


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Offsets of one queue, from `begin` up to, but not including, `end`."""

    key: QueueKey
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets, which is the maximum number of messages."""
        return self.end - self.begin

    def __str__(self) -> str:
        """Return queue[begin,end), as in messages."""
        return f"{self.key}[{self.begin},{self.end})"


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The ranges that one task reads in order, of one or more queues."""

    ranges: tuple[QueueRange, ...]

    @property
    def size(self) -> int:
        """The number of offsets, which is the maximum number of messages."""
        return sum(part.size for part in self.ranges)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Pickle plain tuples: there may be thousands of ranges, and Spark sends them to each executor."""
        rows = tuple((r.key.topic, r.key.broker, r.key.queue_id, r.begin, r.end) for r in self.ranges)
        return _unpickled, (rows,)


def _unpickled(rows: Iterable[tuple[str, str, int, int, int]]) -> ReadTask:
    return ReadTask(
        tuple(QueueRange(QueueKey(t, b, number), begin, end) for t, b, number, begin, end in rows)
    )
