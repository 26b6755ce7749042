"""Entries in memory and in files: none is lost or repeated when they are written."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY, QUEUE_ENTRY_BYTES, ConsumeQueue
from rmq_broker.store.queues.queue_resources import QueueResources
from tests.support.examples import examples
from tests.support.rows import each_row
from tests.support.stores import open_files_of_process

PER_FILE = 300
FILE_BYTES = PER_FILE * QUEUE_ENTRY_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "consumequeue" / "TopicA" / "0"


def filled(folder: Path, messages: int, resources: QueueResources | None = None) -> ConsumeQueue:
    queue = ConsumeQueue(folder, "TopicA", 0, FILE_BYTES, resources)
    add(queue, messages)
    return queue


def add(queue: ConsumeQueue, messages: int) -> None:
    """Message n is at n * 100, 100 bytes long, with the tags code n."""
    for _ in range(messages):
        number = queue.max_offset
        queue.put(number * 100, 100, number)


def entries(queue: ConsumeQueue) -> list[tuple[int, int, int]]:
    """All entries, read as many at a time as possible."""
    found: list[tuple[int, int, int]] = []
    offset = queue.min_offset
    while raw := queue.read(offset, 1000):
        found += QUEUE_ENTRY.iter_unpack(raw)
        offset += len(raw) // QUEUE_ENTRY_BYTES
    return found


def expected(messages: int) -> list[tuple[int, int, int]]:
    return [(number * 100, 100, number) for number in range(messages)]


def loaded(folder: Path) -> ConsumeQueue:
    queue = ConsumeQueue(folder, "TopicA", 0, FILE_BYTES)
    queue.load()
    return queue


# --- writing out ---


def test_appending_touches_no_file(folder: Path) -> None:
    before = open_files_of_process()
    queue = filled(folder, 1000)
    assert not folder.exists()
    assert queue.unwritten_bytes == 1000 * QUEUE_ENTRY_BYTES
    assert entries(queue) == expected(1000)
    assert open_files_of_process() == before


def test_written_entries_survive_a_kill(folder: Path) -> None:
    queue = filled(folder, 650)
    queue.write_out()
    assert queue.unwritten_bytes == 0
    add(queue, 20)
    queue.close()  # the last 20 are lost
    queue = loaded(folder)
    assert entries(queue) == expected(650)
    assert all(path.stat().st_size == FILE_BYTES for path in folder.iterdir())


def test_memory_is_bounded_and_files_are_read(folder: Path) -> None:
    resources = QueueResources()
    queue = filled(folder, 10_000, resources)
    queue.write_out()
    assert entries(queue) == expected(10_000)
    in_files = 10_000 * QUEUE_ENTRY_BYTES - resources.kept_bytes
    assert len(resources.descriptors) > in_files // FILE_BYTES
    queue.close()
    assert len(resources.descriptors) == 0


def test_many_queues_keep_fewer_entries_in_memory() -> None:
    resources = QueueResources()
    alone = resources.kept_bytes
    resources.share_memory(20_000)
    assert resources.kept_bytes * 20_000 <= 32 << 20
    resources.share_memory(10)
    assert resources.kept_bytes == alone >= 4096


def test_entries_are_written_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = filled(folder, 10)
    queue.write_out()
    monkeypatch.setattr(os, "pwrite", mock.Mock(side_effect=AssertionError))
    queue.write_out()
    queue.flush()


class FullDisk:
    """Lets writes fail after a number of bytes, and counts them."""

    def __init__(self, left: int, number: int = errno.ENOSPC) -> None:
        self.left = left
        self.number = number
        self._pwrite = os.pwrite

    def pwrite(self, descriptor: int, content: memoryview, position: int) -> int:
        if self.left <= 0:
            raise OSError(self.number, os.strerror(self.number))
        part = content[: self.left]
        self.left -= len(part)
        return self._pwrite(descriptor, part, position)


@each_row("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@each_row("left", [0, 1, 19, 20, 21, FILE_BYTES - 1, FILE_BYTES, FILE_BYTES + 7])
def test_a_full_disk_loses_and_repeats_no_entry(tmp_path: Path, left: int, number: int) -> None:
    queue = filled(tmp_path, 400)
    disk = FullDisk(left, number)
    with mock.patch.object(os, "pwrite", disk.pwrite):
        for _ in range(3):
            with pytest.raises(OSError, match=os.strerror(number)):
                queue.write_out()
            add(queue, 10)
            assert entries(queue) == expected(queue.max_offset)
            assert queue.unwritten_bytes >= 400 * QUEUE_ENTRY_BYTES - left
        disk.left = 1 << 30
        queue.write_out()
    assert queue.unwritten_bytes == 0
    queue.close()
    assert entries(loaded(tmp_path)) == expected(430)


@pytest.mark.parametrize("call", ["mkdir", "open", "ftruncate"])
def test_a_file_that_cannot_be_created(folder: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    queue = filled(folder, 10)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            queue.write_out()
    assert entries(queue) == expected(10)
    queue.write_out()
    queue.close()
    assert entries(loaded(folder)) == expected(10)


def test_a_file_created_just_before_a_kill(folder: Path) -> None:
    """A file without its size, or without an entry."""
    for content in (b"", bytes(FILE_BYTES), bytes(100)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file_name(0)).write_bytes(content)
        queue = loaded(folder)
        assert queue.is_empty
        add(queue, 5)
        queue.write_out()
        assert (folder / file_name(0)).stat().st_size == FILE_BYTES
        queue.close()
        assert entries(loaded(folder)) == expected(5)
        shutil.rmtree(folder)


# --- flushing ---


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flushed paths below `consumequeue`."""
    found: list[str] = []

    def note(descriptor: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()).partition("consumequeue")[2])

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return found


