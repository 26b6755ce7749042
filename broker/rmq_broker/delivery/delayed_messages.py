"""Deliver delayed messages, which wait in SCHEDULE_TOPIC_XXXX, in one queue per delay level.

All messages of a level wait equally long, so the messages of a queue become due in the order of the queue.
A due message is stored again in its original queue (Apache RocketMQ 5.3.3, ScheduleMessageService).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.tasks import finished

from ..store.api import (
    PLACEHOLDER_SIZE,
    QUEUE_ENTRY,
    GetStatus,
    MessageRejected,
    StoreUnavailable,
    level_of_queue,
    parse_record,
)
from ..topics.names import SCHEDULE_TOPIC
from .elsewhere import ELSEWHERE_RETRY_MS, Elsewhere
from .inner_message import InnerMessage, read_message
from .level_queue import ClockStep, DelayedEntry, LevelQueue
from .original_queue import restore_original_queue
from .stall_log import StallLog

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import GetResult, MessageStore
    from .delay_offsets import DelayOffsets
    from .message_writer import MessageWriter

log = logging.getLogger("rmq.broker.delayed")

# The messages of one level that are delivered before the event loop runs other work.
_SLICE: Final = 32
_SLICE_BYTES: Final = 1 << 20
# The pause between two deliveries. The minimum lets messages that become due within it be delivered together.
_SHORTEST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.1
# The longest pause while no message waits. A new message is found within half of the shortest delay.
_IDLE_SECONDS: Final = 0.5
# The pause after a failed read.
_READ_RETRY_MS: Final = 10_000
# The consumer group that Apache's broker counts these deliveries for (MixAll.SCHEDULE_CONSUMER_GROUP).
_GROUP: Final = "SCHEDULE_CONSUMER"
# If the clock advances by more between two deliveries it was set forward, possibly back to the right time.
_FORWARD_MS: Final = 10_000
LATENESS_BOUNDS_MS: Final = (10, 20, 50, 100, 200, 500, 1000, 5000, 60_000)


class DelayedMessages:
    """Delivers due messages; belongs to the loop's thread and yields to other work after each slice."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        offsets: DelayOffsets,
        statistics: BrokerStatistics,
        now_ms: ClockMs,
        elsewhere: Elsewhere,
    ) -> None:
        """`elsewhere` stores the messages if this broker is a replica."""
        self.delivered = 0
        self.lost = 0  # messages that were skipped: unreadable, or without a valid original queue
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._statistics = statistics
        self._now_ms = now_ms
        self._elsewhere = elsewhere
        self._levels: dict[int, LevelQueue] = {}
        self._seen_ms = 0  # the clock when it was last checked
        self._stall_log = StallLog(log, "delayed messages")

    # --- life ---

    def correct_offsets(self) -> None:
        """Correct offsets that lie outside their queues; a crash may have cut off the end of a queue."""
        for level in self._all_levels():
            self._next_offset(level)

    async def deliver_due(self) -> None:
        """Deliver all due messages, one slice of each level in turn; to be called every `pause_seconds`."""
        is_busy = True
        while is_busy:
            is_busy = False
            self._check_clock()
            for level in self._all_levels():
                if await self._guarded_slice(level):
                    is_busy = True
                    await asyncio.sleep(0)

    def pause_seconds(self) -> float:
        """Return the pause until the next delivery: short if a message becomes due soon."""
        now_ms, seconds = self._now_ms(), self._idle_seconds()
        for level in self._levels.values():
            offset = self._offsets.get(level.level)
            if offset < level.queue.max_offset:
                seconds = min(seconds, _LONGEST_SECONDS)
            if level.head_offset == offset and level.head_due_ms > now_ms:
                seconds = min(seconds, (level.head_due_ms - now_ms) / 1000)
        return max(seconds, _SHORTEST_SECONDS)

    def _idle_seconds(self) -> float:
        levels = self._writer.levels
        shortest_ms = min(map(levels.delay_ms, range(1, levels.highest + 1)), default=0)
        return max(_LONGEST_SECONDS, min(_IDLE_SECONDS, shortest_ms / 2000))

    # --- queries, also from other threads ---

    def positions(self) -> dict[int, tuple[int, int]]:
        """Return, by level, the next offset to be delivered and the end of the queue."""
        queues = sorted(self._store.queues.of_topic(SCHEDULE_TOPIC).copy().items())
        levels = [(level_of_queue(queue_id), queue.max_offset) for queue_id, queue in queues]
        return {level: (self._offsets.get(level), end) for level, end in levels}

    def waiting(self) -> dict[int, int]:
        """Return the number of waiting messages by level."""
        return {level: max(0, end - offset) for level, (offset, end) in self.positions().items()}

    def overdue_ms(self) -> int:
        """Return for how many ms the most overdue message has been due; 0 without a due message."""
        due = [
            level.head_due_ms
            for level in self._levels.copy().values()
            if level.head_offset == self._offsets.get(level.level) < level.queue.max_offset
        ]
        return max(0, self._now_ms() - min(due)) if due else 0

    # --- a level ---

    def _all_levels(self) -> list[LevelQueue]:
        """Return every level that has a queue, including levels that are no longer in the settings."""
        queues = self._store.queues.of_topic(SCHEDULE_TOPIC)
        for queue_id, queue in queues.items():
            known = self._levels.get(queue_id)
            if known is None or known.queue is not queue:
                self._levels[queue_id] = LevelQueue(level_of_queue(queue_id), queue)
        return [self._levels[queue_id] for queue_id in sorted(queues)]

    def _check_clock(self) -> int:
        """Return the time in ms, and note if the clock has been set since the last call."""
        before_ms, now_ms, levels = self._seen_ms, self._now_ms(), self._writer.levels
        self._seen_ms = now_ms
        for level in self._all_levels():
            end = level.queue.max_offset
            if now_ms < before_ms and level.level <= levels.highest:
                # These entries were stored between the last check and the step. Entries stored after the
                # step have an earlier due time.
                from_ms = before_ms + levels.delay_ms(level.level)
                level.steps.append(ClockStep(before_ms - now_ms, level.seen_end, end, from_ms))
                level.head_offset = -1
            elif level.steps and now_ms - before_ms > _FORWARD_MS:
                level.steps.clear()
                level.head_offset = -1
            level.seen_end = end
        return now_ms

    async def _guarded_slice(self, level: LevelQueue) -> bool:
        if 0 < level.retry_at_ms - self._now_ms() <= _READ_RETRY_MS:
            return False
        try:
            return await self._slice(level)
        except OSError as error:
            level.retry_at_ms = self._now_ms() + _READ_RETRY_MS
            log.error(
                "reading delayed messages failed, will retry level=%d retry_ms=%d cause=%s",
                level.level,
                _READ_RETRY_MS,
                error,
            )
            return False

    async def _slice(self, level: LevelQueue) -> bool:
        """Deliver a slice of a level's messages; return whether more may be due. Raises OSError."""
        offset = self._next_offset(level)
        if offset >= level.queue.max_offset:
            return False
        if offset == level.head_offset and self._waits(level):
            return False
        due = await self._due_entries(level, offset)
        if not due:
            return False
        if due[0].size == PLACEHOLDER_SIZE:
            self._offsets.advance(level.level, await asyncio.to_thread(level.queue.next_message, offset))
            return True
        goes_on = await self._deliver(level, due)
        if self._store.answers_when_durable:
            # Delivering no faster than the disk flushes keeps the messages out of memory.
            await self._store.durable()
        return goes_on

    def _next_offset(self, level: LevelQueue) -> int:
        """Return the level's next offset, corrected if it is outside the queue (correctDelayOffset)."""
        offset, queue = self._offsets.get(level.level), level.queue
        inside = min(max(offset, queue.min_offset), queue.max_offset)
        if inside != offset:
            if offset:
                log.error(
                    "delay offset corrected: it was outside the queue level=%d offset=%d corrected=%d "
                    "queue_min=%d queue_max=%d",
                    level.level,
                    offset,
                    inside,
                    queue.min_offset,
                    queue.max_offset,
                )
            self._offsets.advance(level.level, inside)
        return inside

    def _waits(self, level: LevelQueue) -> bool:
        """Whether the first message is certainly not due yet.

        A wait longer than the level's delay means that the clock was set back. Then the entries are read
        again.
        """
        left_ms, levels = level.head_due_ms - self._now_ms(), self._writer.levels
        return left_ms > 0 and (level.level > levels.highest or left_ms <= levels.delay_ms(level.level))

    async def _due_entries(self, level: LevelQueue, offset: int) -> list[DelayedEntry]:
        """Return the due entries from `offset` on, up to the first that is not due or is a placeholder."""
        queue = level.queue
        raw = queue.read_now(offset, _SLICE)
        if raw is None:
            raw = await asyncio.get_running_loop().run_in_executor(None, queue.read, offset, _SLICE)
        now_ms = self._check_clock()
        while level.steps and level.steps[0].end_offset <= offset:
            level.steps.popleft()
        due: list[DelayedEntry] = []
        for index, (physical_offset, size, code) in enumerate(QUEUE_ENTRY.iter_unpack(raw)):
            if size == PLACEHOLDER_SIZE:
                return due or [DelayedEntry(offset, 0, size, 0)]
            due_ms = self._due_ms(level, offset + index, queue.tags_code(code), physical_offset, now_ms)
            if not due:
                level.head_offset, level.head_due_ms = offset, due_ms
            if due_ms > now_ms:
                break
            due.append(DelayedEntry(offset + index, physical_offset, size, due_ms))
        return due

    def _due_ms(
        self, level: LevelQueue, offset: int, stored_ms: int | None, physical_offset: int, now_ms: int
    ) -> int:
        """Return when a message is due, in ms.

        After the clock was set back a message would wait longer than its delay, so it is due earlier by the
        step. A step while the broker was down was not seen: then the first message waits for its delay from
        now on, and the messages behind it keep their distance. (Apache's broker delivers it at once, too
        early.)
        """
        levels = self._writer.levels
        if stored_ms is None:  # it was lost with the queue's extension files
            stored_ms = self._store.store_timestamp(physical_offset) + levels.delay_ms(level.level)
        if level.level > levels.highest:
            return stored_ms
        due_ms = stored_ms - sum([step.of(offset, stored_ms) for step in level.steps])
        latest_ms = now_ms + levels.delay_ms(level.level)
        if due_ms > latest_ms:
            level.steps.append(ClockStep(due_ms - latest_ms, 0, level.queue.max_offset, stored_ms))
        return min(due_ms, latest_ms)

    # --- delivering ---

    async def _deliver(self, level: LevelQueue, due: list[DelayedEntry]) -> bool:
        """Store due messages in their original queues; return whether to continue at once."""
        first = due[0].offset
        result = await self._read(level.queue.queue_id, first, len(due))
        if result.count != result.next_offset - first or result.status is not GetStatus.FOUND:
            # Some messages are no longer in the log: deliver one by one.
            result = await self._read(level.queue.queue_id, first, 1)
        if result.status is GetStatus.MESSAGE_WAS_REMOVING:
            self._skip(level, due[0], "it is no longer in the commit log")
            return True
        if result.status is not GetStatus.FOUND:
            log.warning(
                "reading delayed messages failed, will retry level=%d offset=%d cause=%s",
                level.level,
                first,
                result.status.value,
            )
            return False
        due = due[: result.count]
        if self._elsewhere.is_used:
            # A message on its way is waited for, even if this task is cancelled.
            return await finished(self._deliver_elsewhere(level, due, result.body))
        position = 0
        for entry in due:
            if not self._deliver_one(level, entry, result.body, position):
                return False
            position += entry.size
        return True

    async def _read(self, queue_id: int, offset: int, count: int) -> GetResult:
        return await self._store.get_async(SCHEDULE_TOPIC, queue_id, offset, count, None, _SLICE_BYTES)

    async def _deliver_elsewhere(self, level: LevelQueue, due: list[DelayedEntry], records: bytes) -> bool:
        """Store messages with another master; return False if one of them is not stored."""
        originals: dict[int, InnerMessage | str] = {}
        position = 0
        for entry in due:
            originals[entry.offset] = _original(entry, records, position)
            position += entry.size
        ahead = level.stored_ahead
        sent = {
            offset: message
            for offset, message in originals.items()
            if isinstance(message, InnerMessage) and offset not in ahead
        }
        problems = await self._elsewhere.put_all(list(sent.values()))
        failed = {offset: problem for offset, problem in zip(sent, problems, strict=True) if problem}
        ahead.update(sent.keys() - failed.keys())
        for entry in due:
            message = originals[entry.offset]
            if isinstance(message, str):
                self._skip(level, entry, message)
            elif entry.offset in ahead:
                ahead.discard(entry.offset)
                self._delivered(level, entry)
            else:
                self._stall_log.stalled(failed[entry.offset])
                level.retry_at_ms = self._now_ms() + ELSEWHERE_RETRY_MS
                return False
        return True

    def _deliver_one(self, level: LevelQueue, entry: DelayedEntry, records: bytes, position: int) -> bool:
        """Store one message in its original queue, or skip it; return False if the store is unavailable."""
        message = _original(entry, records, position)
        if isinstance(message, str):
            self._skip(level, entry, message)
            return True
        try:
            self._writer.put_due(message)
        except StoreUnavailable as error:
            self._stall_log.stalled(str(error))
            return False
        except MessageRejected as error:
            self._skip(level, entry, str(error))
            return True
        self._delivered(level, entry)
        return True

    def _delivered(self, level: LevelQueue, entry: DelayedEntry) -> None:
        self._stall_log.delivered()
        self._offsets.advance(level.level, entry.offset + 1)
        self.delivered += 1
        self.lateness_ms.observe(self._now_ms() - entry.due_ms)
        counted = self._statistics.of_group(_GROUP, SCHEDULE_TOPIC)
        counted.got_messages += 1
        counted.got_bytes += entry.size

    def _skip(self, level: LevelQueue, entry: DelayedEntry, cause: str) -> None:
        self.lost += 1
        log.error(
            "delayed message skipped, it is not delivered physical_offset=%d level=%d offset=%d cause=%s",
            entry.physical_offset,
            level.level,
            entry.offset,
            cause,
        )
        self._offsets.advance(level.level, entry.offset + 1)


def _original(entry: DelayedEntry, records: bytes, position: int) -> InnerMessage | str:
    """Return the message of an entry for its original queue, or why there is none."""
    if parse_record(records, position, entry.physical_offset - position) is None:
        return "its record is damaged"
    message = read_message(records, position).message
    return restore_original_queue(message) or message
