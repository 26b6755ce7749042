"""Where a stream is and may go: what its driver asks the cluster at every trigger.

The checkpoint is the truth. A queue enters it with the offset where its reading begins, and stays in it:
while its broker is away, it stands still, and the others go on. Where that lasts too long, or where a queue
holds less than has been read of it, the query fails (or warns, by failOnDataLoss).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ..errors import DataLoss, SourceUnavailable, listed
from ..offsets import QueueKey, QueueOffsets
from ..options import Anchor, Mode, ReadOptions
from ..retries import Backoff
from .cluster import Cluster
from .offset_resolution import resolve, selected_queues, selected_queues_with_route
from .rate_limit import RateLimiter

log = logging.getLogger("rmq.spark.stream")

# A master that has just been started may know less than it holds, for a moment.
_MASTER_GRACE_SECONDS: Final = 5.0
_MASTER_PAUSE_SECONDS: Final = 1.0


class StreamOffsets:
    """The offsets of one streaming query. Lives on the driver, as long as the query."""

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock`: seconds that only grow; `pause` waits for so many."""
        self._cluster = cluster
        self._options = options
        self._rate_limiter = RateLimiter(options.trigger_limits, clock)
        self._absent = _ConditionTimers(options.broker_timeout_ms / 1000, clock)
        self._truncated = _ConditionTimers(options.broker_timeout_ms / 1000, clock)
        self._target: QueueOffsets | None = None
        self._target_is_whole = False
        self._pause = pause
        self._clock = clock
        self._committed: dict[QueueKey, int] = {}
        self.newest = QueueOffsets()

    def initial(self) -> QueueOffsets:
        """Where a query without a checkpoint begins. Raises OptionError, SourceUnavailable, ClientError."""
        options = self._options
        queues = selected_queues(self._cluster, options)
        return resolve(self._cluster, queues, options.starting(Mode.STREAM), Anchor.LATEST, options.group)

    def drain(self) -> None:
        """From now on nothing is read that is not there yet. Raises SourceUnavailable, ClientError."""
        self._target = self._cluster.newest(selected_queues_with_route(self._cluster, self._options))
        self._target_is_whole = False

    def latest(self, start: QueueOffsets, *, all_available: bool) -> QueueOffsets:
        """Where the batch that begins at `start` ends; `start` where there is nothing for one.

        What came before `start` has been processed: a consumer group is told so, where that is wished.
        Raises DataLoss, SourceUnavailable, ClientError.
        """
        self.commit(start)
        newest = self.newest = self._newest(start)
        end = self._rate_limiter.end_of_batch(
            start, newest, all_available=all_available, draining=self._target is not None
        )
        appeared = [queue for queue in newest if queue not in start]
        if appeared:
            log.info("from now on these queues are read, too: %s", listed(appeared))
            end = end.merged(self._cluster.oldest(appeared))
        return end

    def newest_or_last(self) -> QueueOffsets:
        """Where the queues end, for who cannot tell where a batch starts; where a broker is away, as it was.

        The first time nothing is known that could stand in for a broker: all have to answer. Raises
        SourceUnavailable, ClientError.
        """
        if not self.newest:
            self.newest = self._cluster.newest(selected_queues(self._cluster, self._options))
            return self.newest
        newest = self._newest(self.newest)
        behind = self.newest.ahead_of(newest)
        self.newest = self.newest.merged({queue: at for queue, at in newest.items() if queue not in behind})
        return self.newest

    def begin(self, start: QueueOffsets, end: QueueOffsets) -> QueueOffsets:
        """Where a batch begins whose end is of `newest_or_last`, which knew nothing of its start.

        Queues that only `end` has have appeared, and are read from their oldest message on: with `latest`,
        they enter with that offset. Raises DataLoss, SourceUnavailable, ClientError.
        """
        truncated = start.ahead_of(end)
        self._fail_on_truncated(truncated, start, end)
        if truncated:
            log.warning(
                "these queues hold less than has been read of them, which goes on there: %s",
                listed(truncated),
            )
        oldest = self._cluster.oldest(queue for queue in end if queue not in start)
        return start.merged(
            {queue: end[queue] for queue in truncated}
            | {queue: min(at, end[queue]) for queue, at in oldest.items()}
        )

    def commit(self, offsets: QueueOffsets) -> None:
        """Tell the consumer group where the query is; what fails is tried again with the next trigger."""
        if not self._options.commit_offsets_to_group:
            return
        changed = {queue: at for queue, at in offsets.items() if self._committed.get(queue) != at}
        if not changed:
            return
        failed = self._cluster.commit(self._options.group, changed)
        self._committed.update({queue: at for queue, at in changed.items() if queue not in failed})
        if failed:
            queue, error = next(iter(failed.items()))
            log.warning(
                "the offsets of %d queues could not be committed for now: %s: %s", len(failed), queue, error
            )

    def _newest(self, start: QueueOffsets) -> QueueOffsets:
        if self._target is not None:
            if not self._target_is_whole:
                self._target = self._whole_target(self._target, start)
                self._target_is_whole = True
            return self._target
        queues = selected_queues_with_route(self._cluster, self._options)
        newest, failed = self._cluster.newest_reachable(queues)
        self._check_absent([queue for queue in start if queue not in newest], failed)
        self._check_truncated(start, newest)
        return newest

    def _whole_target(self, target: QueueOffsets, start: QueueOffsets) -> QueueOffsets:
        """The target with all queues of the query: a drain that ends must not have passed over any.

        Those that are not there, or hold less than was read of them, are waited for. Raises DataLoss,
        SourceUnavailable.
        """
        backoff = Backoff(self._options.broker_timeout_ms / 1000, self._clock)
        while behind := [queue for queue in start if target.get(queue, -1) < start[queue]]:
            there = set(selected_queues_with_route(self._cluster, self._options))
            known, failed = self._cluster.newest_reachable([queue for queue in behind if queue in there])
            target = target.merged(known)
            absent = [queue for queue in behind if queue not in known]
            truncated = start.ahead_of(known)
            if not (absent or truncated):
                continue
            self._fail_on_truncated_master(truncated, start)
            try:
                pause = backoff.next_pause(f"not there, or with less than was read of it: {listed(behind)}")
            except SourceUnavailable:
                self._fail_on_absent(absent, failed)
                self._fail_on_truncated(truncated, start, known)
                log.warning("of these queues nothing is read now: %s", listed(behind))
                break
            self._pause(pause)
        return target

    def _check_absent(self, absent: list[QueueKey], failed: Mapping[QueueKey, Exception]) -> None:
        """Raises SourceUnavailable for queues that have not been there for too long."""
        overdue = self._absent.overdue(absent, "these queues are not there and stand still")
        self._fail_on_absent(overdue, failed)

    def _fail_on_absent(self, overdue: Sequence[QueueKey], failed: Mapping[QueueKey, Exception]) -> None:
        unanswered = [queue for queue in overdue if queue in failed]
        if unanswered:
            raise SourceUnavailable(
                f"brokers do not answer for longer than brokerTimeout: {listed(unanswered)}: "
                f"{failed[unanswered[0]]}"
            )
        if overdue and self._options.fail_on_data_loss:
            raise SourceUnavailable(
                f"no broker offers these queues any more, for longer than brokerTimeout: {listed(overdue)}; "
                "where they are gone for good, set failOnDataLoss to false"
            )

    def _check_truncated(self, start: QueueOffsets, newest: QueueOffsets) -> None:
        """Raises DataLoss for queues that hold less than was read of them.

        A replica that answers for its master may be behind, for a while; a master is not. It is believed at
        once, as the queue may have grown past what was read when it is looked at again.
        """
        truncated = start.ahead_of(newest)
        overdue = self._truncated.overdue(truncated, "these queues hold less than has been read of them")
        self._fail_on_truncated(overdue, start, newest)
        self._fail_on_truncated_master(truncated, start)

    def _fail_on_truncated_master(self, truncated: Iterable[QueueKey], start: QueueOffsets) -> None:
        """Raises DataLoss for queues whose masters go on saying for a moment that they hold less."""
        if not self._options.fail_on_data_loss:
            return
        left = self._cluster.served_by_master(truncated) if truncated else []
        since = self._clock()
        known = QueueOffsets()
        while left and self._clock() - since < _MASTER_GRACE_SECONDS:
            self._pause(_MASTER_PAUSE_SECONDS)
            known, _ = self._cluster.newest_reachable(self._cluster.served_by_master(left))
            left = list(start.ahead_of(known))
        self._fail_on_truncated(left, start, known)

    def _fail_on_truncated(
        self, overdue: Sequence[QueueKey], start: QueueOffsets, newest: QueueOffsets
    ) -> None:
        if overdue and self._options.fail_on_data_loss:
            wrong = listed(
                f"{queue} was read to {start[queue]} and ends at {newest[queue]}" for queue in overdue
            )
            raise DataLoss(
                f"queues have been made anew, or were restored from an older state: {wrong}; "
                "set failOnDataLoss to false to wait until they have grown again"
            )


class _ConditionTimers:
    """Since when queues have been in a trouble that may go over."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._since: dict[QueueKey, float] = {}

    def overdue(self, queues: Iterable[QueueKey], text: str) -> list[QueueKey]:
        """Those for which it has lasted too long, of all that are in it now; new ones are told of."""
        now = self._clock()
        known, self._since = self._since, {}
        for queue in queues:
            self._since[queue] = known.get(queue, now)
        new = [queue for queue in self._since if queue not in known]
        if new:
            log.warning("%s for now: %s", text, listed(new))
        return [queue for queue, since in self._since.items() if now - since > self._timeout_seconds]
