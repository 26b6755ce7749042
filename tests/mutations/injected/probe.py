"""The table of reached places, shared by all processes of one test run.

The file `table` beside this module has the number of the current row and the number of places, 8 bytes each,
and then a byte for each row and place. A row belongs to a test or to a fixture that tests share.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

_HEADER_BYTES: Final = 16

with (Path(__file__).parent / "table").open("r+b") as _file:
    _table = mmap.mmap(_file.fileno(), 0)
_header: Final = memoryview(_table)[:_HEADER_BYTES].cast("q")
_PLACES: Final = _header[1]


def reached(place: int) -> None:
    """Record that the current row reached a place."""
    _table[_HEADER_BYTES + _header[0] * _PLACES + place] = 1


def row() -> int:
    """Return the current row. Row 0 is for what no test does: imports and the collection of tests."""
    return _header[0]


def enter(number: int) -> None:
    """Let the following records belong to another row."""
    _header[0] = number


def places(number: int) -> list[int]:
    """Return the places that a row reached."""
    start = _HEADER_BYTES + number * _PLACES
    return [place for place, hit in enumerate(_table[start : start + _PLACES]) if hit]
