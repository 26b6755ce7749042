"""Offsets of a stream: what the driver asks the cluster at every trigger to find the next batch.

The checkpoint is the source of truth. A queue enters it with the offset where its reading begins, and stays
in it. While a broker is down, its queues stand still and the others go on. The query fails if a queue is
unreachable for too long, or is truncated below an offset that was read (or logs a warning, with
failOnDataLoss=false).
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

log = logging.getLogger(__name__)

# A master that has just been started may briefly report fewer messages than it holds.
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
        """`clock`: seconds of a monotonic clock. `pause`: waits for a number of seconds."""
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
        """Return where a query without a checkpoint begins. Raises OptionError, SourceUnavailable,
        ClientError.
        """
        options = self._options
        queues = selected_queues(self._cluster, options)
        return resolve(self._cluster, queues, options.starting(Mode.STREAM), Anchor.LATEST, options.group)

    def drain(self) -> None:
        """Fix the end of the query to the messages stored by now. Raises SourceUnavailable, ClientError."""
        self._target = self._cluster.newest(selected_queues_with_route(self._cluster, self._options))
        self._target_is_whole = False

    def latest(self, start: QueueOffsets, *, all_available: bool) -> QueueOffsets:
        """Return where the batch that begins at `start` ends; `start` if there is nothing for a batch.

        Offsets before `start` have been processed: they are committed to the consumer group, if the option
        asks for it. Raises DataLoss, SourceUnavailable, ClientError.
        """
        self.commit(start)
        newest = self.newest = self._newest(start)
        end = self._rate_limiter.end_of_batch(
            start, newest, all_available=all_available, draining=self._target is not None
        )
        appeared = [queue for queue in newest if queue not in start]
        if appeared:
            log.info("new queues found, reading them from now on queues=%s", listed(appeared))
            end = end.merged(self._cluster.oldest(appeared))
        return end

    def newest_or_last(self) -> QueueOffsets:
        """Return the newest offsets, for versions of PySpark that do not pass the start of a batch.

        A queue whose broker is down keeps its last known offset. In the first call no such offset is known,
        so all brokers have to answer. Raises SourceUnavailable, ClientError.
        """
        if not self.newest:
            self.newest = self._cluster.newest(selected_queues(self._cluster, self._options))
            return self.newest
        newest = self._newest(self.newest)
        behind = self.newest.ahead_of(newest)
        self.newest = self.newest.merged({queue: at for queue, at in newest.items() if queue not in behind})
        return self.newest

    def begin(self, start: QueueOffsets, end: QueueOffsets) -> QueueOffsets:
        """Return the start of a batch whose end came from `newest_or_last`, which did not know the start.

        A queue that only `end` has is new and is read from its oldest message, as with `latest`. Raises
        DataLoss, SourceUnavailable, ClientError.
        """
        truncated = start.ahead_of(end)
        self._fail_on_truncated(truncated, start, end)
        if truncated:
            log.warning(
                "queues truncated below offsets already read, continuing at their end queues=%s",
                listed(truncated),
            )
        oldest = self._cluster.oldest(queue for queue in end if queue not in start)
        return start.merged(
            {queue: end[queue] for queue in truncated}
            | {queue: min(at, end[queue]) for queue, at in oldest.items()}
        )

    def commit(self, offsets: QueueOffsets) -> None:
        """Commit the query's offsets to the consumer group. The next trigger retries failed commits."""
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
                "commit of offsets failed, retrying at the next trigger queues=%d first=%s cause=%s",
                len(failed),
                queue,
                error,
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
        """Return the target with all queues of the query, so that a drain reads all of them before it ends.

        Wait for queues that are unreachable, or truncated below an offset that was read. Raises DataLoss,
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
                pause = backoff.next_pause(f"queues unreachable or truncated: {listed(behind)}")
            except SourceUnavailable:
                self._fail_on_absent(absent, failed)
                self._fail_on_truncated(truncated, start, known)
                log.warning("drain goes on without unreachable queues queues=%s", listed(behind))
                break
            self._pause(pause)
        return target

    def _check_absent(self, absent: list[QueueKey], failed: Mapping[QueueKey, Exception]) -> None:
        """Raise SourceUnavailable for queues that were unreachable for too long."""
        overdue = self._absent.overdue(absent, "queues unreachable, not read until they are back")
        self._fail_on_absent(overdue, failed)

    def _fail_on_absent(self, overdue: Sequence[QueueKey], failed: Mapping[QueueKey, Exception]) -> None:
        unanswered = [queue for queue in overdue if queue in failed]
        if unanswered:
            raise SourceUnavailable(
                f"brokers did not answer within brokerTimeout: {listed(unanswered)}: {failed[unanswered[0]]}"
            )
        if overdue and self._options.fail_on_data_loss:
            raise SourceUnavailable(
                f"no broker has offered these queues for longer than brokerTimeout: {listed(overdue)}; "
                "if they are gone for good, set failOnDataLoss to false"
            )

    def _check_truncated(self, start: QueueOffsets, newest: QueueOffsets) -> None:
        """Raise DataLoss for queues truncated below offsets that were read.

        A replica that answers for its master may lag for a while; a master does not. A master is believed at
        once: when asked again later, the queue may have grown past the offset that was read.
        """
        truncated = start.ahead_of(newest)
        overdue = self._truncated.overdue(truncated, "queues end below offsets already read")
        self._fail_on_truncated(overdue, start, newest)
        self._fail_on_truncated_master(truncated, start)

    def _fail_on_truncated_master(self, truncated: Iterable[QueueKey], start: QueueOffsets) -> None:
        """Raise DataLoss for queues whose masters still report a truncated queue after a grace period."""
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
                f"{queue} was read up to {start[queue]} and ends at {newest[queue]}" for queue in overdue
            )
            raise DataLoss(
                f"queues were deleted and created again, or restored from an older state: {wrong}; "
                "set failOnDataLoss to false to wait until they have grown again"
            )


class _ConditionTimers:
    """Tracks for how long each queue has been in an abnormal condition that may end by itself."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float]) -> None:
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._since: dict[QueueKey, float] = {}

    def overdue(self, queues: Iterable[QueueKey], text: str) -> list[QueueKey]:
        """Return the queues whose condition has outlasted the timeout; log queues that enter it.

        `queues`: all queues in that condition now. `text`: the beginning of the log line.
        """
        now = self._clock()
        known, self._since = self._since, {}
        for queue in queues:
            self._since[queue] = known.get(queue, now)
        new = [queue for queue in self._since if queue not in known]
        if new:
            log.warning("%s queues=%s", text, listed(new))
        return [queue for queue, since in self._since.items() if now - since > self._timeout_seconds]
