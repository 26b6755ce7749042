"""One consume queue: its files, its ends, and its correction in recovery."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY, ConsumeQueue
from rmq_broker.store.queues.entry_file import PLACEHOLDER_SIZE
from tests.support.rows import each_row
from tests.support.stores import open_files_of_process

FILE_BYTES = 300 * 20
PLACEHOLDER = QUEUE_ENTRY.pack(0, PLACEHOLDER_SIZE, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "consumequeue" / "TopicA" / "0"


def new_queue(folder: Path) -> ConsumeQueue:
    return ConsumeQueue(folder, "TopicA", 0, FILE_BYTES)


def loaded(folder: Path) -> ConsumeQueue:
    queue = new_queue(folder)
    queue.load()
    return queue


def filled(folder: Path, messages: int) -> ConsumeQueue:
    """Message n is at n * 100, 100 bytes long, with the tags code n."""
    queue = new_queue(folder)
    for number in range(messages):
        queue.put(number * 100, 100, number)
    return queue


def leave(queue: ConsumeQueue) -> None:
    """Close the queue with all entries in the files, as after any flush."""
    queue.write_out()
    queue.close()


def offsets(queue: ConsumeQueue) -> tuple[int, int]:
    return queue.min_offset, queue.max_offset


def names(folder: Path) -> list[int]:
    return sorted(int(path.name) // FILE_BYTES for path in folder.iterdir())


def test_a_new_queue_has_no_files(folder: Path) -> None:
    queue = loaded(folder)
    assert offsets(queue) == (0, 0)
    assert queue.is_empty
    assert queue.entry(0) is queue.last_entry() is None
    assert queue.read(0, 10) == b""
    assert not folder.exists()


@pytest.mark.parametrize("messages", [1, 299, 300, 301, 600, 750])
def test_a_loaded_queue_is_as_before(folder: Path, messages: int) -> None:
    leave(filled(folder, messages))
    queue = loaded(folder)
    assert offsets(queue) == (0, messages)
    assert queue.last_entry() == ((messages - 1) * 100, 100, messages - 1)
    assert [queue.entry(number) for number in range(messages)] == [
        (number * 100, 100, number) for number in range(messages)
    ]
    queue.put(messages * 100, 100, messages)
    assert offsets(queue) == (0, messages + 1)
    leave(queue)
    assert names(folder) == list(range(messages // 300 + 1))


def test_reading_ends_with_the_file(folder: Path) -> None:
    queue = filled(folder, 650)
    for offset, count, expected in [
        (0, 10, 10),
        (290, 32, 10),
        (300, 32, 32),
        (640, 32, 10),
        (650, 1, 0),
        (-1, 1, 0),
    ]:
        assert len(queue.read(offset, count)) == expected * 20
    leave(queue)


@pytest.mark.parametrize(("before", "count"), [(0, 300), (0, 301), (295, 5), (295, 6), (300, 1), (10, 1000)])
def test_batches(folder: Path, before: int, count: int) -> None:
    queue = filled(folder, before)
    queue.put_many(
        b"".join(QUEUE_ENTRY.pack(number * 100, 100, number) for number in range(before, before + count))
    )
    assert (queue.max_offset, queue.next_offset) == (before + count, before + count)
    leave(queue)
    queue = loaded(folder)
    assert offsets(queue) == (0, before + count)
    assert queue.last_entry() == ((before + count - 1) * 100, 100, before + count - 1)
    queue.close()


@pytest.mark.parametrize(("offset", "count"), [(0, 1000), (3, 1), (250, 200), (590, 100), (700, 5), (5, 0)])
def test_entries_of_a_range(folder: Path, offset: int, count: int) -> None:
    """Across files and a gap, as one by one."""
    queue = filled(folder, 290)
    queue.fill_gap(400)
    for number in range(400, 700):
        queue.put(number * 100, 100, number)
    leave(queue)
    queue = loaded(folder)
    queue.min_offset = 2
    wanted = [queue.entry(each) for each in range(offset, offset + count)]
    assert queue.entries(offset, count) == [entry for entry in wanted if entry is not None]


def test_a_range_of_entries_is_read_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(filled(folder, 600))
    queue = loaded(folder)
    reads: list[int] = []
    pread = os.pread

    def counted(descriptor: int, size: int, position: int) -> bytes:
        reads.append(size)
        return pread(descriptor, size, position)

    monkeypatch.setattr(os, "pread", counted)
    assert len(queue.entries(0, 10_000)) == 600
    assert reads == [300 * 20] * 2  # of each file once


def test_offsets_assigned_before_entries(folder: Path) -> None:
    """Offsets of messages that are not visible yet: entries put later do not move the next offset."""
    queue = filled(folder, 5)
    queue.next_offset += 2
    queue.put(500, 100, 5)
    assert (queue.max_offset, queue.next_offset) == (6, 7)
    assert queue.entry(6) is None
    queue.put_many(QUEUE_ENTRY.pack(600, 100, 6) + QUEUE_ENTRY.pack(700, 100, 7))
    assert (queue.max_offset, queue.next_offset) == (8, 8)


# --- correcting ---


@each_row("messages", [1, 300, 301, 650])
@each_row("kept", [0, 1, 299, 300, 301, 649])
def test_entries_beyond_the_log_are_cut(tmp_path: Path, messages: int, kept: int) -> None:
    queue = filled(tmp_path, messages)
    kept = min(kept, messages)
    queue.cut(kept * 100)
    assert offsets(queue) == (0, kept)
    queue.put(kept * 100, 50, 1)
    assert queue.last_entry() == (kept * 100, 50, 1)
    leave(queue)
    queue = loaded(tmp_path)
    assert offsets(queue) == (0, kept + 1)
    leave(queue)


def test_an_entry_of_a_truncated_record_is_cut(folder: Path) -> None:
    """An entry is dropped if its record's last byte is not in the log."""
    queue = filled(folder, 10)
    queue.cut(799)
    assert offsets(queue) == (0, 7)
    queue.cut(10_000)
    assert offsets(queue) == (0, 7)
    leave(queue)


