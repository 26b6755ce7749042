"""Index files as `rmq-store` reads them, also while a broker writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.index.index_file import IndexFile as WrittenFile
from rmq_broker.store_tool.index_files import IndexFile

SLOTS = 2000
# The broker writes the header after the first entry and then after every 64.
ENTRIES_IN_HEADER = 64


@pytest.mark.parametrize("entries", [ENTRIES_IN_HEADER, ENTRIES_IN_HEADER + 30])
def test_slots_are_found_while_the_header_lags_behind(tmp_path: Path, entries: int) -> None:
    written = WrittenFile.create(tmp_path / "a", SLOTS, 1000)
    written.begin(4096, 1000)
    for number in range(entries):
        # The last entries replace those of the header in their slots.
        assert written.put(number % 30, 4096 + number, 1000)

    file = IndexFile(tmp_path / "a")

    assert file.entries == ENTRIES_IN_HEADER
    assert file.find_slots() == SLOTS
    file.close()
