"""How much of a backlog a micro-batch takes: a most, spread over the queues, and a least, worth waiting for.

The rules are those of Spark's Kafka source (Apache Spark 4, KafkaMicroBatchStream.rateLimit and delayBatch),
with two differences: the most is kept exactly, and a drain is never held back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..offsets import QueueKey, QueueOffsets
from ..options.limits import TriggerLimits

Clock = Callable[[], float]
"""Seconds of a monotonic clock."""


class RateLimiter:
    """Says where each micro-batch of one query ends. Lives as long as the query's driver."""

    def __init__(self, limits: TriggerLimits, clock: Clock = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._last_batch_at: float | None = (
            None  # nothing to measure a delay from: the first one goes at once
        )

    def end_of_batch(
        self,
        start: QueueOffsets,
        latest: Mapping[QueueKey, int],
        *,
        all_available: bool = False,
        draining: bool = False,
    ) -> QueueOffsets:
        """Where a batch that begins at `start` ends; `start` itself where there is none (yet).

        The result has the queues of `start`. One that `latest` does not have, or has lower, stays where it
        is: a broker may be away. `all_available`: Spark asked for everything, so no limit counts.
        `draining`: what is there at the start of the query is all that is wanted, and waiting for more
        would end it.
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

    def _too_few(self, waiting: int) -> bool:
        least = self._limits.min_offsets
        if least is None or waiting >= least or self._last_batch_at is None:
            return False
        return (self._clock() - self._last_batch_at) * 1000 < self._limits.max_delay_ms


def distribute(backlog: Mapping[QueueKey, int], limit: int) -> dict[QueueKey, int]:
    """How many offsets of each queue to take, in proportion to its backlog: `limit` in all.

    Every queue gets at least one, or a small one would never have its turn beside large ones that grow: so
    only with more queues than `limit` is it more than that. `backlog`: at least 1 each; `limit`: at least 1.
    Whole numbers throughout: shares of large backlogs are not exact in floating point.
    """
    waiting = sum(backlog.values())
    if limit >= waiting:
        return dict(backlog)
    rest = max(limit - len(backlog), 0)
    rest_waiting = waiting - len(backlog)
    if not rest:
        return dict.fromkeys(backlog, 1)
    shares = {key: divmod(rest * (count - 1), rest_waiting) for key, count in backlog.items()}
    taken = {key: 1 + whole for key, (whole, _) in shares.items()}
    # What rounding down left over goes to the largest remainders, one each.
    left = limit - sum(taken.values())
    for key in sorted(shares, key=lambda key: (-shares[key][1], key))[:left]:
        taken[key] += 1
    return taken
