"""How far the master has delivered delayed and timed messages.

A replica delivers none. As the master it continues where the master was: no message is lost, and those are
redelivered that were delivered after the last answer that was applied.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.bodies.timer import TimerMetricsSerializeWrapper
from rmq_remoting.codes import RequestCode

from ...timers.checkpoint import TimerCheckpoint
from ...timers.pending import DeliveredTimers
from .master import MetadataError
from .part import require_member

if TYPE_CHECKING:
    from ...delivery.service import DeliveryService
    from ...timers.service import TimerService
    from .log_barrier import LogBarrier
    from .master import Master

# Apache's slave asks for the timer's checkpoint every 3 s (BrokerController.initializeBrokerScheduledTasks).
_PERIOD_SECONDS: Final = 3.0
_APACHES_PRECISION_MS: Final = 1000


class DelayPart:
    """Takes over the offsets of the delay levels (SlaveSynchronize.syncDelayOffset)."""

    name = "delay offsets"
    period_seconds = _PERIOD_SECONDS
    is_versioned = False

    def __init__(self, delivery: DeliveryService, barrier: LogBarrier) -> None:
        self._delivery = delivery
        self._barrier = barrier
        self._applied: DelayOffsetSerializeWrapper | None = None

    async def sync(self, master: Master) -> None:
        """Ask for the master's offsets. Raises RequestError, MetadataError, BodyError."""
        answer = DelayOffsetSerializeWrapper.decode(await master.ask(RequestCode.GET_ALL_DELAY_OFFSET))
        require_member(answer, "offset_table")
        if answer != self._applied:
            self._barrier.hold(self.name, partial(self._apply, answer))

    def master_changed(self) -> None:
        """Take over the offsets of the new master, whatever those before were."""
        self._applied = None

    async def _apply(self, answer: DelayOffsetSerializeWrapper) -> None:
        self._delivery.follow_offsets(answer)
        self._applied = answer


class TimerPart:
    """Takes over which timed messages are delivered (SlaveSynchronize.syncTimerCheckPoint).

    A checkpoint has the time up to which slots are delivered, and the offset up to which the queue is
    entered in slots. An overdue message is entered in the next slot, later than it is due. Therefore a
    checkpoint counts only once a later one shows that these slots are over, too.
    """

    name = "timer checkpoint"
    period_seconds = _PERIOD_SECONDS
    is_versioned = False

    def __init__(self, timers: TimerService, barrier: LogBarrier) -> None:
        self._timers = timers
        self._barrier = barrier
        self._candidate: TimerCheckpoint | None = None
        self._highest_ms = 0  # the highest read time up to the candidate's
        self._seen_ms = 0  # the highest read time of all answers

    async def sync(self, master: Master) -> None:
        """Ask for the master's checkpoint. Raises RequestError, MetadataError."""
        body = await master.ask(RequestCode.GET_TIMER_CHECK_POINT)
        try:
            now = TimerCheckpoint.decode(body)
        except ValueError as error:
            raise MetadataError(f"the timer checkpoint cannot be used: {error}") from error
        self._seen_ms = max(self._seen_ms, now.read_ms)
        before = self._candidate
        if before is not None:
            precision_ms = max(
                now.precision_ms, self._timers.pending.wheel.precision_ms, _APACHES_PRECISION_MS
            )
            if now.read_ms <= self._highest_ms + 2 * precision_ms:
                return
            delivered = DeliveredTimers(before.read_ms, before.queue_offset, before.handed_over_ms)
            self._barrier.hold(self.name, partial(self._timers.follow, delivered))
        self._candidate, self._highest_ms = now, self._seen_ms

    def master_changed(self) -> None:
        """Forget the checkpoint of the master before."""
        self._candidate, self._highest_ms, self._seen_ms = None, 0, 0


class TimerCountPart:
    """Takes over the numbers of waiting timed messages (SlaveSynchronize.syncTimerMetrics)."""

    name = "timer metrics"
    period_seconds = 10.0
    is_versioned = False

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers
        self._taken = b""

    async def sync(self, master: Master) -> None:
        """Take over the master's numbers. Raises RequestError, MetadataError, BodyError."""
        body = await master.ask(RequestCode.GET_TIMER_METRICS)
        if body != self._taken:
            require_member(TimerMetricsSerializeWrapper.decode(body), "timing_count")
            self._timers.follow_counts(body)
            self._taken = body

    def master_changed(self) -> None:
        """Take over the numbers of the new master, whatever those before were."""
        self._taken = b""
