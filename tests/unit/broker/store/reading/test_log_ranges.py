"""Ranges of the log: read at once if they are in memory, otherwise in a thread."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import Preadv
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.reading.log_ranges import (
    ColdData,
    ColdLog,
    SequentialReads,
    WarmLog,
    read_records,
)
from tests.support.stores import fill, log_file, opened

_MEBIBYTE = 1024 * 1024


def _failing(number: int, calls: list[int] | None = None) -> Preadv:
    """A `preadv` without RWF_NOWAIT, or one that fails."""

    def preadv(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        if calls is not None:
            calls.append(flags)
        if flags or number == errno.EIO:
            raise OSError(number, os.strerror(number))
        return os.preadv(descriptor, buffers, position, flags)

    return preadv


def _always_cold(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
    raise BlockingIOError(errno.EAGAIN, "not in memory")


def _half_cold(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
    return os.preadv(descriptor, buffers, position, flags) // 2


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    """Three log files, with records of one queue."""
    store = opened(tmp_path)
    fill(store, 900, size=100)
    assert len(store.commit_log.files) >= 3
    return store


def _ranges(store: MessageStore, count: int = 900) -> list[tuple[int, int]]:
    queue = store.queues.get("Topic0", 0)
    assert queue is not None
    entries = [queue.entry(number) for number in range(count)]
    return [entry[:2] for entry in entries if entry is not None]


def test_every_range_reads_as_it_was_written(store: MessageStore) -> None:
    warm, cold = WarmLog(store.commit_log), ColdLog(store.commit_log.files, SequentialReads())
    for offset, size in _ranges(store):
        written = store.commit_log.read(offset, size)
        assert written is not None
        assert bytes(warm.read(offset, size) or b"") == written
        assert cold.read(offset, size) == written
    assert cold.bytes_read == sum(size for _, size in _ranges(store))
    store.close()


def test_a_range_that_is_longer_than_the_buffer(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=2 * _MEBIBYTE)
    fill(store, 3000, size=200)
    end = store.commit_log.max_offset
    assert end > 512 * 1024
    assert WarmLog(store.commit_log).read(0, end) == store.commit_log.read(0, end)
    store.close()


@pytest.mark.parametrize("preadv", [_always_cold, _half_cold])
def test_ranges_not_fully_in_memory_are_cold(store: MessageStore, preadv: Preadv) -> None:
    with pytest.raises(ColdData):
        WarmLog(store.commit_log, preadv).read(0, 1000)
    store.close()


def test_ranges_beyond_the_log_are_none(store: MessageStore) -> None:
    """The disk is not even asked."""
    end = store.commit_log.max_offset
    file_bytes = store.commit_log.files[0].size
    for read in (
        WarmLog(store.commit_log, _always_cold).read,
        ColdLog(store.commit_log.files, SequentialReads()).read,
    ):
        assert read(end - 10, 11) is None
        assert read(end + file_bytes, 1) is None
        assert read(file_bytes - 10, 20) is None  # in two files
        assert read(0, 0x7FFFFFFF) is None
    assert WarmLog(store.commit_log, _always_cold).read(end, 1) is None
    store.close()
    assert WarmLog(store.commit_log).read(0, 1) is None


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_a_file_system_without_nowait_is_asked_once(store: MessageStore, number: int) -> None:
    calls: list[int] = []
    warm = WarmLog(store.commit_log, _failing(number, calls))
    assert warm.is_exact
    for offset, size in _ranges(store, 3):
        assert warm.read(offset, size) == store.commit_log.read(offset, size)
    assert calls == [os.RWF_NOWAIT, 0, 0, 0]
    assert not warm.is_exact
    store.close()


def test_an_error_of_the_disk_is_not_cold_data(store: MessageStore) -> None:
    with pytest.raises(OSError, match="Input/output error"):
        WarmLog(store.commit_log, _failing(errno.EIO)).read(0, 100)
    store.close()


def test_a_file_that_is_removed_meanwhile_can_be_read_to_the_end(store: MessageStore, tmp_path: Path) -> None:
    offset, size = _ranges(store, 1)[0]
    written = store.commit_log.read(offset, size)
    cold = ColdLog(store.commit_log.files, SequentialReads())
    store.commit_log.remove_oldest()
    log_file(tmp_path).unlink()
    assert WarmLog(store.commit_log).read(offset, size) is None
    assert ColdLog(store.commit_log.files, SequentialReads()).read(offset, size) is None
    assert cold.read(offset, size) == written
    store.close()


def test_a_closed_store_reads_nothing(store: MessageStore) -> None:
    cold = ColdLog(store.commit_log.files, SequentialReads())
    store.close()
    assert cold.read(0, 100) is None
    cold.plan_ahead("T", 0, 100)
    cold.read_ahead()
    cold.plan_ahead("T", 100, 200)
    cold.read_ahead()


def test_evicted_pages_are_read_from_disk(tmp_path: Path) -> None:
    """Pages are evicted from the page cache, if the file system allows that."""
    store = opened(tmp_path, log_file_bytes=4 * _MEBIBYTE)
    fill(store, 4000, size=900)
    ranges = _ranges(store, 4000)
    written = [store.commit_log.read(*each) for each in ranges]
    store.close()
    store = opened(tmp_path, log_file_bytes=4 * _MEBIBYTE)  # the pages are not mapped any more
    for file in store.commit_log.files:
        file.sync_name()
    store.close()
    _drop_pages(log_file(tmp_path))
    store = _opened_cold(tmp_path)
    warm, cold = WarmLog(store.commit_log), ColdLog(store.commit_log.files, SequentialReads())
    if any(_is_in_memory(log_file(tmp_path), ranges[index][0]) for index in (0, 1000)):
        store.close()
        pytest.skip("this file system does not drop pages")
    assert [cold.read(*each) for each in ranges[:8]] == written[:8]
    # The thread has read no more than the range.
    assert not _is_in_memory(log_file(tmp_path), ranges[1000][0])
    found = warm.read(*ranges[0])
    assert found is not None
    assert bytes(found) == written[0]
    store.close()


def _is_in_memory(path: Path, position: int) -> bool:
    """Whether a page of a file is in the page cache; asking does not read it."""
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * (-(-len(mapped) // mmap.PAGESIZE)))()
        first = ctypes.c_char.from_buffer(mapped)
        ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(len(mapped)), pages)
        del first
        return bool(pages[position // mmap.PAGESIZE] & 1)


def _drop_pages(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def _opened_cold(root: Path) -> MessageStore:
    """Opened as after a clean stop: recovery reads the log's end only."""
    store = opened(root, log_file_bytes=4 * _MEBIBYTE)
    for file in store.commit_log.files:
        file.map.close()
        file.read(0, file.size)  # the system may be reading ahead: pages that it is reading are not dropped
        file.advise(0, 0, os.POSIX_FADV_DONTNEED)
    return store


