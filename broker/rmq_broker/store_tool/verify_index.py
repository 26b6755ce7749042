"""The index against the log: every key of a message has its entry, and every entry its key."""

from __future__ import annotations

from typing import Final

from .directory import Directory, Left
from .expected import INDEX_ITEM
from .findings import Report
from .log_files import NumberedFiles
from .verify_index_file import IndexBlock, IndexFilesCheck

_MAX_SECONDS: Final = 2**31 - 1

Item = tuple[int, int, int]
"""Hash, physical offset and store time of one key of a message."""


class IndexCheck:
    """Takes what the log's parts ask for, in the order of the log; then `finish`."""

    def __init__(
        self, directory: Directory, log: NumberedFiles, report: Report, *, slots: int | None, certain_end: int
    ) -> None:
        """`slots`: of each file, where it is known; `certain_end`: queues are complete up to there."""
        self._directory = directory
        self._log = log
        self._report = report
        self._certain_end = certain_end
        self._files = IndexFilesCheck(directory, report, slots)
        self._blocks = self._files.blocks()
        self._block: IndexBlock | None = None
        self._at = 0  # the next entry of the block
        self._ended = False
        # Of the last message with an entry that was as it should be, the offset and the hashes.
        self._previous: tuple[int, set[int]] = (-1, set())
        self._last_offset = -1  # of the last entry
        self._missing = (0, 0, 0)  # keys, and their first and their last message

    def take(self, packed: bytes | bytearray) -> None:
        """Compare the keys of one part. Raises OSError."""
        wanted: list[Item] = list(INDEX_ITEM.iter_unpack(packed))
        position = 0
        while position < len(wanted):
            position += self._take_equal(wanted, position)
            if position < len(wanted) and self._compare(wanted[position]):
                position += 1

    def finish(self, log_end: int) -> None:
        """Look at what the log did not ask for, and tell what was found. Raises OSError."""
        must_fit = self._directory.left in (Left.STOPPED, Left.KILLED)
        while (block := self._current()) is not None:
            (hashed, offset, _, _), place = block.entries[self._at], block.place(self._at)
            self._at += 1
            if offset >= log_end:
                tell = self._report.error if must_fit else self._report.unfinished
                tell("index.ahead", place, f"it is of a message at {offset}; the log ends at {log_end}")
            elif not self._is_repeated(hashed, offset):
                self._tell_stray(block, offset, place)
        self._tell_missing()

    # --- comparing ---

    def _take_equal(self, wanted: list[Item], position: int) -> int:
        """Pass over entries as long as they are what they should be; how many were."""
        block = self._current()
        if block is None:
            return 0
        begin_ms = block.begin_ms
        begin = self._at
        entries = block.entries
        count = min(len(wanted) - position, len(entries) - begin)
        passed = 0
        for index in range(count):
            hashed, offset, time_ms = wanted[position + index]
            entry = entries[begin + index]
            if entry[0] != hashed or entry[1] != offset:
                break
            if entry[2] != (time_ms - begin_ms) // 1000 or block.first + begin + index in (1, block.last):
                self._check_time(block, begin + index, time_ms)
            passed += 1
        if passed:
            self._at += passed
            self._tell_gap()
            self._remember(wanted, position, position + passed)
            self._report.counts["index entries"] += passed
        return passed

    def _compare(self, wanted: Item) -> bool:
        """Deal with an entry that is not the wanted one; whether that is done with."""
        block = self._current()
        if block is None:
            self._miss(wanted)
            return True
        hashed, offset, _, _ = block.entries[self._at]
        if (hashed, offset) == wanted[:2]:
            return False  # the first one of another block
        place = block.place(self._at)
        if offset < self._last_offset:
            self._wrong(
                block, "index.order", place, f"it is of {offset}, the one before of {self._last_offset}"
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
        self._tell_stray(block, offset, place)
        return False

    def _remember(self, wanted: list[Item], begin: int, end: int) -> None:
        """Entries were as they should be: note the last message of them."""
        offset = wanted[end - 1][1]
        if self._previous[0] != offset:
            self._previous = (offset, set())
        while end > begin and wanted[end - 1][1] == offset:
            end -= 1
            self._previous[1].add(wanted[end][0])
        self._last_offset = offset

    def _is_repeated(self, hashed: int, offset: int) -> bool:
        """Whether an entry is there a second time: Apache's broker does that after a crash."""
        if offset != self._previous[0] or hashed not in self._previous[1]:
            return False
        self._report.counts["index entries made twice"] += 1
        return True

    def _tell_stray(self, block: IndexBlock, offset: int, place: str) -> None:
        if 0 <= offset < self._log.start:
            self._report.counts["index entries of removed messages"] += 1
            return
        self._wrong(block, "index.wrong_entry", place, f"the log has no such key in a message at {offset}")

    def _check_time(self, block: IndexBlock, index: int, time_ms: int) -> None:
        number, seconds = block.first + index, block.entries[index][2]
        begins = [block.begin_ms]
        if number == 1:
            begins.append(block.before_ms)  # the header had that time when the first entry was made
        wanted = {
            min(_MAX_SECONDS, max(0, (time_ms - begin) // 1000)) if begin > 0 else 0 for begin in begins
        }
        if seconds not in wanted:
            self._wrong(
                block,
                "index.wrong_time",
                block.place(index),
                f"it says {seconds} s after {block.begin_ms}; the message was stored at {time_ms}",
            )
        if number == 1 and block.begin_ms != time_ms:
            self._wrong_header(block, block.begin_ms, time_ms)
        # After a crash this project's broker knows the time of the last entry by the second.
        late_ms = 999 if self._directory.is_ours else 0
        if number == block.last and not time_ms <= block.end_ms <= time_ms + late_ms:
            self._wrong_header(block, block.end_ms, time_ms)

    def _wrong_header(self, block: IndexBlock, said_ms: int, time_ms: int) -> None:
        text = f"it says {said_ms} of a message that was stored at {time_ms}"
        if self._directory.left is Left.STOPPED:
            self._report.error("index.header", str(block.path), text)
        else:
            self._report.unfinished("index.unfinished", str(block.path), text)

    def _wrong(self, block: IndexBlock, kind: str, place: str, text: str) -> None:
        tell = self._report.unfinished if block.is_doubtful else self._report.error
        tell(kind, place, text)

    # --- what has no entry ---

    def _miss(self, wanted: Item) -> None:
        count, first, _ = self._missing
        self._missing = (count + 1, first if count else wanted[1], wanted[1])

    def _tell_gap(self) -> None:
        """There are entries behind what is missing: nobody will make those any more."""
        count, first, last = self._missing
        if count:
            self._missing = (0, 0, 0)
            text = f"{count} entries are missing, of messages from {first} to {last}"
            is_sure = self._directory.left is not Left.MACHINE_CRASHED
            tell = self._report.error if is_sure else self._report.unfinished
            tell("index.missing", "index", text)

    def _tell_missing(self) -> None:
        count, first, last = self._missing
        if count == 0:
            return
        text = f"{count} entries are missing at its end, of messages from {first} to {last}"
        if not self._files.has_files:
            self._report.note("index.none", "index", f"there is no index file; the log has {count} keys")
        elif self._must_have(first):
            self._report.error("index.missing", "index", text)
        else:
            self._report.unfinished("index.behind", "index", text)

    def _must_have(self, offset: int) -> bool:
        """Whether the entries of a message have to be there, so that nobody will make them any more."""
        left = self._directory.left
        if self._directory.is_ours:
            # It makes in the background what is missing, and notes how far it is.
            return left is Left.STOPPED and offset < (self._directory.index_complete_to or 0)
        # Apache's broker makes a message's entries right after the one in its queue.
        return left is Left.STOPPED or self._files.has_damage or offset < self._certain_end

    def _current(self) -> IndexBlock | None:
        """The block of the next entry; None where there is none."""
        while not self._ended and (self._block is None or self._at == len(self._block.entries)):
            self._block = next(self._blocks, None)
            self._at = 0
            self._ended = self._block is None
        return self._block
