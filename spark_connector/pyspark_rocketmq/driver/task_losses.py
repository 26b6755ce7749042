"""Losses that appear between the plan of a batch and its read: what tasks report, and what no task reports.

Tasks report the ranges that they have read, with the losses among them. If a report does not arrive, the next
plan compares the planned range with the oldest offset of the queue: messages that have expired meanwhile
count as lost. This is an upper bound, because the task may have read them before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ..offsets import QueueKey, QueueOffsets
from ..stream_losses import uncovered
from ..tasks.partitions import ReportAddress
from ..tasks.ranges import QueueRange
from .cluster import Cluster
from .loss_collector import LossCollector

OnLoss = Callable[[QueueKey, int, int, str], None]
"""Takes a queue, the begin and the end of a lost range, and the cause."""


class TaskLosses:
    """The losses of the tasks of one streaming query with failOnDataLoss=false."""

    def __init__(
        self, cluster: Cluster, open_collector: Callable[[], LossCollector | None], on_loss: OnLoss
    ) -> None:
        """`open_collector`: called once, for the first batch; None if tasks cannot report."""
        self._cluster = cluster
        self._open_collector = open_collector
        self._on_loss = on_loss
        self._collector: LossCollector | None = None
        self._is_open = False
        self._planned: list[QueueRange] = []

    def planned(self, ranges: Iterable[QueueRange]) -> ReportAddress | None:
        """Note the ranges of a batch that begins now. Return where its tasks report."""
        if not self._is_open:
            self._is_open = True
            self._collector = self._open_collector()
        self._planned += ranges
        return None if self._collector is None else self._collector.address

    def settle(self, start: QueueOffsets) -> None:
        """Count the losses of the batches before `start`, which have ended. Raises ClientError."""
        read: dict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
        if self._collector is not None:
            report = self._collector.take()
            for part in report.lost:
                self._on_loss(part.key, part.begin, part.end, "a task found the messages missing")
            for part in report.read:
                read[part.key].append((part.begin, part.end))
        ended = [part for part in self._planned if part.end <= start.get(part.key, part.end)]
        self._planned = [part for part in self._planned if part.end > start.get(part.key, part.end)]
        unreported = [
            QueueRange(part.key, begin, end)
            for part in ended
            for begin, end in uncovered(part.begin, part.end, read[part.key])
        ]
        if unreported:
            self._count_expired(unreported)

    def close(self) -> None:
        """Stop listening for reports."""
        collector, self._collector = self._collector, None
        if collector is not None:
            collector.close()

    def _count_expired(self, unreported: list[QueueRange]) -> None:
        states, _ = self._cluster.states({part.key for part in unreported})
        for part in unreported:
            state = states.get(part.key)
            if state is None:  # its broker does not answer now
                self._planned.append(part)
            elif part.begin < state.oldest and part.end <= state.newest:
                end = min(part.end, state.oldest)
                self._on_loss(
                    part.key, part.begin, end, "expired, and no task has reported to have read them"
                )