def test_a_flush_covers_new_files_and_their_folders(folder: Path, synced: list[str]) -> None:
    queue = filled(folder, 301)
    queue.flush()
    first, second = f"/TopicA/0/{file_name(0)}", f"/TopicA/0/{file_name(FILE_BYTES)}"
    assert synced[:2] == [first, second]
    assert {"/TopicA/0", "/TopicA", ""} <= set(synced)
    synced.clear()
    queue.flush()
    assert synced == []
    add(queue, 1)
    queue.write_out()
    add(queue, 1)
    queue.flush()
    assert synced == [second]
    queue.close()


def test_a_file_that_fails_is_flushed_again(folder: Path, synced: list[str]) -> None:
    queue = filled(folder, 10)
    with (
        mock.patch.object(os, "fdatasync", side_effect=OSError(errno.EIO, "I/O error")),
        pytest.raises(OSError, match="I/O error"),
    ):
        queue.flush()
    queue.flush()
    assert synced[0] == f"/TopicA/0/{file_name(0)}"


def test_entries_left_by_a_crash_are_flushed(folder: Path, synced: list[str]) -> None:
    """Entries and names may be in the page cache only."""
    queue = filled(folder, 301)
    queue.write_out()
    queue.close()
    queue = loaded(folder)
    queue.flush()
    assert synced == []
    queue.reset_after_crash()
    queue.flush()
    assert synced[:2] == [f"/TopicA/0/{file_name(0)}", f"/TopicA/0/{file_name(FILE_BYTES)}"]
    assert synced[2:4] == ["/TopicA/0", "/TopicA"]


def test_a_queue_deleted_while_it_waits_for_its_flush(folder: Path, synced: list[str]) -> None:
    queue = filled(folder, 10)
    queue.write_out()
    queue.delete()
    queue.flush()
    assert not folder.exists()
    add(queue, 1)
    queue.flush()
    assert entries(loaded(folder)) == expected(1)


# --- reading without blocking ---


@pytest.fixture
def written(folder: Path) -> Iterator[ConsumeQueue]:
    """A queue of 2,000 entries, of which 100 are in memory."""
    resources = QueueResources()
    resources.kept_bytes = 100 * QUEUE_ENTRY_BYTES
    queue = filled(folder, 2000, resources)
    queue.write_out()
    yield queue
    queue.close()


def test_memory_is_never_cold(written: ConsumeQueue) -> None:
    assert written.read_now(1950, 10) == written.read(1950, 10)
    assert written.read_now(2000, 10) == b""
    assert written.read_now(-1, 10) == b""


def test_a_file_that_is_not_open_is_cold(written: ConsumeQueue) -> None:
    """Opening the file may take as long as reading it."""
    assert written.read_now(10, 10) is None
    assert written.read_now(10, 10) is None
    found = written.read(10, 10)
    assert len(found) == 10 * QUEUE_ENTRY_BYTES
    assert written.read_now(10, 10) == found