@pytest.mark.parametrize(
    "holes", [[5], [5, 6], [7, 8], [8], [9], [0], [0, 1, 2], [3, 4, 8, 9], list(range(10))]
)
def test_missing_pages_of_entries(folder: Path, holes: list[int]) -> None:
    """Pages may be missing: nothing behind the cut stays, and nothing that is no entry."""
    leave(filled(folder, 10))
    path = folder / file_name(0)
    content = bytearray(path.read_bytes())
    for hole in holes:
        content[hole * 20 : hole * 20 + 20] = bytes(20)
    path.write_bytes(content)
    for log_end in range(0, 1100, 100):
        path.write_bytes(content)
        queue = loaded(folder)
        queue.cut(log_end)
        queue.reset_after_crash()
        assert queue.max_offset <= log_end // 100
        last = queue.last_entry()
        assert last is None or last == ((queue.max_offset - 1) * 100, 100, queue.max_offset - 1)
        kept = queue.max_offset
        leave(queue)
        assert not any(path.read_bytes()[kept * 20 :])


def test_an_entry_with_a_missing_part(folder: Path) -> None:
    """The entry's first bytes were on a page that was not written."""
    leave(filled(folder, 10))
    path = folder / file_name(0)
    content = bytearray(path.read_bytes())
    content[8 * 20 : 8 * 20 + 8] = bytes(8)
    path.write_bytes(content)
    queue = loaded(folder)
    queue.cut(950)
    assert offsets(queue) == (0, 8)
    leave(queue)


@each_row(
    ("messages", "offset"),
    [(10, 0), (10, 1), *((650, offset) for offset in (0, 1, 299, 300, 301, 600, 649))],
)
def test_cut_at_an_offset(tmp_path: Path, messages: int, offset: int) -> None:
    queue = filled(tmp_path, messages)
    queue.cut_at(offset)
    assert offsets(queue) == (0, offset)
    queue.put(77, 77, 77)
    assert queue.entry(offset) == (77, 77, 77)
    leave(queue)
    queue = loaded(tmp_path)
    assert offsets(queue) == (0, offset + 1)
    leave(queue)


# --- queues that begin later, and gaps ---


