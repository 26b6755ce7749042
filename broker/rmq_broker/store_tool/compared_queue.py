"""State of one queue during the comparison with the log: compared, missing and wrong entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .expected import Run
from .layout import BATCH_UNIT
from .queue_files import ExtensionFiles, QueueFiles

KEPT_FAULTS: Final = 100
# Part of a batch unit that is compared; readers do not use the rest.
_UNIT_COMPARED_BYTES: Final = 38
_OFFSET_BYTES: Final = 8


@dataclass(slots=True)
class Missing:
    """Consecutive messages of a queue without entries; their offsets in queue and log."""

    first: int
    next: int
    first_physical: int
    last_physical: int


@dataclass(slots=True)
class ComparedQueue:
    """One queue and the result of its comparison so far."""

    files: QueueFiles
    extension: ExtensionFiles
    is_batch: bool
    is_light: bool
    next: int | None = None  # queue offset behind the last message in the log
    covered: list[list[int]] = field(default_factory=list)  # ranges of compared entries, by number
    missing: list[Missing] = field(default_factory=list)
    missing_more: int = 0  # further messages without entry
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0
    # For a queue of batches: the number of the unit to compare next, and the numbers of all units by their
    # packed log offset, which are collected when a unit first has to be searched.
    next_unit: int | None = None
    units: dict[bytes, int] | None = None

    def restart(self) -> None:
        """Reset the results: the topic was deleted and created again."""
        self.covered, self.missing, self.faults = [], [], []
        self.fault_count = self.missing_more = 0
        self.next_unit = None

    def cover(self, first: int, behind: int) -> None:
        """Note compared entries. Ranges arrive in order, unless the log uses queue offsets twice."""
        if first == behind:
            return
        if self.covered and self.covered[-1][1] == first:
            self.covered[-1][1] = behind
            return
        self.covered.append([first, behind])
        self.covered.sort()

    def miss(self, first: int, behind: int, physical_offset: int) -> None:
        """Note messages without entries."""
        last = self.missing[-1] if self.missing else None
        if last is not None and last.next == first:
            last.next, last.last_physical = behind, physical_offset
        elif len(self.missing) == KEPT_FAULTS:
            self.missing_more += behind - first
        else:
            self.missing.append(Missing(first, behind, physical_offset, physical_offset))

    def fault(self, text: str) -> None:
        """Note a wrong entry."""
        self.fault_count += 1
        if len(self.faults) < KEPT_FAULTS:
            self.faults.append(text)

    # --- queues of batches ---

    def compare_batches(self, run: Run, log_start: int) -> None:
        """Compare units, whose numbers do not follow from their queue offsets. Raises OSError."""
        if self.next_unit is None:
            self.next_unit = self._first_unit(log_start)
        size = BATCH_UNIT.size
        entries = bytes(run.entries)
        count = len(entries) // size
        if self.files.read(self.next_unit, count) == entries:
            self.cover(self.next_unit, self.next_unit + count)
            self.next_unit += count
            return
        for at in range(0, len(entries), size):
            self._compare_unit(entries[at : at + size])

    def _compare_unit(self, wanted: bytes) -> None:
        offset = wanted[:_OFFSET_BYTES]
        number = self.next_unit
        assert number is not None
        found = self.files.read(number, 1)
        if found[:_OFFSET_BYTES] != offset or not any(found):
            place = self._place_of(offset)
            if place is None:
                physical_offset, _, _, _, first, messages, _, _ = BATCH_UNIT.unpack(wanted)
                self.miss(first, first + messages, physical_offset)
                return
            number = place
            found = self.files.read(number, 1)
        if found[:_UNIT_COMPARED_BYTES] != wanted[:_UNIT_COMPARED_BYTES]:
            self.fault(f"unit {number} is {found.hex()}; by the log it must be {wanted.hex()}")
        self.cover(number, number + 1)
        self.next_unit = number + 1

    def _first_unit(self, log_start: int) -> int:
        """Return the number of the first unit whose record the log still has."""
        return self.files.find(
            lambda unit: int.from_bytes(unit[:_OFFSET_BYTES], "big") < log_start, self.files.end_of_entries()
        )

    def _place_of(self, offset: bytes) -> int | None:
        """Return the number of a record's unit, by its packed log offset; None without one."""
        if self.units is None:
            self.units = {}
            size = BATCH_UNIT.size
            for number, block in self.files.blocks(self.files.first):
                for at in range(0, len(block), size):
                    if any(block[at : at + size]):
                        self.units.setdefault(block[at : at + _OFFSET_BYTES], number + at // size)
        return self.units.get(offset)
