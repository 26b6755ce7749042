"""Scans of all entries in the timer log and of all slots in use.

Apart from log and wheel, because generators stay interpreted (docs/compiling.md).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from ..store.api import file_name
from .log_unit import BLANK, BLANK_MAGIC, UNIT, UNIT_BYTES, Unit, unit_of
from .timer_log import TimerLog
from .wheel import Slot, TimerWheel

_SCAN_BYTES: Final = 1 << 20


def slots_in_use(wheel: TimerWheel, begin_ms: int) -> Iterator[Slot]:
    """Iterate over the slots in use for times from `begin_ms` on, in the order of the file."""
    for page in wheel.used_pages():
        yield from wheel.slots_of_page(page, begin_ms)


def scan_log(timer_log: TimerLog, begin: int) -> Iterator[tuple[int, Unit]]:
    """Iterate over the entries from `begin` on with their positions, up to the first invalid one.

    `begin` is the position of an entry, or the beginning of a file. Raises OSError.
    """
    file_bytes = timer_log.file_bytes
    while begin < timer_log.end:
        if not (yield from _scan_file(timer_log, begin)):
            return
        begin += file_bytes - begin % file_bytes


def scan_valid(timer_log: TimerLog, begin: int, commit_log_end: int) -> Iterator[tuple[int, Unit]]:
    """Iterate as `scan_log`, up to the first entry whose message the commit log has lost."""
    for position, unit in scan_log(timer_log, begin):
        if unit.end > commit_log_end:
            return
        yield position, unit


def _scan_file(timer_log: TimerLog, begin: int) -> Generator[tuple[int, Unit], None, bool]:
    """Iterate over the entries of one file; return whether they continue in the next file."""
    start = begin - begin % timer_log.file_bytes
    with (timer_log.folder / file_name(start)).open("rb", buffering=_SCAN_BYTES) as stream:
        stream.seek(begin - start)
        while True:
            raw = stream.read(UNIT_BYTES)
            if len(raw) >= BLANK.size and BLANK.unpack_from(raw)[2] == BLANK_MAGIC:
                return True
            unit = unit_of(UNIT.unpack(raw)) if len(raw) == UNIT_BYTES else None
            if unit is None:
                return False
            yield begin, unit
            begin += UNIT_BYTES
