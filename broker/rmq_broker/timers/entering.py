"""Enter messages of the timer topic's queue into the wheel, in the order of the queue.

The message writer announces each message that it stores in that queue, which saves reading it. Messages that
were not announced are read from the store: after a start, and if more are announced than are kept.
"""

from __future__ import annotations

import asyncio
import logging
from struct import Struct
from typing import TYPE_CHECKING, Final

from rmq_remoting.message_properties import find_property

from ..delivery.inner_message import StoredMessage, read_message
from ..delivery.timer_entry import TIMER_QUEUE_ID, TimerEntry
from ..store.api import GetResult, GetStatus, parse_record
from ..topics.names import TIMER_TOPIC, is_revive_topic
from .announced import AnnouncedTimers

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..store.api import MessageStore
    from .counts import TimerCounts
    from .pending import PendingTimers

log = logging.getLogger("rmq.broker.timers")

# The messages that are entered before the event loop runs other work.
_SLICE: Final = 512
_READ_COUNT: Final = 32
_READ_BYTES: Final = 1 << 20
_PHYSICAL_OFFSET_AT: Final = 28
_HEAD_BYTES: Final = 36
_unpack_int64: Final = Struct(">q").unpack_from
# A time in ms has 13 digits up to the 23rd century.
_MAX_DIGITS: Final = 15


class TimerEntering:
    """Enters stored messages into the wheel; belongs to the loop's thread."""

    def __init__(
        self, store: MessageStore, pending: PendingTimers, counts: TimerCounts, now_ms: ClockMs
    ) -> None:
        self._store = store
        self._pending = pending
        self._counts = counts
        self._now_ms = now_ms
        self.announced = AnnouncedTimers(pending, counts, now_ms)
        self._first_stored_ms = 0  # of the first message that is not entered yet; 0: unknown

    @property
    def behind(self) -> int:
        """The number of messages in the queue that are not entered yet."""
        return max(0, self._end - self._pending.queue_offset)

    def behind_ms(self) -> int:
        """Return the age in ms of the first message that is not entered yet; 0 without one.

        Does not block. While the message is not in memory, the age is that of a message before it.
        """
        if not self.behind:
            self._first_stored_ms = 0
            return 0
        found = self._store.get_now(TIMER_TOPIC, TIMER_QUEUE_ID, self._pending.queue_offset, 1, None)
        if isinstance(found, GetResult) and len(found.body) >= _HEAD_BYTES:
            record = parse_record(found.body, 0, _unpack_int64(found.body, _PHYSICAL_OFFSET_AT)[0])
            self._first_stored_ms = 0 if record is None else record.store_timestamp_ms
        return max(0, self._now_ms() - self._first_stored_ms) if self._first_stored_ms else 0

    @property
    def _end(self) -> int:
        return self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE_ID)

    async def enter_new(self, not_before_ms: int) -> None:
        """Enter all new messages of the queue; `not_before_ms`: the first slot that accepts messages.

        Raises OSError.
        """
        pending, announced, end = self._pending, self.announced, self._end
        while pending.queue_offset < end:
            if announced.first_offset() == pending.queue_offset:
                if not announced.enter_next(not_before_ms, _SLICE):
                    return
            else:
                entries, next_offset = await self._read()
                for entry in entries:
                    if not pending.was_delivered(entry) and not announced.enter(entry, not_before_ms):
                        return
                pending.queue_offset = next_offset
            await asyncio.sleep(0)

    # --- reading messages that were not announced ---

    async def _read(self) -> tuple[list[TimerEntry], int]:
        """Read the next messages of the queue; also return the offset behind them. Raises OSError."""
        offset = max(self._pending.queue_offset, self._store.min_offset(TIMER_TOPIC, TIMER_QUEUE_ID))
        first = self.announced.first_offset()
        count = _READ_COUNT if first is None else min(_READ_COUNT, first - offset)
        if count <= 0:
            return [], offset
        result = await self._get(offset, count)
        entries = _entries_in(result.body)
        if entries is None and count > 1:
            result = await self._get(offset, 1)
            entries = _entries_in(result.body)
        if result.status not in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING):
            raise OSError(f"the timer's queue cannot be read at offset {offset}: {result.status.value}")
        if entries is None:
            self._counts.lost += 1
            log.error(
                "timed message skipped, it is not delivered queue_offset=%d cause=damaged record", offset
            )
            return [], offset + 1
        return [entry for entry in entries if self._is_valid(entry)], result.next_offset

    def _is_valid(self, entry: TimerEntry) -> bool:
        if entry.out_ms < 0 or not entry.topic:
            self._counts.lost += 1
            log.error(
                "timed message skipped, it is not delivered queue_offset=%d cause=property TIMER_OUT_MS or "
                "REAL_TOPIC missing or invalid",
                entry.queue_offset,
            )
            return False
        return True

    async def _get(self, offset: int, count: int) -> GetResult:
        return await self._store.get_async(TIMER_TOPIC, TIMER_QUEUE_ID, offset, count, None, _READ_BYTES)


def _entries_in(records: bytes) -> list[TimerEntry] | None:
    """Return the entries of consecutive records; None if one of the records is damaged."""
    entries = []
    position = 0
    while position < len(records):
        if position + _HEAD_BYTES > len(records):
            return None
        (physical_offset,) = _unpack_int64(records, position + _PHYSICAL_OFFSET_AT)
        if parse_record(records, position, physical_offset - position, check_crc=False) is None:
            return None
        stored = read_message(records, position)
        entries.append(_entry_of(stored))
        position += stored.size
    return entries


def _entry_of(stored: StoredMessage) -> TimerEntry:
    properties = stored.message.properties
    topic = (find_property(properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
    out_ms = find_property(properties, b"TIMER_OUT_MS") or b""
    return TimerEntry(
        stored.queue_offset,
        stored.physical_offset,
        stored.size,
        int(out_ms) if out_ms.isdigit() and len(out_ms) <= _MAX_DIGITS else -1,
        topic,
        find_property(properties, b"TIMER_DEL_UNIQKEY") is not None,
        is_revive_topic(topic),
    )
