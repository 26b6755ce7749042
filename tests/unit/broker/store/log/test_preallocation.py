"""Preallocation of the log: in time, and never over appended records."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.store.errors import LogBusy
from rmq_broker.store.log import commit_log, record
from rmq_broker.store.log.commit_log import CommitLog
from rmq_broker.store.log.mapped_file import MappedFile, list_files
from rmq_broker.store.log.preallocation import LogPreallocator
from tests.support.waiting import until

FILE_BYTES = 256 * 1024
AHEAD_BYTES = 32 * 1024


class Parts:
    def __init__(self, folder: Path, *, touch: bool = True, may_wait: bool = True) -> None:
        self.now = 0.0
        self.progress = 0
        self.preallocator = LogPreallocator(
            touch=touch, ahead_bytes=AHEAD_BYTES, next_ahead_bytes=AHEAD_BYTES, clock=lambda: self.now
        )
        self.preallocator.start(self._count)
        self.log = CommitLog(folder, FILE_BYTES, self.preallocator, may_wait=may_wait)
        self.log.load()
        self.folder = folder

    def append(self, size: int, byte: bytes = b"x") -> MappedFile:
        file = self.log.file_for_append(size)
        file.map[file.wrote : file.wrote + size] = byte * size
        file.wrote += size
        return file

    def close(self) -> None:
        self.preallocator.close()
        self.log.close()

    def _count(self) -> None:
        self.progress += 1


@pytest.fixture(params=[True, False], ids=["touched", "reserved"])
def parts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Parts]:
    made = Parts(tmp_path / "commitlog", touch=request.param)
    yield made
    made.close()


async def test_space_is_allocated_behind_the_appends(parts: Parts) -> None:
    file = parts.append(1000)
    await until(lambda: file.preallocate_at)
    assert file.reserved >= 1000 + AHEAD_BYTES
    assert file.preallocate_at == file.reserved - AHEAD_BYTES
    assert file.path.stat().st_blocks * 512 >= file.reserved
    reserved = file.reserved
    parts.append(file.preallocate_at - file.wrote)  # up to the mark: no request yet
    assert file.reserved == reserved
    parts.append(1)
    await until(lambda: file.reserved > reserved)


async def test_the_next_file_exists_before_the_last_is_full(parts: Parts) -> None:
    first = parts.append(FILE_BYTES - AHEAD_BYTES)
    await until(lambda: first.preallocate_at == FILE_BYTES)
    names = [path.name for path in list_files(parts.folder)]
    assert names == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert parts.log.files == [first]
    second = parts.append(2 * AHEAD_BYTES)
    assert (second.start, second.wrote) == (FILE_BYTES, 2 * AHEAD_BYTES)
    assert parts.log.files == [first, second]
    assert first.wrote == FILE_BYTES


async def test_an_unused_next_file_is_removed(parts: Parts) -> None:
    file = parts.append(FILE_BYTES - AHEAD_BYTES)
    await until(lambda: file.preallocate_at == FILE_BYTES)
    parts.preallocator.close()
    parts.log.drop_next()
    assert [path.name for path in list_files(parts.folder)] == [f"{0:020d}"]


async def test_appends_that_outrun_the_preallocation_lose_nothing(parts: Parts) -> None:
    """The thread's zeros never overwrite appended records."""
    appended = []
    for number in range(2000):
        size = 100 + number % 1000
        byte = bytes((1 + number % 255,))
        file = parts.append(size, byte)
        appended.append((file.start + file.wrote - size, size, byte))
    parts.preallocator.close()
    assert all(parts.log.read(offset, size) == byte * size for offset, size, byte in appended)
    assert parts.log.files[-1].start >= 3 * FILE_BYTES


