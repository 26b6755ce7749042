"""Delayed messages: they wait in SCHEDULE_TOPIC_XXXX, a queue for each level, until they are due.

All messages of a level wait equally long, so each queue is in the order in which its messages are due. When
the first is due it is stored again, where it belongs (Apache RocketMQ 5.3.3, ScheduleMessageService).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Histogram

from ..store.api import (
    PLACEHOLDER_SIZE,
    QUEUE_ENTRY,
    ColdRead,
    GetStatus,
    MessageRejected,
    StoreUnavailable,
    level_of_queue,
    parse_record,
)
from ..topics.names import SCHEDULE_TOPIC
from .home import send_home
from .inner_message import read_message
from .trouble import Trouble

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import ConsumeQueue, GetResult, MessageStore
    from .delay_offsets import DelayOffsets
    from .message_writer import MessageWriter

log = logging.getLogger("rmq.broker.delayed")

# So many messages, of so many bytes, are delivered in one go, before others have a turn.
_SLICE: Final = 32
_SLICE_BYTES: Final = 1 << 20
# Between two looks. The shorter one lets what is due within it be delivered together.
_SHORTEST_SECONDS: Final = 0.02
_LONGEST_SECONDS: Final = 0.1
# After a read that failed.
_READ_RETRY_MS: Final = 10_000
# The group that Apache counts deliveries for (MixAll).
_GROUP: Final = "SCHEDULE_CONSUMER"
# So many steps back of the clock are remembered for a level.
_MOST_STEPS: Final = 8
# Of more than this between two looks the clock has been set forward: it may be right again.
_FORWARD_MS: Final = 10_000
LATENESS_BOUNDS_MS: Final = (10, 20, 50, 100, 200, 500, 1000, 5000, 60_000)


@dataclass(slots=True)
class _Entry:
    """An entry of a level's queue."""

    offset: int
    physical_offset: int
    size: int
    due_ms: int


@dataclass(frozen=True, slots=True)
class _Step:
    """The clock has been set back: what was stored before that is due earlier than its entry says.

    That holds for the entries before `sure_offset`, and of those before `end_offset` for the ones that say
    `from_ms` or later.
    """

    back_ms: int
    sure_offset: int
    end_offset: int
    from_ms: int

    def of(self, offset: int, stored_ms: int) -> int:
        """By how much an entry is due earlier."""
        is_before = offset < self.sure_offset or (offset < self.end_offset and stored_ms >= self.from_ms)
        return self.back_ms if is_before else 0


@dataclass(slots=True)
class _Level:
    """The queue of one level, and what is known of its first message that waits."""

    level: int
    queue: ConsumeQueue
    head_offset: int = -1
    head_due_ms: int = 0
    seen_end: int = 0  # of the queue, at the last look
    steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    retry_at_ms: int = 0


