"""Rate limit of a stream: how much of a backlog a micro-batch takes.

The rules are those of Spark's Kafka source (Apache Spark 4, KafkaMicroBatchStream.rateLimit and delayBatch),
with two differences: the maximum is exact, and a drain is never delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..offsets import QueueKey, QueueOffsets
from ..options.limits import TriggerLimits

Clock = Callable[[], float]
"""Seconds of a monotonic clock."""


class RateLimiter:
    """Determines where each micro-batch of one query ends. Lives as long as the query's driver."""

    def __init__(self, limits: TriggerLimits, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._last_batch_at: float | None = None  # no delay applies to the first batch

    def end_of_batch(
        self,
        start: QueueOffsets,
        latest: Mapping[QueueKey, int],
        *,
        all_available: bool = False,
        draining: bool = False,
    ) -> QueueOffsets:
        """Return where a batch that begins at `start` ends; `start` itself if there is no batch (yet).

        The result has the queues of `start`. A queue that `latest` lacks, or has at a lower offset, keeps its
        offset: its broker may be down. `all_available`: Spark asked for everything, so no limit applies.
        `draining`: the query only reads the messages that existed at its start, so waiting for more would
        never end.
        """
        backlog = start.backlog(latest)
        if not backlog:
            return start
        if not (all_available or draining) and self._too_few(sum(backlog.values())):
            return start
        self._last_batch_at = self._clock()
        if all_available or self._limits.max_offsets is None:
            taken: Mapping[QueueKey, int] = backlog
        else:
            taken = distribute(backlog, self._limits.max_offsets)
        return start.merged({key: start[key] + count for key, count in taken.items()})

    def _too_few(self, available: int) -> bool:
        least = self._limits.min_offsets
        if least is None or available >= least or self._last_batch_at is None:
            return False
        return (self._clock() - self._last_batch_at) * 1000 < self._limits.max_delay_ms


def distribute(backlog: Mapping[QueueKey, int], limit: int) -> dict[QueueKey, int]:
    """Distribute `limit` offsets over the queues, in proportion to their backlogs.

    Every queue gets at least one; otherwise a small queue would starve beside large ones that grow. The sum
    exceeds `limit` only if there are more queues than `limit`. `backlog`: at least 1 each; `limit`: at least
    1. The calculation uses integers only: floating point is inexact for large backlogs.
    """
    total = sum(backlog.values())
    if limit >= total:
        return dict(backlog)
    rest = max(limit - len(backlog), 0)
    rest_total = total - len(backlog)
    if not rest:
        return dict.fromkeys(backlog, 1)
    shares = {key: divmod(rest * (count - 1), rest_total) for key, count in backlog.items()}
    taken = {key: 1 + whole for key, (whole, _) in shares.items()}
    # The offsets lost by rounding down go to the largest remainders, one each.
    left = limit - sum(taken.values())
    for key in sorted(shares, key=lambda key: (-shares[key][1], key))[:left]:
        taken[key] += 1
    return taken