@pytest.mark.parametrize("first", [0, 1, 299, 300, 301, 1_000_000])
def test_a_queue_may_begin_anywhere(folder: Path, first: int) -> None:
    queue = new_queue(folder)
    queue.fill_gap(first)
    assert offsets(queue) == (first, first)
    for number in range(10):
        queue.put(number * 100, 100, number)
    assert offsets(queue) == (first, first + 10)
    leave(queue)
    assert names(folder)[0] == first // 300
    in_file = first % 300
    assert (folder / file_name(first // 300 * FILE_BYTES)).read_bytes()[
        : in_file * 20
    ] == PLACEHOLDER * in_file
    queue = loaded(folder)
    assert offsets(queue) == (first, first + 10)
    assert queue.entry(first) == (0, 100, 0)
    assert queue.entry(first - 1) is None
    leave(queue)


def test_a_gap(folder: Path) -> None:
    queue = filled(folder, 10)
    queue.fill_gap(3010)
    queue.put(5000, 100, 1)
    assert offsets(queue) == (0, 3011)
    assert queue.entry(9) == (900, 100, 9)
    assert queue.entry(10) is queue.entry(3009) is None
    assert queue.next_message(10) == 3010
    assert queue.next_message(5) == 5
    leave(queue)
    queue = loaded(folder)
    assert offsets(queue) == (0, 3011)
    assert queue.last_entry() == (5000, 100, 1)
    queue.advance_min(0)
    assert queue.min_offset == 0
    queue.advance_min(901)
    assert queue.min_offset == 3010
    leave(queue)


def test_cutting_before_a_gap(folder: Path) -> None:
    """Entries before the gap are checked, too: an entry beyond the log would find another message later."""
    queue = filled(folder, 10)
    queue.fill_gap(1000)
    queue.put(1000, 100, 1)
    queue.write_out()
    queue.cut(1000)
    assert offsets(queue) == (0, 1000)
    queue.cut(999)
    assert offsets(queue) == (0, 9)
    queue.close()


def test_messages_around_a_gap_stay_visible(folder: Path) -> None:
    """Wherever the search for the first message begins."""
    for gap in range(1, 40):
        queue = filled(folder, 10)
        queue.fill_gap(10 + gap)
        for number in range(10):
            queue.put(2000 + number * 100, 100, number)
        for first in range(10):
            queue.advance_min(first * 100)
            assert queue.min_offset == first
        queue.delete()


def test_the_first_message_still_in_the_log(folder: Path) -> None:
    queue = filled(folder, 650)
    for log_begin in (0, 1, 100, 29_950, 30_000, 64_900):
        queue.advance_min(log_begin)
        assert queue.min_offset == -(-log_begin // 100)
    queue.advance_min(65_000)
    assert offsets(queue) == (650, 650)
    assert queue.is_empty
    queue.put(65_000, 100, 0)
    assert offsets(queue) == (650, 651)
    leave(queue)


# --- damaged files ---


def test_the_first_files_may_be_missing(folder: Path) -> None:
    leave(filled(folder, 650))
    (folder / file_name(0)).unlink()
    queue = loaded(folder)
    assert offsets(queue) == (300, 650)
    assert queue.read(299, 1) == b""
    assert not queue.lost_files
    leave(queue)


def test_a_missing_file_between_others(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    leave(filled(folder, 950))
    (folder / file_name(FILE_BYTES)).unlink()
    queue = loaded(folder)
    assert queue.lost_files
    assert queue.max_offset == 950  # assigned offsets stay known
    assert "lacks the file before" in caplog.text
    leave(queue)


def test_another_file_size_is_refused(folder: Path) -> None:
    leave(filled(folder, 650))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    queue = ConsumeQueue(folder, "TopicA", 0, FILE_BYTES // 2)
    with pytest.raises(
        StoreDamaged, match=r"mappedFileSizeConsumeQueue .* remove the whole folder consumequeue"
    ):
        queue.load()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_empty_last_files_are_removed(folder: Path) -> None:
    leave(filled(folder, 300))
    for start in (FILE_BYTES, 2 * FILE_BYTES):
        (folder / file_name(start)).write_bytes(bytes(FILE_BYTES))
    queue = loaded(folder)
    assert offsets(queue) == (0, 300)
    assert names(folder) == [0]
    leave(queue)


def test_the_last_file_stays_because_its_name_keeps_the_offset(folder: Path) -> None:
    """Without its only file, the queue's offsets would begin at 0 again."""
    queue = new_queue(folder)
    queue.fill_gap(900)
    queue.put(50, 100, 0)
    queue.write_out()
    queue.cut(0)
    leave(queue)
    queue = loaded(folder)
    assert offsets(queue) == (900, 900)
    leave(queue)


def test_deleting_a_queue(folder: Path) -> None:
    before = open_files_of_process()
    queue = filled(folder, 650)
    queue.write_out()
    assert queue.read(0, 1)
    queue.delete()
    assert offsets(queue) == (0, 0)
    assert not folder.exists()
    assert open_files_of_process() == before
    folder.mkdir()
    (folder / "somebody's file").touch()
    queue.put(0, 100, 0)
    queue.write_out()
    queue.delete()
    assert [path.name for path in folder.iterdir()] == ["somebody's file"]


# --- looking up ---


def test_the_first_message_from_a_log_offset(folder: Path) -> None:
    queue = filled(folder, 650)
    for physical_offset, expected in [(0, 0), (1, 1), (100, 1), (29_999, 300), (64_900, 649), (64_901, 650)]:
        assert queue.first_from(physical_offset) == expected
    queue.close()


TIMES = [10, 10, 20, 20, 20, 40]


@each_row(
    ("timestamp_ms", "lower", "upper"),
    [(9, 0, 0), (10, 0, 1), (11, 2, 1), (20, 2, 4), (21, 5, 4), (39, 5, 4), (40, 5, 5), (41, 6, 5)],
)
@each_row("first", [0, 7, 298])
def test_by_time(tmp_path: Path, timestamp_ms: int, lower: int, upper: int, first: int) -> None:
    """Of messages with the same time the first (lower) and the last (upper)."""
    queue = new_queue(tmp_path)
    queue.fill_gap(first)
    for number in range(len(TIMES)):
        queue.put(number * 100, 100, 0)

    def store_time(physical_offset: int) -> int:
        return TIMES[physical_offset // 100]

    assert queue.offset_by_time(timestamp_ms, store_time) == first + lower
    assert queue.offset_by_time(timestamp_ms, store_time, upper=True) == first + upper
    queue.close()


def test_by_time_in_an_empty_queue(folder: Path) -> None:
    queue = new_queue(folder)
    for upper in (False, True):
        assert queue.offset_by_time(5, lambda physical_offset: 1, upper=upper) == 0


def test_an_entry_with_a_plain_tags_code(folder: Path) -> None:
    queue = filled(folder, 1)
    for code in (0, -1, -(1 << 31), (1 << 31) - 1, 1_700_000_000_000):
        assert queue.tags_code(code) == code
    assert queue.tags_code(-(1 << 31) - 1) is None  # an address, but there are no such files
    queue.close()