# --- records ---


class _Reads:
    """Counts the ranges that are read."""

    def __init__(self, missing: Sequence[int] = ()) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.missing = missing

    def __call__(self, offset: int, size: int) -> bytes | None:
        self.ranges.append((offset, size))
        if any(offset <= each < offset + size for each in self.missing):
            return None
        return bytes((offset + i) % 251 for i in range(size))


def _expected(ranges: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(bytes((offset + i) % 251 for i in range(size)) for offset, size in ranges)


def test_adjacent_records_are_read_as_one_range() -> None:
    ranges = [(1000, 100), (1500, 100), (1600, 50), (18_034, 10), (40_000, 10)]
    reads = _Reads()
    assert read_records(ranges, reads) == (_expected(ranges), [0, 1, 2, 3, 4])
    assert reads.ranges == [(1000, 17_044), (40_000, 10)]


def test_no_range_is_longer_than_a_buffer() -> None:
    ranges = [(number * 10_000, 1000) for number in range(60)]
    reads = _Reads()
    assert read_records(ranges, reads)[0] == _expected(ranges)
    assert max(size for _, size in reads.ranges) <= 256 * 1024
    assert len(reads.ranges) == 3


def test_descending_records_are_read_separately() -> None:
    ranges = [(5000, 10), (1000, 10), (1010, 10), (1005, 10)]
    reads = _Reads()
    assert read_records(ranges, reads)[0] == _expected(ranges)
    assert reads.ranges == [(5000, 10), (1000, 20), (1005, 10)]


def test_existing_records_next_to_missing_ones_are_read() -> None:
    ranges = [(1000, 100), (1100, 100), (1300, 100), (50_000, 10), (90_000, 10)]
    reads = _Reads(missing=[1150, 50_000])
    assert read_records(ranges, reads) == (_expected([ranges[0], ranges[2], ranges[4]]), [0, 2, 4])
    assert read_records(ranges, _Reads(missing=range(1000, 90_001, 10))) == (b"", [])


# --- reading ahead ---


def test_only_sequential_reads_read_ahead() -> None:
    reads = SequentialReads()
    assert not reads.note("a", 0, 1000)
    assert reads.note("a", 1000, 2000)
    assert reads.note("a", 2000 + 2 * _MEBIBYTE, 3 * _MEBIBYTE)
    assert not reads.note("b", 3 * _MEBIBYTE, 3 * _MEBIBYTE + 10)
    assert not reads.note("a", 6 * _MEBIBYTE, 6 * _MEBIBYTE + 10)  # far behind
    assert not reads.note("a", 0, 10)  # from the beginning again


def test_remembered_reads_are_bounded() -> None:
    reads = SequentialReads()
    for number in range(2500):
        reads.note(number, 0, 10)
    assert len(reads.ends) <= 1000
    assert reads.note(2499, 10, 20)


def test_read_ahead_ends_with_the_written_part(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int]] = []

    def fadvise(descriptor: int, position: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        advised.append((position, length))

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    cold = ColdLog(store.commit_log.files, SequentialReads())
    last = store.commit_log.files[-1]
    end = last.start + last.wrote
    cold.plan_ahead("a", 0, 1000)
    cold.read_ahead()
    cold.plan_ahead("a", 1000, 2000)
    cold.read_ahead()
    cold.plan_ahead("a", 2000, end - 100)
    cold.read_ahead()
    cold.plan_ahead("a", end - 100, end)
    cold.read_ahead()
    assert advised == [(2000, store.commit_log.files[0].wrote - 2000), (last.wrote - 100, 100)]
    store.close()


def test_distant_ranges_are_requested_at_once(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, position, length, advice: advised.append((position, length))
    )
    cold = ColdLog(store.commit_log.files, SequentialReads())
    second = store.commit_log.files[1].start
    cold.expect([(1000, 100), (1200, 100)])
    assert advised == []
    cold.expect([(1000, 100), (1200, 100), (40_000, 50), (second + 20_000, 50), (1 << 40, 10)])
    assert advised == [(1000, 300), (40_000, 50), (20_000, 50)]
    store.close()
    cold.expect([(1000, 100), (40_000, 50)])
    assert len(advised) == 3
