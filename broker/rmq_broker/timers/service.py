"""The timer service: loads, flushes and closes the files of timed messages, and starts their delivery."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.config_file import ConfigFile
from rmq_remoting.message_properties import PROPERTY_REAL_TOPIC, find_property

from ..delivery.inner_message import read_message
from ..delivery.timer_entry import TIMER_QUEUE_ID
from ..topics.names import TIMER_TOPIC, is_revive_topic
from .rates import TimerRates
from .scans import slots_in_use
from .timed_messages import TimedMessages

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import Clocks
    from ..delivery.elsewhere import Elsewhere
    from ..delivery.message_writer import MessageWriter
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicsChanged, TopicTable
    from .intake import TimerIntake
    from .log_unit import Unit
    from .pending import DeliveredTimers, Snapshot

log = logging.getLogger("rmq.broker.timers")

# Period of the deletion of old files of the timer log.
_CLEAN_SECONDS: Final = 30.0
# Period in which waiting messages are counted by the time until they are due, and the upper bounds of the
# classes (TimerMetrics).
_COUNT_SECONDS: Final = 30.0
# Period of the rates, as of Apache's (PerfCounter.Ticks).
_RATE_SECONDS: Final = 1.0
BOUNDS_SECONDS: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
_MS: Final = 1000


class TimerService:
    """Timed messages of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        intake: TimerIntake,
        topics: TopicTable,
        store: MessageStore,
        writer: MessageWriter,
        held_from_ms: Callable[[], int | None],
        clocks: Clocks,
        elsewhere: Elsewhere,
    ) -> None:
        """`held_from_ms` returns since when, in timer time, POP has unacknowledged check points; None: none.

        Apache's broker would have to read the timer log again from that time on. `elsewhere` stores due
        messages if this broker is a replica.
        """
        self._settings = settings
        self._store = store
        self._now_ms = now_ms = clocks.now_ms
        self._held_from_ms = held_from_ms
        self.counts = intake.counts
        self.pending = intake.pending
        self.entering = intake.entering
        self.timed = TimedMessages(settings, store, intake, writer, now_ms, elsewhere)
        self._rates = TimerRates(clocks.steady_ms)
        self.counts_file = ConfigFile(settings.config_dir / "timermetrics", self.counts)
        # By upper bound in seconds: messages that are due before it and not before the next lower bound.
        self.distribution: dict[int, int] = dict.fromkeys(BOUNDS_SECONDS, 0)
        self._snapshot: Snapshot | None = None
        self._writing: asyncio.Future[None] | None = None
        self.is_delivering = False
        self._one_writer = asyncio.Lock()
        self._is_failing = False
        topics.on_change(self._topics_changed)

    # --- life ---

    def load(self) -> None:
        """Load the state that the last run left. Raises ConfigFileError, StoreError, OSError; blocks."""
        self.counts_file.load()
        newest = self.pending.load(self._store.max_phy_offset())
        self.pending.queue_offset = self._next_queue_offset(newest)
        if not self.pending.count:
            self.counts.set_waiting({})
            return
        log.info("timed messages recovered waiting=%d", self.pending.count)
        if not self._store.stopped_cleanly:
            self._count_again()

    def _count_again(self) -> None:
        """Count by topic after a crash: `timermetrics` is from some moment before it. Raises OSError."""
        pending = self.pending
        first_positions = {slot.time_ms: slot.first for slot in slots_in_use(pending.wheel, pending.read_ms)}
        weights = pending.timer_log.weights_by_topic(first_positions)
        if sum(weight.waiting for weight in weights.values()) != pending.count:
            log.info("waiting timed messages by topic are uncertain: the timer log is incomplete")
            return
        waiting: Counter[str] = Counter()
        for weight in weights.values():
            record = self._store.record_at(weight.physical_offset)
            if record is None:
                continue
            name = find_property(read_message(record).message.properties, PROPERTY_REAL_TOPIC.encode()) or b""
            topic = name.decode("utf-8", "replace")
            if topic and not is_revive_topic(topic):
                waiting[topic] += weight.waiting
        self.counts.set_waiting(waiting)

    def _next_queue_offset(self, newest: Unit | None) -> int:
        """Return the queue offset to continue at: the one after the newest entry of the timer log."""
        begin = self._store.min_offset(TIMER_TOPIC, TIMER_QUEUE_ID)
        end = self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE_ID)
        offset = self.pending.queue_offset
        record = None if newest is None else self._store.record_at(newest.physical_offset)
        if record is not None:
            stored = read_message(record)
            if stored.message.topic == TIMER_TOPIC:
                offset = max(offset, stored.queue_offset + 1)
        return min(max(offset, begin), end)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the care for the files, which a replica has, too."""
        supervisor.every("write timers", self.flush_seconds, self.flush)
        supervisor.every("clean timer log", _CLEAN_SECONDS, self.remove_old_files)
        supervisor.every("count timed messages", _COUNT_SECONDS, self.count_by_time)
        supervisor.every("rates of timed messages", _RATE_SECONDS, self.sample_rates)

    async def stop_tasks(self, supervisor: TaskSupervisor) -> None:
        """Stop writing; `close` follows when the store has been closed."""
        await supervisor.cancel("write timers")

    def start_delivering(self, supervisor: TaskSupervisor) -> None:
        """Enter messages of the queue, and deliver due ones, from the current state on."""
        if not self.pending.count:
            self.counts.set_waiting({})  # they are counted as they are entered
        self.is_delivering = True
        supervisor.every("timed messages", self.timed.pause_seconds, self.timed.deliver_due)

    async def stop_delivering(self, supervisor: TaskSupervisor) -> None:
        """Stop delivering after the message under way."""
        await supervisor.cancel("timed messages")
        self.is_delivering = False

    async def save(self) -> None:
        """Finish an interrupted slot and write the files; the log has to be flushed. Raises OSError."""
        async with self._one_writer:
            if self._writing is not None:
                await asyncio.wait([self._writing])  # a write whose task was cancelled
            await self._write(self._snapshot)
            await self.timed.finish_interrupted_slot()
            await self._write(self._take_snapshot())

    async def close(self, *, all_is_flushed: bool) -> None:
        """Write everything to disk, provided that the whole commit log is flushed. Raises OSError."""
        try:
            if all_is_flushed:
                await self.save()
            elif self._writing is not None:
                await asyncio.wait([self._writing])
        finally:
            self.pending.timer_log.close()
            await self.counts_file.close()

    # --- replication ---

    async def follow(self, delivered: DeliveredTimers) -> None:
        """Take over on a replica what its master has delivered. Raises OSError.

        The log has to be flushed as far as the master's log went at that time. A replica that acts as the
        master keeps its own state.
        """
        if self.is_delivering:
            return
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._snapshot = None  # of a time when this broker was the master
        self.entering.announced.clear()
        self._writing = asyncio.get_running_loop().run_in_executor(None, self.pending.follow, delivered)
        await asyncio.shield(self._writing)

    def follow_counts(self, content: bytes) -> None:
        """Take over a master's numbers of waiting messages (`timermetrics`). Raises BodyError."""
        self.counts.decode(content)
        self.counts_file.changed()

    # --- periodic work ---

    def flush_seconds(self) -> float:
        """Return the current period of `flush`."""
        return self._settings.timer_flush_interval_ms / 1000

    async def flush(self) -> None:
        """Write changes to disk once the commit log is flushed as far as they refer to it."""
        if self._writing is not None and not self._writing.done():
            return  # what a master has delivered
        if self._snapshot is None and self.pending.has_changed:
            self._snapshot = self._take_snapshot()
        snapshot = self._snapshot
        if snapshot is None or snapshot.commit_log_end > self._store.flushed_offset:
            return
        try:
            async with self._one_writer:
                await self._write(snapshot)
        except OSError as error:
            if not self._is_failing:
                log.error("timer files not written, retrying cause=%s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def _take_snapshot(self) -> Snapshot:
        self.counts_file.changed()
        return self.pending.snapshot(self._store.max_phy_offset(), self._held_from_ms())

    async def _write(self, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        self._writing = asyncio.get_running_loop().run_in_executor(None, self.pending.write, snapshot)
        await asyncio.shield(self._writing)
        self._writing = None
        self.pending.written(snapshot)
        self._snapshot = None

    async def remove_old_files(self) -> None:
        """Delete files of the timer log whose messages are gone. Raises OSError."""
        remove = self.pending.remove_old_files
        removed = await asyncio.get_running_loop().run_in_executor(None, remove, self._store.min_phy_offset)
        if removed:
            log.info("old files of the timer log removed files=%d", removed)

    async def count_by_time(self) -> None:
        """Count the waiting messages by the time until they are due."""
        if not self.pending.count:
            self.distribution = dict.fromkeys(BOUNDS_SECONDS, 0)
            return
        loop = asyncio.get_running_loop()
        self.distribution = await loop.run_in_executor(None, self._distribution)

    async def sample_rates(self) -> None:
        """Measure the rates of the time since the last call."""
        counts = self.counts
        self._rates.sample(counts.entered_total.total(), counts.delivered.total())

    def _distribution(self) -> dict[int, int]:
        found = dict.fromkeys(BOUNDS_SECONDS, 0)
        now_ms = self.pending.second_of(self._now_ms())
        for slot in slots_in_use(self.pending.wheel, now_ms):
            place = bisect_right(BOUNDS_SECONDS, (slot.time_ms - now_ms) / _MS)
            if place < len(BOUNDS_SECONDS):
                found[BOUNDS_SECONDS[place]] += slot.waiting
        return found

    def _topics_changed(self, change: TopicsChanged) -> None:
        self.counts.forget_topics(change.removed)

    # --- reading; other threads may call these, too ---

    def read_behind_ms(self) -> int:
        """Return for how long the next slot to deliver has been due."""
        return max(0, self._now_ms() - self.pending.read_ms - self.pending.wheel.precision_ms)

    def runtime_info(self) -> dict[str, str]:
        """Return the figures for admin tools (Apache's AdminBrokerProcessor.prepareRuntimeInfo)."""
        return {
            "timerReadBehind": str(self.read_behind_ms() // _MS),
            "timerOffsetBehind": str(self.entering.behind),
            "timerCongestNum": str(self.pending.count),
            "timerEnqueueTps": f"{self._rates.entered_per_second:.1f}",
            "timerDequeueTps": f"{self._rates.delivered_per_second:.1f}",
        }