async def test_the_next_file_is_not_created_twice(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the thread, while the append that created the file is about to use it."""
    parts.preallocator.close()
    appended: list[tuple[int, bytes]] = []

    def append(byte: bytes) -> None:
        file = parts.append(100_000, byte)
        appended.append((file.start + file.wrote - 100_000, byte * 100_000))

    pack = record.pack_blank

    def room_is_made_now(size: int) -> bytes:
        current = parts.log.current
        assert current is not None
        parts.log.prepare_next(current, lambda file: file.touch(FILE_BYTES))
        return pack(size)

    monkeypatch.setattr(commit_log, "pack_blank", room_is_made_now)
    for number in range(10):
        append(bytes((65 + number,)))
    assert [file.start for file in parts.log.files] == [number * FILE_BYTES for number in range(5)]
    assert all(parts.log.read(offset, len(content)) == content for offset, content in appended)


async def test_a_full_disk_is_left_to_the_append(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    tries = 0

    def fail(file: MappedFile, until: int) -> None:
        nonlocal tries
        tries += 1
        raise full

    file = parts.append(1000)
    await until(lambda: file.preallocate_at)
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "touch", fail)
        patch.setattr(MappedFile, "reserve", fail)
        begin = file.preallocate_at
        for _ in range(3):
            parts.append(file.preallocate_at - file.wrote + 1)
            await until(lambda: tries)
        await until(lambda: not parts.preallocator.is_busy)
        assert (tries, file.preallocate_at) == (1, begin)  # it pauses, appends go on
    parts.now = 2.0
    parts.append(1)
    await until(lambda: file.preallocate_at > begin)


async def test_unexpected_errors_are_logged(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(preallocator: LogPreallocator, file: MappedFile, until: int) -> None:
        raise ValueError("mmap closed or invalid")

    with monkeypatch.context() as patch:
        patch.setattr(LogPreallocator, "_reserve", fail)
        file = parts.append(1000)
        await until(lambda: "mmap closed or invalid" in caplog.text)
    parts.now = 2.0
    parts.append(1)
    await until(lambda: file.preallocate_at)


async def test_a_next_file_that_could_be_neither_synced_nor_removed(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append creates a file of that name, which is flushed with the appended records."""
    synced: list[str] = []
    tries = 0

    def fail(*_: object, **__: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        patch.setattr(Path, "unlink", fail)
        parts.append(FILE_BYTES - AHEAD_BYTES)
        await until(lambda: tries == 2 and not parts.preallocator.is_busy)
    parts.preallocator.close()
    assert len(list_files(parts.folder)) == 2
    parts.append(2 * AHEAD_BYTES)
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    parts.log.files[-1].flush()
    assert str(parts.folder) in synced


class _Gate:
    """Lets each flush of a file or folder wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_continue = threading.Event()
        monkeypatch.setattr(os, "fsync", lambda descriptor: self._may_continue.wait(10))

    def open(self) -> None:
        self._may_continue.set()

    def close(self) -> None:
        self._may_continue.clear()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Gate]:
    """A disk whose flushes end when the test says so."""
    made = _Gate(monkeypatch)
    yield made
    made.open()


@pytest.fixture(params=[True, False], ids=["touched", "reserved"])
def impatient(tmp_path: Path, gate: _Gate, request: pytest.FixtureRequest) -> Iterator[Parts]:
    """A log that may not wait for the disk."""
    made = Parts(tmp_path / "commitlog", touch=request.param, may_wait=False)
    yield made
    gate.open()
    made.close()


async def _append(parts: Parts, size: int) -> None:
    """Append as soon as there is space."""

    def is_appended() -> bool:
        try:
            parts.append(size)
        except LogBusy:
            return False
        return True

    await until(is_appended)


async def test_a_log_that_may_not_wait_refuses_the_first_append_without_a_file(
    impatient: Parts, gate: _Gate
) -> None:
    with pytest.raises(LogBusy, match="the disk has not provided space"):
        impatient.append(1000)
    assert impatient.log.space.is_short
    assert (impatient.progress, impatient.log.files) == (0, [])
    gate.open()
    await until(lambda: impatient.progress)
    assert impatient.append(1000).start == 0


async def test_a_log_that_may_not_wait_refuses_to_roll_over_without_a_file(
    impatient: Parts, gate: _Gate
) -> None:
    gate.open()
    await _append(impatient, FILE_BYTES // 2)
    gate.close()
    file = impatient.log.files[0]
    await _append(impatient, FILE_BYTES - file.wrote - 34_000)
    for size in (50_000, 10_000):
        impatient.log.space.is_short = False
        with pytest.raises(LogBusy):
            impatient.append(size)
        assert impatient.log.space.is_short
    impatient.append(4_000)  # small appends get the rest of the file
    assert (file.wrote, impatient.log.files) == (FILE_BYTES - 30_000, [file])
    gate.open()
    await _append(impatient, 50_000)
    assert [each.start for each in impatient.log.files] == [0, FILE_BYTES]
    assert impatient.log.max_offset == FILE_BYTES + 50_000


async def test_sends_wait_before_the_file_is_full(impatient: Parts, gate: _Gate) -> None:
    """The rest of the file is for acknowledgements and the broker's own records."""
    gate.open()
    await _append(impatient, FILE_BYTES // 2)
    gate.close()
    file = impatient.log.files[0]
    impatient.log.space.is_short = False
    await _append(impatient, FILE_BYTES - file.wrote - FILE_BYTES // 8 - 1000)
    await until(lambda: file.reserved == file.size)
    impatient.log.space.is_short = False
    await _append(impatient, 2000)
    assert impatient.log.space.is_short


async def test_a_log_that_may_not_wait_raises_the_error_of_the_disk(
    impatient: Parts, gate: _Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.open()

    def fail(file: MappedFile, until: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "touch", fail)
        patch.setattr(MappedFile, "reserve", fail)
        with pytest.raises((OSError, LogBusy)):
            impatient.append(1000)
        await until(lambda: impatient.progress)
        with pytest.raises(OSError, match="No space left on device"):
            impatient.append(1000)
        assert not impatient.log.space.is_short
    impatient.now = 2.0
    with pytest.raises((OSError, LogBusy)):  # it asks for space again
        impatient.append(1000)
    await until(lambda: impatient.log.has_next)
    assert impatient.append(1000).start == 0


def test_touching_keeps_reserved_bytes(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / f"{0:020d}", FILE_BYTES, step_bytes=4096)
    file.reserve(1000)
    file.map[: file.reserved] = b"d" * file.reserved
    reserved = file.reserved
    file.touch(reserved + 5000)
    assert file.map[:reserved] == b"d" * reserved
    assert file.reserved == reserved + 5000
    file.touch(FILE_BYTES * 2)
    assert file.reserved == FILE_BYTES
    file.close()