class DelayedMessages:
    """Delivers what is due; belongs to the loop's thread, and gives way after each slice."""

    def __init__(
        self,
        store: MessageStore,
        writer: MessageWriter,
        offsets: DelayOffsets,
        statistics: BrokerStatistics,
        now_ms: ClockMs,
    ) -> None:
        self.delivered = 0
        self.lost = 0  # of what could not be read, or belongs nowhere
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._statistics = statistics
        self._now_ms = now_ms
        self._levels: dict[int, _Level] = {}
        self._seen_ms = 0  # the clock at the last look
        self._trouble = Trouble(log, "delayed messages")

    # --- life ---

    def correct_offsets(self) -> None:
        """Bring the offsets in line with the queues, which may have lost their end in a crash."""
        for level in self._all_levels():
            self._next_offset(level)

    async def deliver_due(self) -> None:
        """Deliver what is due by now, level by level in turns; to be called every `pause_seconds`."""
        is_busy = True
        while is_busy:
            is_busy = False
            self._look_at_clock()
            for level in self._all_levels():
                if await self._guarded_slice(level):
                    is_busy = True
                    await asyncio.sleep(0)

    def pause_seconds(self) -> float:
        """When to look again: soon where something becomes due soon."""
        now_ms, seconds = self._now_ms(), _LONGEST_SECONDS
        for level in self._levels.values():
            if level.head_offset == self._offsets.get(level.level) and level.head_due_ms > now_ms:
                seconds = min(seconds, (level.head_due_ms - now_ms) / 1000)
        return max(seconds, _SHORTEST_SECONDS)

    # --- asking; other threads may ask, too ---

    def positions(self) -> dict[int, tuple[int, int]]:
        """By level, the next offset that is to be delivered and the end of the queue."""
        queues = sorted(self._store.queues.of_topic(SCHEDULE_TOPIC).copy().items())
        levels = [(level_of_queue(queue_id), queue.max_offset) for queue_id, queue in queues]
        return {level: (self._offsets.get(level), end) for level, end in levels}

    def waiting(self) -> dict[int, int]:
        """By level, how many messages wait."""
        return {level: max(0, end - offset) for level, (offset, end) in self.positions().items()}

    def overdue_ms(self) -> int:
        """For how long the message that waits longest has been due; 0 where none is."""
        due = [
            level.head_due_ms
            for level in self._levels.copy().values()
            if level.head_offset == self._offsets.get(level.level) < level.queue.max_offset
        ]
        return max(0, self._now_ms() - min(due)) if due else 0

    # --- a level ---

    def _all_levels(self) -> list[_Level]:
        """Every level that has a queue, also of those that the settings do not know any more."""
        queues = self._store.queues.of_topic(SCHEDULE_TOPIC)
        for queue_id, queue in queues.items():
            known = self._levels.get(queue_id)
            if known is None or known.queue is not queue:
                self._levels[queue_id] = _Level(level_of_queue(queue_id), queue)
        return [self._levels[queue_id] for queue_id in sorted(queues)]

    def _look_at_clock(self) -> int:
        """What time it is; whether the clock has been set since the last look is noticed."""
        before_ms, now_ms, levels = self._seen_ms, self._now_ms(), self._writer.levels
        self._seen_ms = now_ms
        for level in self._all_levels():
            end = level.queue.max_offset
            if now_ms < before_ms and level.level <= levels.highest:
                # What was stored between the last look and the step; what came since is due before that.
                from_ms = before_ms + levels.delay_ms(level.level)
                level.steps.append(_Step(before_ms - now_ms, level.seen_end, end, from_ms))
                level.head_offset = -1
            elif level.steps and now_ms - before_ms > _FORWARD_MS:
                level.steps.clear()
                level.head_offset = -1
            level.seen_end = end
        return now_ms

    async def _guarded_slice(self, level: _Level) -> bool:
        if 0 < level.retry_at_ms - self._now_ms() <= _READ_RETRY_MS:
            return False
        try:
            return await self._slice(level)
        except OSError as error:
            level.retry_at_ms = self._now_ms() + _READ_RETRY_MS
            log.error("messages of delay level %d cannot be read, will try again: %s", level.level, error)
            return False

    async def _slice(self, level: _Level) -> bool:
        """Deliver some of a level's messages; whether more of them may be due. Raises OSError."""
        offset = self._next_offset(level)
        if offset >= level.queue.max_offset:
            return False
        if offset == level.head_offset and self._waits(level):
            return False
        due = await self._due_entries(level, offset)
        if not due:
            return False
        if due[0].size == PLACEHOLDER_SIZE:
            self._offsets.advance(level.level, level.queue.next_message(offset))
            return True
        goes_on = await self._deliver(level, due)
        if self._store.flushes_each_message:
            # Who delivers no faster than the disk takes it keeps nothing in memory.
            await self._store.flushed()
        return goes_on

    def _next_offset(self, level: _Level) -> int:
        """Where the level goes on, corrected where the queue does not reach (correctDelayOffset)."""
        offset, queue = self._offsets.get(level.level), level.queue
        inside = min(max(offset, queue.min_offset), queue.max_offset)
        if inside != offset:
            if offset:
                log.error(
                    "delay level %d goes on at %d, not at %d: its queue has messages %d to %d",
                    level.level,
                    inside,
                    offset,
                    queue.min_offset,
                    queue.max_offset - 1,
                )
            self._offsets.advance(level.level, inside)
        return inside

    def _waits(self, level: _Level) -> bool:
        """Whether the first message is not due yet; not so where the clock has been set back meanwhile."""
        left_ms, levels = level.head_due_ms - self._now_ms(), self._writer.levels
        return left_ms > 0 and (level.level > levels.highest or left_ms <= levels.delay_ms(level.level))

    async def _due_entries(self, level: _Level, offset: int) -> list[_Entry]:
        """Entries from `offset` on that are due, up to the first that is not, or that is a gap."""
        queue = level.queue
        raw = queue.read_now(offset, _SLICE)
        if raw is None:
            raw = await asyncio.get_running_loop().run_in_executor(None, queue.read, offset, _SLICE)
        now_ms = self._look_at_clock()
        while level.steps and level.steps[0].end_offset <= offset:
            level.steps.popleft()
        due: list[_Entry] = []
        for index, (physical_offset, size, code) in enumerate(QUEUE_ENTRY.iter_unpack(raw)):
            if size == PLACEHOLDER_SIZE:
                return due or [_Entry(offset, 0, size, 0)]
            due_ms = self._due_ms(level, offset + index, queue.tags_code(code), physical_offset, now_ms)
            if not due:
                level.head_offset, level.head_due_ms = offset, due_ms
            if due_ms > now_ms:
                break
            due.append(_Entry(offset + index, physical_offset, size, due_ms))
        return due

    def _due_ms(
        self, level: _Level, offset: int, stored_ms: int | None, physical_offset: int, now_ms: int
    ) -> int:
        """When a message is due.

        If the clock is set back, a message would wait for longer than its delay: it is due earlier by that
        step. After a step that was not seen, because the broker was down, it waits for its delay from now on,
        and what follows keeps its distance. (Apache delivers it at once, too early.)
        """
        levels = self._writer.levels
        if stored_ms is None:  # lost with the queue's extension files
            stored_ms = self._store.commit_log.store_timestamp(physical_offset) + levels.delay_ms(level.level)
        if level.level > levels.highest:
            return stored_ms
        due_ms = stored_ms - sum([step.of(offset, stored_ms) for step in level.steps])
        latest_ms = now_ms + levels.delay_ms(level.level)
        if due_ms > latest_ms:
            level.steps.append(_Step(due_ms - latest_ms, 0, level.queue.max_offset, stored_ms))
        return min(due_ms, latest_ms)

    # --- delivering ---

    async def _deliver(self, level: _Level, due: list[_Entry]) -> bool:
        """Store messages again; whether to go on at once."""
        first = due[0].offset
        result = await self._read(level.queue.queue_id, first, len(due))
        if result.count != result.next_offset - first or result.status is not GetStatus.FOUND:
            # Some are not in the log any more: one by one.
            result = await self._read(level.queue.queue_id, first, 1)
        if result.status is GetStatus.MESSAGE_WAS_REMOVING:
            self._skip(level, due[0], "it is not in the log any more")
            return True
        if result.status is not GetStatus.FOUND:
            log.warning("delay level %d, offset %d: %s", level.level, first, result.status.value)
            return False
        position = 0
        for entry in due[: result.count]:
            if not self._deliver_one(level, entry, result.body, position):
                return False
            position += entry.size
        return True

    async def _read(self, queue_id: int, offset: int, count: int) -> GetResult:
        result = self._store.get_now(SCHEDULE_TOPIC, queue_id, offset, count, None, _SLICE_BYTES)
        if not isinstance(result, ColdRead):
            return result
        await asyncio.get_running_loop().run_in_executor(None, result.run)
        return self._store.reader.finish(result)

    def _deliver_one(self, level: _Level, entry: _Entry, records: bytes, position: int) -> bool:
        """Store one message where it belongs; False where the store does not take it now."""
        if parse_record(records, position, entry.physical_offset - position) is None:
            self._skip(level, entry, "its record is damaged")
            return True
        message = read_message(records, position).message
        problem = send_home(message)
        if problem:
            self._skip(level, entry, problem)
            return True
        try:
            self._writer.put_due(message)
        except StoreUnavailable as error:
            self._trouble.tell(str(error))
            return False
        except MessageRejected as error:
            self._skip(level, entry, str(error))
            return True
        self._trouble.tell("")
        self._offsets.advance(level.level, entry.offset + 1)
        self.delivered += 1
        self.lateness_ms.observe(self._now_ms() - entry.due_ms)
        counted = self._statistics.of_group(_GROUP, SCHEDULE_TOPIC)
        counted.got_messages += 1
        counted.got_bytes += entry.size
        return True

    def _skip(self, level: _Level, entry: _Entry, why: str) -> None:
        self.lost += 1
        log.error(
            "the delayed message at %d of the log (level %d, offset %d) is passed over: %s",
            entry.physical_offset,
            level.level,
            entry.offset,
            why,
        )
        self._offsets.advance(level.level, entry.offset + 1)
