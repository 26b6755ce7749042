"""Making index entries from the log, for messages that were appended while no index file could take them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from rmq_remoting.message_properties import find_value
from rmq_remoting.sys_flags import MessageSysFlag

from ..log.record import RecordSummary
from .plain_entries import KEYS, UNIQUE_KEY

_LOOK_AT_CLOCK_EVERY: Final = 16  # records that are entered one by one
# Plain records are read from a part of the log in memory. With less of it left, the next part is read.
_LITTLE_LEFT_BYTES: Final = 16 * 1024

# The budget of a slice while the event loop has other work, and the longest one if it has none.
_SHORT_SLICE_S: Final = 0.001
_LONG_SLICE_S: Final = 0.005
# Between two slices while the event loop has other work; less if the log grows as fast as the catch-up reads.
MAX_PAUSE_S: Final = 0.003
_MIN_PAUSE_S: Final = 0.0002
# If the event loop's thread was busy for no longer than that in a pause, or for no larger share of it, pauses
# get shorter, then slices longer.
_IDLE_S: Final = 0.000_15
_IDLE_SHARE: Final = 0.25
_SHORTER: Final = 0.5
_LONGER: Final = 2.0
_SLICES_PER_LOOK: Final = 100
# How much is read into memory at a time, in a thread. Less than the second figure has just been appended.
_WARM_BYTES: Final = 4 << 20
_WORTH_WARMING_BYTES: Final = 64 << 10

# Enters a message: topic, unique key, keys, physical offset, store time in ms. False: no file can take it.
Enter = Callable[[str, bytes, bytes, int, int], bool]
# Enters plain messages of a part of the log: its bytes, the position to begin at, and its log offset. Returns
# the position behind the last of them (LiveEntries.enter_plain).
EnterPlain = Callable[[bytes, int, int], int]


class LogRecords(Protocol):
    """The log, as the catch-up reads it."""

    @property
    def min_offset(self) -> int:
        """The offset where the log begins."""

    @property
    def max_offset(self) -> int:
        """The offset up to which entries are made: messages appended behind it will be put."""

    def records_from(self, offset: int) -> Iterator[RecordSummary]:
        """Iterate over the valid records from `offset` to `max_offset`, in order.

        A record should begin at `offset`; blanks and damage are skipped.
        """

    def chunk(self, offset: int) -> bytes:
        """Return bytes from `offset` on, of one file and before `max_offset`; none if there are none."""

    def warm(self, offset: int, size: int) -> None:
        """Read bytes of the log into the page cache, so that a later read does not block. Blocks."""


class IndexCatchUp:
    """Makes entries from the log in slices that are short enough for the event loop."""

    __slots__ = (
        "_behind_before",
        "_chunk",
        "_chunk_at",
        "_enter",
        "_enter_plain",
        "_entered",
        "_log",
        "_longest_pause_s",
        "_slices",
        "_timer",
        "pause_s",
        "position",
        "slice_s",
        "warmed_to",
    )

    def __init__(
        self,
        log: LogRecords,
        enter: Enter,
        timer: Callable[[], float] = time.perf_counter,
        enter_plain: EnterPlain | None = None,
    ) -> None:
        """`enter_plain`: a faster way for most messages; None: all are entered one by one."""
        self._log = log
        self._enter = enter
        self._enter_plain = enter_plain
        self._timer = timer
        self.start_at(0)

    def start_at(self, position: int, entered: int = -1) -> None:
        """Continue at `position`; a message at `entered` is in the index already."""
        self.position = position  # messages before it are in the index
        self.pause_s = self._longest_pause_s = MAX_PAUSE_S
        self.slice_s = _SHORT_SLICE_S
        self._entered = entered
        self._chunk, self._chunk_at = b"", 0  # a part of the log, and its offset
        self.warmed_to = position  # the log before it was read into memory
        self._slices = 0
        self._behind_before = 0

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that are left to read."""
        return max(0, self._log.max_offset - self.position)

    def next_to_warm(self) -> tuple[int, int] | None:
        """Return offset and size of what to read into memory before the next slice, if anything."""
        if self.position < self.warmed_to - _WARM_BYTES // 4:
            return None
        start = max(self.position, self.warmed_to)
        size = min(_WARM_BYTES, self._log.max_offset - start)
        return (start, size) if size >= _WORTH_WARMING_BYTES else None

    def run_slice(self, budget_s: float) -> bool:
        """Make entries for `budget_s` seconds; True if the end of the log was reached.

        Stops early if no index file can take entries. `position` is where to continue. Raises OSError if the
        disk is full.
        """
        timer = self._timer
        until = timer() + budget_s
        self._pace()
        self.position = max(self.position, self._log.min_offset)
        end = self._log.max_offset
        one_by_one = 1 if self._enter_plain else _LOOK_AT_CLOCK_EVERY
        while self.position < end:
            if self._run_plain():
                one_by_one = 1
                if timer() >= until:
                    return False
                continue
            for number, record in enumerate(self._log.records_from(self.position), 1):
                self.position = record.physical_offset
                if not self._enter_record(record):
                    return False
                self.position += record.size
                if number >= one_by_one:
                    break
            else:
                self.position = end
            # Where many records are not plain, fewer attempts are made.
            one_by_one = min(2 * one_by_one, _LOOK_AT_CLOCK_EVERY)
            if timer() >= until:
                return self.position >= end
        return True

    def _run_plain(self) -> bool:
        """Enter some plain messages; False if the next one is none."""
        if self._enter_plain is None or self.position <= self._entered:
            return False
        at = self.position - self._chunk_at
        if not 0 <= at < len(self._chunk):
            self._chunk, self._chunk_at, at = self._log.chunk(self.position), self.position, 0
        behind = self._enter_plain(self._chunk, at, self._chunk_at)
        if behind == at > 0 and len(self._chunk) - at < _LITTLE_LEFT_BYTES:
            self._chunk, self._chunk_at, at = self._log.chunk(self.position), self.position, 0
            behind = self._enter_plain(self._chunk, at, self._chunk_at)
        self.position = self._chunk_at + behind
        return behind > at

    def paused(self, busy_s: float) -> None:
        """Adapt pauses and slices: in the last pause the loop's thread was busy for `busy_s` seconds."""
        if busy_s > max(_IDLE_S, self.pause_s * _IDLE_SHARE):
            self.pause_s = min(max(self.pause_s, _MIN_PAUSE_S) * _LONGER, self._longest_pause_s)
            self.slice_s = _SHORT_SLICE_S
        elif self.pause_s > _MIN_PAUSE_S:
            self.pause_s *= _SHORTER
        else:
            self.pause_s = 0.0
            self.slice_s = min(self.slice_s * _LONGER, _LONG_SLICE_S)

    def _pace(self) -> None:
        self._slices += 1
        if self._slices % _SLICES_PER_LOOK == 0:
            behind_bytes = self.behind_bytes
            if behind_bytes >= self._behind_before > 0:
                self._longest_pause_s = max(_MIN_PAUSE_S, self._longest_pause_s / 2)
                self.pause_s = min(self.pause_s, self._longest_pause_s)
            self._behind_before = behind_bytes

    def _enter_record(self, record: RecordSummary) -> bool:
        if record.physical_offset <= self._entered:
            return True
        if record.sys_flag & MessageSysFlag.TRANSACTION_MASK == MessageSysFlag.TRANSACTION_ROLLBACK:
            return True
        properties = record.properties
        unique_key = find_value(properties, UNIQUE_KEY) or b""
        keys = find_value(properties, KEYS) or b""
        if not unique_key and not keys:
            return True
        return self._enter(record.topic, unique_key, keys, record.physical_offset, record.store_timestamp_ms)
