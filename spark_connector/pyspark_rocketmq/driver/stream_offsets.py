"""Offsets of a stream: what the driver asks the cluster at every trigger to find the next batch.

The checkpoint is the source of truth. A queue enters it with the offset where its reading begins. While a
broker is down, its queues stand still and the others go on. A queue that no broker offers any more leaves the
checkpoint (`retirement.py`). The query fails if a queue is unreachable for too long, or if messages are lost
(or logs and counts the loss, with failOnDataLoss=false).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ..errors import DataLoss, SourceUnavailable, listed
from ..offsets import QueueKey, QueueOffsets
from ..options import Anchor, Mode, ReadOptions
from ..retries import Backoff
from ..stream_losses import LossLedger
from ..stream_position import StreamPosition
from ..tasks.partitions import ReportAddress
from ..tasks.ranges import QueueRange
from .cluster import Cluster, QueueState
from .condition_timers import ConditionTimers
from .idle_pace import IdlePace
from .loss_collector import LossCollector
from .offset_resolution import offered_queues, resolve, selected_queues
from .rate_limit import RateLimiter
from .recreation import Recreation
from .retirement import Retirement
from .task_losses import TaskLosses

log = logging.getLogger(__name__)

# A master that has just been started may briefly report fewer messages than it holds.
_MASTER_GRACE_SECONDS: Final = 5.0
_MASTER_PAUSE_SECONDS: Final = 1.0

Left = dict[QueueKey, int | None]
"""Queues that leave the checkpoint; for each, the offset where it continues if brokers offer it again."""


class StreamOffsets:
    """The offsets of one streaming query. Lives on the driver, as long as the query."""

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        open_collector: Callable[[str, str], LossCollector | None] = LossCollector.open,
    ) -> None:
        """`clock`: seconds of a monotonic clock. `pause`: waits for a number of seconds."""
        self._cluster = cluster
        self._options = options
        self._timeout_seconds = options.broker_timeout_ms / 1000
        self._rate_limiter = RateLimiter(options.trigger_limits, clock)
        self._pace = IdlePace(clock)
        self._retirement = Retirement(cluster, options, clock)
        self._recreation = Recreation(cluster, clock)
        self._unreachable = ConditionTimers("queues unreachable, not read until they are back", clock)
        self._not_offered = ConditionTimers("queues not offered, not read until they are back", clock)
        self._truncated = ConditionTimers("queues end below offsets already read", clock)
        self._target: QueueOffsets | None = None
        self._target_is_whole = False
        self._pause = pause
        self._clock = clock
        self._committed: dict[QueueKey, int] = {}
        self._last_ends: dict[QueueKey, int] = {}
        self._told_losses = 0
        self.newest = QueueOffsets()
        self.losses = LossLedger()
        self._task_losses = TaskLosses(
            cluster,
            lambda: open_collector(options.loss_reports, options.name_servers),
            self._lost,
        )

    def initial(self) -> QueueOffsets:
        """Return where a query without a checkpoint begins. Raises OptionError, StaticTopic,
        SourceUnavailable, ClientError.
        """
        options = self._options
        queues = selected_queues(self._cluster, options)
        return resolve(self._cluster, queues, options.starting(Mode.STREAM), Anchor.LATEST, options.group)

    def drain(self) -> None:
        """Fix the end of the query to the messages stored by now.

        The first `latest` adds the queues whose brokers do not answer now. Raises StaticTopic,
        SourceUnavailable, ClientError.
        """
        offered = offered_queues(self._cluster, self._options, fresh=True)
        states, _ = self._cluster.states(offered.queues)
        self._target = QueueOffsets({queue: state.newest for queue, state in states.items()})
        self._target_is_whole = False

    def latest(self, at: StreamPosition, *, all_available: bool) -> StreamPosition:
        """Return where the batch that begins at `at` ends; `at` if there is nothing for a batch.

        Offsets before `at` have been processed: they are committed to the consumer group, if the option asks
        for it. Raises DataLoss, StaticTopic, SourceUnavailable, ClientError.
        """
        start = at.offsets
        self.commit(start)
        if not self._options.fail_on_data_loss:
            self._task_losses.settle(start)
        newest, left = self._newest(start)
        self.newest = newest
        end = self._rate_limiter.end_of_batch(
            start, newest, all_available=all_available, draining=self._target is not None
        )
        entering = self._entering(at, newest)
        lost, self._told_losses = self.losses.messages - self._told_losses, self.losses.messages
        return at.moved(end, left, entering, lost)

    def planned(self, ranges: Iterable[QueueRange]) -> ReportAddress | None:
        """Note the ranges of a batch. Return where its tasks report their losses; None for no reports."""
        if self._options.fail_on_data_loss:
            return None
        return self._task_losses.planned(ranges)

    def close(self) -> None:
        """Stop listening for the reports of tasks."""
        self._task_losses.close()

    def newest_or_last(self) -> QueueOffsets:
        """Return the newest offsets, for versions of PySpark that do not pass the start of a batch.

        A queue whose broker is down keeps its last known offset. In the first call no such offset is known,
        so all brokers have to answer. Raises StaticTopic, SourceUnavailable, ClientError.
        """
        if not self.newest:
            self.newest = self._cluster.newest(selected_queues(self._cluster, self._options))
            return self.newest
        newest, left = self._newest(self.newest)
        behind = self.newest.ahead_of(newest)
        known = self.newest.only(lambda queue: queue not in left)
        self.newest = known.merged({queue: at for queue, at in newest.items() if queue not in behind})
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

    def _entering(self, at: StreamPosition, newest: QueueOffsets) -> QueueOffsets:
        """Return where the queues begin that enter the query: at their oldest message, or where they left."""
        appeared = [queue for queue in newest if queue not in at.offsets]
        if not appeared:
            return QueueOffsets()
        back = at.retired.only(appeared.__contains__)
        if back:
            log.warning("retired queues are back, reading continues where it stopped queues=%s", listed(back))
        new = [queue for queue in appeared if queue not in back]
        if new:
            log.info("new queues found, reading them from now on queues=%s", listed(new))
        return self._cluster.oldest(new).merged(back)

    # --- what the brokers say now ---

    def _newest(self, start: QueueOffsets) -> tuple[QueueOffsets, Left]:
        """Return the newest offsets, and the queues that leave the query."""
        if self._target is not None:
            left: Left = {}
            if not self._target_is_whole:
                self._target, left = self._whole_target(self._target, start)
                self._target_is_whole = True
            return self._target, left
        if not self._pace.is_due(start):
            return self.newest, {}
        newest, left = self._polled(start)
        self._pace.asked(start, newest)
        return newest, left

    def _polled(self, start: QueueOffsets) -> tuple[QueueOffsets, Left]:
        offered = offered_queues(self._cluster, self._options)
        states, failed = self._cluster.states(offered.queues)
        newest = QueueOffsets({queue: state.newest for queue, state in states.items()})
        left = self._recreated(start, states)
        absent = [queue for queue in start if queue not in offered.queues]
        # A broker that is back must be found before its queues are due to leave, not with the next refresh.
        self._cluster.doubt({queue.topic for queue in absent})
        left |= self._retired(start, self._retirement.due(absent, offered))
        kept = start.only(lambda queue: queue not in left)
        self._check_unreachable([queue for queue in kept if queue not in newest], absent, failed)
        self._check_truncated(kept, newest)
        self._record_expired(kept, states)
        self._last_ends.update(newest)
        return newest, left

    def _whole_target(self, target: QueueOffsets, start: QueueOffsets) -> tuple[QueueOffsets, Left]:
        """Return the target with all queues of the query, so that a drain reads all of them before it ends.

        Queues that no broker offers leave the query at once. Wait for queues that are unreachable, or
        truncated below an offset that was read. Raises DataLoss, SourceUnavailable.
        """
        backoff = Backoff(self._timeout_seconds, self._clock)
        left: Left = {}
        while behind := [
            queue for queue in start if queue not in left and target.get(queue, -1) < start[queue]
        ]:
            offered = offered_queues(self._cluster, self._options, fresh=True)
            absent = [queue for queue in behind if queue not in offered.queues]
            left |= self._retired(start, self._retirement.due(absent, offered, at_once=True))
            states, failed = self._cluster.states([queue for queue in behind if queue in offered.queues])
            known = QueueOffsets({queue: state.newest for queue, state in states.items()})
            target = target.merged(known)
            missing = [queue for queue in behind if queue not in known and queue not in left]
            truncated = start.ahead_of(known)
            if not (missing or truncated):
                continue
            self._fail_on_truncated_master(truncated, start)
            try:
                pause = backoff.next_pause(f"queues unreachable or truncated: {listed(behind)}")
            except SourceUnavailable:
                self._fail_on_unreachable(missing, failed)
                self._fail_on_truncated(truncated, start, known)
                log.warning("drain goes on without unreachable queues queues=%s", listed(behind))
                break
            self._pause(pause)
        return target, left

    # --- queues that leave, and losses ---

    def _retired(self, start: QueueOffsets, leaving: Mapping[QueueKey, bool]) -> Left:
        """Return queues that leave, with their offsets if brokers may offer them again.

        Raises DataLoss for unread messages, unless failOnDataLoss is false.
        """
        unread = {queue: end for queue in leaving if (end := self._last_ends.get(queue, 0)) > start[queue]}
        if unread and self._options.fail_on_data_loss:
            wrong = listed(
                f"{queue} from offset {start[queue]} to {end - 1}" for queue, end in unread.items()
            )
            raise DataLoss(
                f"no broker offers these queues any more, and they have unread messages: {wrong}. "
                "Start their brokers, raise readQueueNums or permit reading again; to go on without these "
                "messages, set failOnDataLoss to false"
            )
        for queue, end in unread.items():
            self._lost(queue, start[queue], end, "no broker offers the queue any more")
        if leaving:
            log.warning("queues left the query, no broker offers them any more queues=%s", listed(leaving))
        return {queue: start[queue] if may_return else None for queue, may_return in leaving.items()}

    def _recreated(self, start: QueueOffsets, states: Mapping[QueueKey, QueueState]) -> Left:
        """Return queues that were recreated: they leave, and enter again with their oldest message.

        Raises DataLoss, unless failOnDataLoss is false.
        """
        known = {queue: state for queue, state in states.items() if queue in start}
        found = [queue for queue in self._recreation.recreated(known) if start[queue] > 0]
        if found and self._options.fail_on_data_loss:
            raise DataLoss(
                f"topics were deleted and created again while they were read: {listed(found)}. Set "
                "failOnDataLoss to false to read the new queues from their oldest message"
            )
        for queue in found:
            self._lost(queue, start[queue], self._last_ends.get(queue, 0), "the topic was deleted")
            self.losses.restart(queue)
        if found:
            log.warning("queues recreated, reading them from their oldest message queues=%s", listed(found))
        return dict.fromkeys(found)

    def _record_expired(self, start: QueueOffsets, states: Mapping[QueueKey, QueueState]) -> None:
        """Count messages that expired before a batch could read them. With failOnDataLoss, a task fails."""
        if self._options.fail_on_data_loss:
            return
        for queue, state in states.items():
            begin = start.get(queue)
            if begin is not None and begin < state.oldest <= state.newest:
                self._lost(queue, begin, state.oldest, "the messages have expired")

    def _lost(self, queue: QueueKey, begin: int, end: int, cause: str) -> None:
        if messages := self.losses.record(queue, begin, end):
            log.warning(
                "messages lost queue=%s begin=%d end=%d messages=%d cause=%s",
                queue,
                begin,
                end,
                messages,
                cause,
            )

    def _check_unreachable(
        self, missing: list[QueueKey], absent: Collection[QueueKey], failed: Mapping[QueueKey, Exception]
    ) -> None:
        """Raise SourceUnavailable for queues that were unreachable for too long.

        The time of an absent queue begins with its absence. A stopping broker first does not answer, and its
        queues must be able to leave before they count as unreachable.
        """
        seconds = {
            **self._unreachable.update([queue for queue in missing if queue not in absent]),
            **self._not_offered.update([queue for queue in missing if queue in absent]),
        }
        self._fail_on_unreachable(
            [queue for queue in missing if seconds[queue] > self._timeout_seconds], failed
        )

    def _fail_on_unreachable(self, overdue: Sequence[QueueKey], failed: Mapping[QueueKey, Exception]) -> None:
        unanswered = [queue for queue in overdue if queue in failed]
        if unanswered:
            raise SourceUnavailable(
                f"brokers did not answer within brokerTimeout: {listed(unanswered)}: {failed[unanswered[0]]}"
            )
        if overdue and self._options.fail_on_data_loss:
            raise SourceUnavailable(
                f"no broker has offered these queues for longer than brokerTimeout: {listed(overdue)}; "
                "if they are gone for good, set retiredQueues to auto (topics of a pattern, and topics that "
                "have other queues), or failOnDataLoss to false"
            )

    def _check_truncated(self, start: QueueOffsets, newest: QueueOffsets) -> None:
        """Raise DataLoss for queues truncated below offsets that were read.

        A replica that answers for its master may lag for a while; a master does not. A master is believed at
        once: when asked again later, the queue may have grown past the offset that was read.
        """
        truncated = start.ahead_of(newest)
        seconds = self._truncated.update(truncated)
        overdue = [queue for queue in truncated if seconds[queue] > self._timeout_seconds]
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
            states, _ = self._cluster.states(self._cluster.served_by_master(left))
            known = QueueOffsets({queue: state.newest for queue, state in states.items()})
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
