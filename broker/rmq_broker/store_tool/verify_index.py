"""Comparison of index and log: every key of a message has an entry, and every entry has its key."""

from __future__ import annotations

from typing import Final

from .directory import Directory, StoreState
from .expected import Expected
from .findings import Report
from .index_columns import IndexItems
from .layout import INDEX_ENTRY
from .log_files import NumberedFiles
from .verify_index_file import IndexBlock, IndexFilesCheck

_MAX_SECONDS: Final = 2**31 - 1
_STRETCH_ENTRIES: Final = 4096  # compared at once; after a difference they are compared one by one

Item = tuple[int, int, int]
"""Hash, physical offset and store time of one key of a message."""


class IndexCheck:
    """Compares the expected entries of each part of the log, in order; then `finish`."""

    def __init__(
        self, directory: Directory, log: NumberedFiles, report: Report, *, slots: int | None, certain_end: int
    ) -> None:
        """`slots`: per file, None if unknown; `certain_end`: log offset up to which queues are complete."""
        self._directory = directory
        self._log = log
        self._report = report
        self._certain_end = certain_end
        self._files = IndexFilesCheck(directory, report, slots)
        self._blocks = self._files.blocks()
        self._block: IndexBlock | None = None
        self._at = 0  # index of the next entry in the block
        self._one_by_one = 0  # entries that are not compared in columns, because one of them differs
        self._ended = False
        # Offset and hashes of the last message with a correct entry.
        self._previous: tuple[int, set[int]] = (-1, set())
        self._last_offset = -1  # of the last entry
        self._missing = (0, 0, 0)  # number of keys, offsets of their first and last message

    def compare(self, expected: Expected) -> None:
        """Compare the keys of one part. Raises OSError."""
        wanted = IndexItems(expected.index, expected.index_times, expected.index_times_rise)
        position = 0
        while position < len(wanted):
            passed = self._skip_equal_columns(wanted, position) or self._skip_equal(wanted, position)
            position += passed
            if not passed and self._compare(wanted.item(position)):
                position += 1

    def finish(self, log_end: int) -> None:
        """Check the remaining entries, and report the findings. Raises OSError."""
        must_fit = self._directory.state in (StoreState.STOPPED, StoreState.KILLED)
        while (block := self._current()) is not None:
            (hashed, offset, _, _), place = block.entry(self._at), block.place(self._at)
            self._at += 1
            if offset >= log_end:
                emit = self._report.error if must_fit else self._report.recoverable
                emit(
                    "index.ahead", place, f"the entry is of a message at {offset}; the log ends at {log_end}"
                )
            elif not self._is_repeated(hashed, offset):
                self._report_stray(block, offset, place)
        self._report_missing()

    # --- comparing ---

    def _skip_equal_columns(self, wanted: IndexItems, position: int) -> int:
        """Skip a stretch of entries if all of them are correct, compared in columns; return their number."""
        block = self._current()
        if block is None:
            return 0
        begin = self._at
        # The header has the times of the first and of the last entry, which need a closer look.
        inner = block.last - block.first - begin
        count = min(len(wanted) - position, len(block) - begin, inner, _STRETCH_ENTRIES)
        if count <= 0 or block.first + begin == 1 or self._one_by_one > 0:
            return 0
        size = INDEX_ENTRY.size
        found = block.packed[begin * size : (begin + count) * size]
        if not wanted.is_equal(position, position + count, found, block.begin_ms):
            self._one_by_one = count
            return 0
        self._passed(wanted, position, count)
        return count

    def _skip_equal(self, wanted: IndexItems, position: int) -> int:
        """Skip entries of a stretch as long as they are correct, one by one; return their number."""
        block = self._current()
        if block is None:
            return 0
        begin_ms = block.begin_ms
        begin = self._at
        count = min(len(wanted) - position, len(block) - begin, _STRETCH_ENTRIES)
        passed = 0
        for index in range(count):
            hashed, offset, time_ms = wanted.item(position + index)
            entry = block.entry(begin + index)
            if entry[0] != hashed or entry[1] != offset:
                break
            if entry[2] != (time_ms - begin_ms) // 1000 or block.first + begin + index in (1, block.last):
                self._check_time(block, begin + index, time_ms)
            passed += 1
            if block.first + begin + index == 1:
                break  # the entries behind it are compared in columns
        if passed:
            self._passed(wanted, position, passed)
        return passed

    def _passed(self, wanted: IndexItems, position: int, count: int) -> None:
        self._at += count
        self._one_by_one -= count
        self._report_gap()
        self._remember(wanted, position, position + count)
        self._report.counts["index entries"] += count

    def _compare(self, wanted: Item) -> bool:
        """Handle an entry that differs from the expected one; return whether the expected one is finished."""
        block = self._current()
        if block is None:
            self._miss(wanted)
            return True
        hashed, offset, _, _ = block.entry(self._at)
        self._one_by_one -= 1
        if (hashed, offset) == wanted[:2]:
            return False  # it is the first entry of the next block
        place = block.place(self._at)
        if offset < self._last_offset:
            self._wrong(
                block,
                "index.order",
                place,
                f"the entry is of {offset}, the previous one of {self._last_offset}",
            )
            self._at += 1
            return False
        if offset > wanted[1]:
            self._miss(wanted)
            return True
        self._at += 1
        if self._is_repeated(hashed, offset):
            return False
        self._last_offset = offset
        if offset == wanted[1]:
            self._wrong(
                block,
                "index.wrong_entry",
                place,
                f"the hash is {hashed}; the key of the message at {offset} has {wanted[0]}",
            )
            return True
        self._report_stray(block, offset, place)
        return False

    def _remember(self, wanted: IndexItems, begin: int, end: int) -> None:
        """Note the last message of a range of correct entries."""
        offset = wanted.offset(end - 1)
        if self._previous[0] != offset:
            self._previous = (offset, set())
        while end > begin and wanted.offset(end - 1) == offset:
            end -= 1
            self._previous[1].add(wanted.item(end)[0])
        self._last_offset = offset

    def _is_repeated(self, hashed: int, offset: int) -> bool:
        """Return whether an entry is a duplicate, which Apache's broker writes after a crash."""
        if offset != self._previous[0] or hashed not in self._previous[1]:
            return False
        self._report.counts["index entries made twice"] += 1
        return True

    def _report_stray(self, block: IndexBlock, offset: int, place: str) -> None:
        if 0 <= offset < self._log.start:
            self._report.counts["index entries of removed messages"] += 1
            return
        self._wrong(block, "index.wrong_entry", place, f"no message at {offset} in the log has such a key")

    def _check_time(self, block: IndexBlock, index: int, time_ms: int) -> None:
        number, seconds = block.first + index, block.entry(index)[2]
        begins = [block.begin_ms]
        if number == 1:
            begins.append(block.before_ms)  # the header had this time when the first entry was written
        wanted = {
            min(_MAX_SECONDS, max(0, (time_ms - begin) // 1000)) if begin > 0 else 0 for begin in begins
        }
        if seconds not in wanted:
            self._wrong(
                block,
                "index.wrong_time",
                block.place(index),
                f"the time is {seconds} s after {block.begin_ms}; the message was stored at {time_ms}",
            )
        if number == 1 and block.begin_ms != time_ms:
            self._wrong_header(block, block.begin_ms, time_ms)
        # After a crash, this project's broker restores the time of the last entry to the second.
        late_ms = 999 if self._directory.is_ours else 0
        # Before a step back of the clock there may be later messages than the last one. Then the header of
        # this project's broker has such a time, and that of Apache's broker the time of the last one.
        latest_ms = block.begin_ms + block.latest_seconds * 1000 + late_ms if late_ms else 0
        if number == block.last and not time_ms <= block.end_ms <= max(time_ms + late_ms, latest_ms):
            self._wrong_header(block, block.end_ms, time_ms)

    def _wrong_header(self, block: IndexBlock, said_ms: int, time_ms: int) -> None:
        text = f"the header has the time {said_ms} for a message that was stored at {time_ms}"
        if self._directory.state is StoreState.STOPPED:
            self._report.error("index.header", str(block.path), text)
        else:
            self._report.recoverable("index.unfinished", str(block.path), text)

    def _wrong(self, block: IndexBlock, kind: str, place: str, text: str) -> None:
        emit = self._report.recoverable if block.is_doubtful else self._report.error
        emit(kind, place, text)

    # --- missing entries ---

    def _miss(self, wanted: Item) -> None:
        count, first, _ = self._missing
        self._missing = (count + 1, first if count else wanted[1], wanted[1])

    def _report_gap(self) -> None:
        """Report missing entries that are followed by others: no broker adds them any more."""
        count, first, last = self._missing
        if count:
            self._missing = (0, 0, 0)
            text = f"{count} entries are missing, of messages at {first} to {last}"
            is_sure = self._directory.state is not StoreState.MACHINE_CRASHED
            emit = self._report.error if is_sure else self._report.recoverable
            emit("index.missing", "index", text)

    def _report_missing(self) -> None:
        count, first, last = self._missing
        if count == 0:
            return
        text = f"{count} entries are missing at the end, of messages at {first} to {last}"
        if not self._files.has_files:
            self._report.note("index.none", "index", f"there is no index file; the log has {count} keys")
        elif self._must_have(first):
            self._report.error("index.missing", "index", text)
        else:
            self._report.recoverable("index.behind", "index", text)

    def _must_have(self, offset: int) -> bool:
        """Return whether the entries of a message must exist, because no broker would add them any more."""
        state = self._directory.state
        if self._directory.is_ours:
            # It adds missing entries in the background, and notes its progress.
            return state is StoreState.STOPPED and offset < (self._directory.index_complete_to or 0)
        # Apache's broker adds a message's index entries right after its queue entry.
        return state is StoreState.STOPPED or self._files.has_damage or offset < self._certain_end

    def _current(self) -> IndexBlock | None:
        """Return the block of the next entry; None at the end."""
        while not self._ended and (self._block is None or self._at == len(self._block)):
            self._block = next(self._blocks, None)
            self._at = 0
            self._ended = self._block is None
        return self._block