@pytest.mark.parametrize(
    "answer", [BlockingIOError(errno.EAGAIN, "cold"), lambda fd, buffers, position, flags: 100]
)
def test_pages_that_are_not_in_memory(
    written: ConsumeQueue, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    found = written.read(10, 10)
    monkeypatch.setattr(os, "preadv", mock.Mock(side_effect=answer))
    assert written.read_now(10, 10) is None
    assert written.read(10, 10) == found


def test_a_file_system_without_nowait(written: ConsumeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files count as warm then, and the file system is asked once."""
    found = written.read(10, 10)
    preadv = mock.Mock(side_effect=OSError(errno.EOPNOTSUPP, "not supported"))
    monkeypatch.setattr(os, "preadv", preadv)
    assert written.read_now(10, 10) == found
    assert written.read_now(10, 10) == found
    assert preadv.call_count == 1


def test_an_error_of_the_disk_is_raised(written: ConsumeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    written.read(10, 10)
    monkeypatch.setattr(os, "preadv", mock.Mock(side_effect=OSError(errno.EIO, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        written.read_now(10, 10)


# --- deleting old files ---


@pytest.mark.parametrize(
    ("log_begin", "first", "files"),
    [(0, 0, 0), (29_999, 300, 1), (30_000, 300, 1), (30_001, 301, 1), (95_000, 950, 3), (1 << 40, 1000, 3)],
)
def test_files_before_the_log(folder: Path, log_begin: int, first: int, files: int) -> None:
    queue = filled(folder, 1000)
    queue.write_out()
    assert queue.delete_before(log_begin) == files
    assert (queue.min_offset, queue.max_offset) == (first, 1000)
    assert len(list(folder.iterdir())) == 4 - files
    assert queue.delete_before(log_begin) == 0
    assert entries(queue) == expected(1000)[first:]
    queue.close()
    queue = loaded(folder)
    assert queue.max_offset == 1000
    queue.advance_min(log_begin)
    assert queue.min_offset == first


def test_unwritten_entries_are_never_deleted(folder: Path) -> None:
    queue = filled(folder, 10)
    queue.write_out()
    add(queue, 900)
    assert queue.delete_before(80_000) == 0
    queue.write_out()
    assert queue.delete_before(80_000) == 2
    queue.close()
    assert loaded(folder).max_offset == 910


def test_a_file_removed_while_it_is_read(folder: Path) -> None:
    resources = QueueResources()
    resources.kept_bytes = 0
    queue = filled(folder, 1000, resources)
    queue.write_out()
    assert queue.read(0, 1)
    open_files = len(resources.descriptors)
    (folder / file_name(FILE_BYTES)).unlink()
    assert queue.read(300, 1) == b""
    queue.delete_before(50_000)
    assert len(resources.descriptors) == open_files - 1  # a deleted file is not kept open
    queue.close()


# --- in several threads ---


def test_appending_while_it_is_written_out_and_read(folder: Path) -> None:
    resources = QueueResources(descriptors=2)
    resources.kept_bytes = 50 * QUEUE_ENTRY_BYTES
    queue = ConsumeQueue(folder, "TopicA", 0, FILE_BYTES, resources)
    done = threading.Event()
    failures: list[object] = []

    def watched(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:  # checked below
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read() -> None:
        for offset in range(0, queue.max_offset, 97):
            for number, entry in enumerate(QUEUE_ENTRY.iter_unpack(queue.read(offset, 20)), offset):
                assert entry == (number * 100, 100, number)

    threads = [watched(queue.write_out), watched(read), watched(read)]
    add(queue, 20_000)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(resources.descriptors) <= 2
    queue.write_out()
    queue.close()
    assert entries(loaded(folder)) == expected(20_000)


# --- any order ---


class EntryFilesMachine(RuleBasedStateMachine):
    """Compares with a list in memory. A record is 100 bytes long; `log_end` is the offset of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="queue-"))
        self.resources = QueueResources(descriptors=2)
        self.resources.kept_bytes = 3 * QUEUE_ENTRY_BYTES
        self.queue = self._new()
        self.places: list[int] = []  # by offset, from `base` on; -1 in a gap
        self.base = 0
        self.first = 0
        self.written = 0  # offset
        self.log_end = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _new(self) -> ConsumeQueue:
        return ConsumeQueue(self.root / "T" / "0", "T", 0, 5 * QUEUE_ENTRY_BYTES, self.resources)

    @property
    def end(self) -> int:
        return self.base + len(self.places)

    @initialize(first=st.integers(0, 12))
    def begin(self, first: int) -> None:
        self.queue.fill_gap(first)
        self.base = self.first = self.written = first

    def _put(self, count: int) -> bytes:
        raw = b""
        for _ in range(count):
            raw += QUEUE_ENTRY.pack(self.log_end, 100, 7)
            self.places.append(self.log_end)
            self.log_end += 100
        return raw

    @rule()
    def put(self) -> None:
        self._put(1)
        self.queue.put(self.log_end - 100, 100, 7)

    @rule(count=st.integers(1, 17))
    def put_many(self, count: int) -> None:
        self.queue.put_many(self._put(count))

    @rule(gap=st.integers(1, 9))
    def gap(self, gap: int) -> None:
        if self.first < self.end:
            self.queue.fill_gap(self.end + gap)
            self.places += [-1] * gap
            self.put()

    @rule()
    def write_out(self) -> None:
        self.queue.write_out()
        self.written = self.end

    @rule()
    def flush(self) -> None:
        with mock.patch.object(os, "fdatasync"), mock.patch.object(os, "fsync"):
            self.queue.flush()
        self.written = self.end

    @rule(left=st.integers(0, 150))
    def disk_full(self, left: int) -> None:
        with mock.patch.object(os, "pwrite", FullDisk(left).pwrite):
            try:
                self.queue.write_out()
            except OSError:
                assert self.queue.unwritten_bytes > 0
            else:
                self.written = self.end

    @rule(back=st.integers(1, 20))
    def cut_at(self, back: int) -> None:
        offset = max(self.first + 1, self.end - back)
        if offset < self.end:
            self.queue.cut_at(offset)
            self._cut(offset)

    @rule(back=st.integers(0, 2000))
    def cut(self, back: int) -> None:
        """As in recovery of a shorter log; the queue's first entry stays."""
        log_end = self.log_end - back
        kept = [offset for offset, place in enumerate(self.places, self.base) if 0 <= place <= log_end - 100]
        if kept and kept[-1] >= self.first:
            self.queue.cut(log_end)
            # Placeholders behind the last entry may stay, because they belong to no message.
            end = self.queue.max_offset
            assert kept[-1] < end
            assert all(place == -1 for place in self.places[kept[-1] + 1 - self.base : end - self.base])
            self._cut(end)

    def _cut(self, offset: int) -> None:
        del self.places[offset - self.base :]
        self.written = min(self.written, offset)

    @rule(share=st.floats(0, 1))
    def delete_before(self, share: float) -> None:
        log_begin = int(self.log_end * share)
        self.queue.delete_before(log_begin)
        while self.first < self.end and self.places[self.first - self.base] < log_begin:
            self.first += 1

    @rule()
    def reopen(self) -> None:
        self.write_out()
        self._restart(self.end)

    @rule()
    def killed(self) -> None:
        """Recovery cuts to the entries that were certainly written; the files may hold more, or parts."""
        self._restart(self.written)
        self._cut(self.written)
        self.first = min(self.first, self.end)

    def _restart(self, end: int) -> None:
        self.queue.close()
        self.queue = self._new()
        self.queue.load()
        written = [place for place in self.places[: end - self.base] if place >= 0]
        self.queue.cut(written[-1] + 100 if written else 0)
        if end < self.queue.max_offset:
            self.queue.cut_at(end)
        if end == self.base:  # without a message only the log tells where it begins
            self.queue.fill_gap(end)
        self.queue.reset_after_crash()
        kept = [place for place in self.places[self.first - self.base : end - self.base] if place >= 0]
        self.queue.advance_min(kept[0] if kept else self.log_end)

    @rule(offset=st.integers(0, 120), count=st.integers(1, 30))
    def read(self, offset: int, count: int) -> None:
        found = [entry[:2] for entry in QUEUE_ENTRY.iter_unpack(self.queue.read(offset, count))]
        if not self.first <= offset < self.end:
            assert found == []
            return
        assert 1 <= len(found) <= count
        for place, entry in zip(self.places[offset - self.base :], found, strict=False):
            assert entry == ((place, 100) if place >= 0 else (0, 0x7FFFFFFF))
        now = self.queue.read_now(offset, count)
        assert now is None or [entry[:2] for entry in QUEUE_ENTRY.iter_unpack(now)] == found

    @invariant()
    def offsets(self) -> None:
        assert (self.queue.min_offset, self.queue.max_offset) == (self.first, self.end)
        assert self.queue.next_offset == self.end
        last = self.queue.last_entry()
        if self.first < self.end and self.places[-1] >= 0:
            assert last == (self.places[-1], 100, 7)
        else:
            assert last is None


EntryFilesMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
test_any_order = EntryFilesMachine.TestCase
