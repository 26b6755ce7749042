"""A directory on a disk that keeps only flushed data, in a machine whose power fails at any flush."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from rmq_broker.delivery.message_writer import Written
from tests.support.flush_calls import FlushCall, WriteCall, intercepted_flushes
from tests.support.power_loss import SyncedMemory, cut_power
from tests.support.stores import machine_crashed

_SHARES_KEPT = (0.0, 0.1, 0.5, 0.9)


class PoweredDisk:
    """The directory `root`, and what a power cut leaves of it (`tests/support/power_loss.py`)."""

    def __init__(self, home: Path, chance: random.Random, *, strict_names: bool) -> None:
        self.root = home / "store"
        self._is_off = False
        self._memory_folder = home / "memory"
        self._left = home / "left"
        self._chance = chance
        self._strict_names = strict_names
        self._flushes_left: int | None = None
        self._failing_flushes = 0
        self._lock = Lock()  # flushes are made in several threads
        self._memory = self._remembered()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See every flush of this process."""
        with intercepted_flushes(self._flushed, self._mapped, self._written):
            yield
        self._memory.close()

    @property
    def is_on(self) -> bool:
        """Whether the power is on: data that is flushed now stays, and a client would get an answer now."""
        return not self._is_off

    def lose_power_after(self, flushes: int) -> None:
        """Let that many more flushes succeed; the power fails before the next one."""
        self._flushes_left = flushes

    def note_content(self, path: Path) -> None:
        """Keep the present content of a file, which is about to change in a way that cannot be watched.

        Until the next flush each of its pages may be on the disk.
        """
        self._written(WriteCall(str(path), path.stat().st_ino, 0, path.read_bytes()))

    def fail_flushes(self, flushes: int) -> None:
        """Let that many flushes fail with EIO. Later flushes skip the pages unless they are written again."""
        self._failing_flushes = flushes

    def lose_power(self) -> None:
        """Let the power go now, if it is not gone yet."""
        with self._lock:
            self._cut()

    def turn_on(self) -> None:
        """Have in `root` what the power cut has left; nobody may have it open."""
        assert self._is_off
        self._memory.close()
        for folder in (self.root, self._memory_folder):
            shutil.rmtree(folder)
        self._left.rename(self.root)
        if (self.root / "abort").exists():  # otherwise the power went before anything was stored
            machine_crashed(self.root)
        self._memory = self._remembered()
        self._flushes_left = None
        self._failing_flushes = 0
        self._is_off = False

    def _remembered(self) -> SyncedMemory:
        return SyncedMemory(self.root, self._memory_folder, strict_names=self._strict_names)

    def _flushed(self, call: FlushCall) -> bool:
        with self._lock:
            if self._failing_flushes and not self._is_off:
                self._failing_flushes -= 1
                if not call.is_folder:
                    self._memory.lost(call)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self._flushes_left == 0:
                self._cut()
            elif self._flushes_left is not None:
                self._flushes_left -= 1
            if not self._is_off:
                self._memory.flushed(call)
        return False

    def _mapped(self, descriptor: int) -> None:
        with self._lock:
            if not self._is_off:
                self._memory.pin(descriptor)

    def _written(self, call: WriteCall) -> None:
        with self._lock:
            if not self._is_off:
                self._memory.written(call)

    def _cut(self) -> None:
        if not self._is_off:
            share_kept = self._chance.choice(_SHARES_KEPT)
            cut_power(self.root, self._memory_folder, self._left, self._chance, share_kept)
            self._is_off = True


def end_of(place: Written) -> int:
    """Where a message ends in the commit log."""
    return place.physical_offset + place.size_bytes
