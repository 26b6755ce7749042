"""Power cuts of the index: each page of a file has any content that it had since its flush, or a mixture.

Entries are packed into memory maps, where a page may reach the disk at any time. The test notes what the
pages hold before each message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.store.log.record import RecordSummary
from tests.support.clock import START_MS
from tests.support.rows import each_row, each_seed
from tests.unit.broker.powered_disk import PoweredDisk
from tests.unit.broker.store.index.parts import RECORD_BYTES, FakeLog, Indexed, unique, unique_of_one_head

_CUTS: Final = 4
_STEPS: Final = 25
_MOST_FLUSHES: Final = 15
_SEEDS: Final = 6
_LONG_SEEDS: Final = 150
# Two or three pages: the slots are in the first one, most of the entries in the others.
_SIZES: Final = {"maxHashSlotNum": 600, "maxIndexNum": 350}
# The store times of the messages, by their number.
_CLOCKS: Final[dict[str, Callable[[int], int]]] = {
    "ascending": lambda number: number,
    "equal": lambda number: number // 5000,
    "set back": lambda number: number % 700 - number,
}


class _Log(FakeLog):
    """A log whose messages are stored at any times, and whose end a power cut takes."""

    def __init__(self, clock: Callable[[int], int]) -> None:
        super().__init__()
        self._clock = clock

    def append(
        self, topic: str = "T", unique_key: str = "", keys: str = "", *, sys_flag: int = 0
    ) -> RecordSummary:
        record = super().append(topic, unique_key, keys, sys_flag=sys_flag)
        record.store_timestamp_ms = START_MS + self._clock(record.physical_offset // RECORD_BYTES)
        return record

    def lose_end(self, end: int) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset < end}
        self.max_offset = end


class _Machine:
    """An index that is opened again after each power cut."""

    def __init__(self, disk: PoweredDisk, chance: random.Random, clock: Callable[[int], int]) -> None:
        self._disk = disk
        self._chance = chance
        self._log = _Log(clock)
        self.indexed = Indexed(disk.root, self._log, **_SIZES)
        self._checkpoint_ms = 0
        self._log_flushed = 0
        self._messages = 0

    def open(self) -> None:
        """Open the index as after a crash of the machine, and check it."""
        self.indexed.open(clean=False, same_boot=False, checkpoint_ms=self._checkpoint_ms)
        assert self.indexed.index.catch_up()
        self.indexed.check()

    async def run_until_power_is_lost(self) -> None:
        self._disk.lose_power_after(self._chance.randrange(_MOST_FLUSHES))
        self.open()
        for _ in range(_STEPS):
            if not self._disk.is_on:
                break
            await self._chance.choice([self.put, self.put, self.maintain, self.save_checkpoint])()
        self._disk.lose_power()
        self.indexed.index.close()
        self._disk.turn_on()
        self.lose_end_of_log()

    # --- steps ---

    async def put(self) -> None:
        """Store messages under one key or several, or a batch."""
        for _ in range(self._chance.choice([1, 10, 50])):
            for path in (self._disk.root / "index").glob("*"):
                self._disk.note_content(path)
            key, self._messages = unique(self._messages), self._messages + 1
            form = self._chance.random()
            if form < 0.1:
                self.indexed.append_batch("T", key, None, self._chance.randrange(1, 60))
            elif form < 0.15:
                keys = unique_of_one_head(self._messages, self._chance.randrange(1, 60))
                self.indexed.append_messages("T", keys)
            else:
                self.indexed.append("T", key, "" if form < 0.8 else f"a{form:.1f} b{form:.2f}")

    async def maintain(self) -> None:
        """Create the next file, flush full ones, catch up."""
        await self.indexed.index.run_once()

    async def save_checkpoint(self) -> None:
        """Note what the store's checkpoint holds, which is written with the log and the queues."""
        checkpoint_ms, end = self.indexed.index.flushed_timestamp_ms, self._log.max_offset
        if self._disk.is_on:
            self._checkpoint_ms, self._log_flushed = checkpoint_ms, end

    # --- inside ---

    def lose_end_of_log(self) -> None:
        """Let the log end at its last flush, or behind it."""
        begin, end = self._log_flushed // RECORD_BYTES, self._log.max_offset // RECORD_BYTES
        end = self._chance.choice([begin, self._chance.randint(begin, end), end]) * RECORD_BYTES
        self._log.lose_end(end)
        model = self.indexed.model
        self.indexed.model = {key: [at for at in offsets if at < end] for key, offsets in model.items()}


async def _run(home: Path, seed: int, clock: str) -> None:
    chance = random.Random(seed)
    disk = PoweredDisk(home, chance, strict_names=seed % 2 == 1)
    with disk.watched():
        machine = _Machine(disk, chance, _CLOCKS[clock])
        for _ in range(_CUTS):
            await machine.run_until_power_is_lost()
        machine.open()
        machine.indexed.index.close()


@each_row("clock", _CLOCKS)
@each_seed(_SEEDS)
async def test_all_messages_are_found(tmp_path: Path, seed: int, clock: str) -> None:
    await _run(tmp_path, seed, clock)


@pytest.mark.long
@pytest.mark.parametrize("clock", _CLOCKS)
async def test_all_messages_are_found_in_many_runs(tmp_path: Path, clock: str) -> None:
    for seed in range(_SEEDS, _LONG_SEEDS):
        (tmp_path / str(seed)).mkdir()
        await _run(tmp_path / str(seed), seed, clock)
