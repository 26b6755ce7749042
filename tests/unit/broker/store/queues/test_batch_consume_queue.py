"""Batch consume queues: look-up by offset and time, cutting, loading, cleaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.queues.batch_consume_queue import (
    BATCH_ENTRY,
    BATCH_ENTRY_BYTES,
    BatchConsumeQueue,
    BatchEntry,
    batch_entries,
)
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_broker.store.queues.queue_resources import QueueResources
from tests.support.examples import examples
from tests.support.rows import each_row

PER_FILE = 10
FILE_BYTES = PER_FILE * BATCH_ENTRY_BYTES
# Messages of each record; record n is at n * 1000, 500 bytes long, stored at 10 * n.
BATCHES = [1, 5, 1, 1, 30, 2] * 5
ENDS = [sum(BATCHES[: n + 1]) for n in range(len(BATCHES))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "batchconsumequeue" / "TopicA" / "0"


def new_queue(folder: Path, kept_bytes: int = 1 << 14) -> BatchConsumeQueue:
    resources = QueueResources()
    resources.kept_bytes = kept_bytes
    return BatchConsumeQueue(folder, "TopicA", 0, FILE_BYTES, resources)


def filled(folder: Path, kept_bytes: int = 1 << 14) -> BatchConsumeQueue:
    queue = new_queue(folder, kept_bytes)
    for number, messages in enumerate(BATCHES):
        queue.put(number * 1000, 500, 7, number * 10, messages)
    queue.write_out()
    return queue


@pytest.fixture
def queue_with_a_gap(folder: Path) -> BatchConsumeQueue:
    queue = filled(folder)
    assert queue.max_offset == 200
    queue.fill_gap(210)
    queue.put(30_000, 500, 7, 300, 10)
    queue.min_offset = 1
    return queue


def loaded(folder: Path) -> BatchConsumeQueue:
    queue = new_queue(folder)
    queue.load()
    return queue


def expected(number: int) -> BatchEntry:
    return BatchEntry(number * 1000, 500, 7, number * 10, ENDS[number] - BATCHES[number], BATCHES[number])


def record_of(offset: int) -> int:
    return next(number for number, end in enumerate(ENDS) if offset < end)


def offsets(queue: BatchConsumeQueue) -> tuple[int, int, int]:
    return queue.min_offset, queue.max_offset, queue.next_offset


def test_the_layout(folder: Path) -> None:
    queue = new_queue(folder)
    queue.put(1, 2, 3, 4, 6)
    queue.put(10, 20, -30, 40)
    queue.write_out()
    raw = (folder / file_name(0)).read_bytes()
    assert len(raw) == FILE_BYTES
    assert raw[:BATCH_ENTRY_BYTES].hex() == (
        "0000000000000001" "00000002" "0000000000000003" "0000000000000004" "0000000000000000"
        "0006" "ffffffff" "00000000"
    )  # fmt: skip
    assert BATCH_ENTRY.unpack_from(raw, BATCH_ENTRY_BYTES) == (10, 20, -30, 40, 6, 1, -1, 0)
    assert not any(raw[2 * BATCH_ENTRY_BYTES :])


def test_a_new_queue(folder: Path) -> None:
    queue = loaded(folder)
    assert offsets(queue) == (0, 0, 0)
    assert queue.reported_min_offset == -1
    assert queue.is_empty and queue.is_batch
    assert queue.batch_entry(0) is None
    assert queue.entry(0) is queue.last_entry() is None
    assert queue.read(0, 1) == queue.read_now(0, 1) == b""
    assert queue.offset_by_time(5, lambda place: 0) == -1
    queue.advance_min(100)
    queue.put(0, 100, 0, 5)
    assert (queue.reported_min_offset, queue.max_offset) == (0, 1)


@pytest.mark.parametrize("kept_bytes", [0, 3 * BATCH_ENTRY_BYTES, 1 << 14])
def test_every_message_of_a_batch_is_found(folder: Path, kept_bytes: int) -> None:
    queue = filled(folder, kept_bytes)
    for candidate in (queue, loaded(folder)):
        assert offsets(candidate) == (0, ENDS[-1], ENDS[-1])
        assert candidate.reported_min_offset == 0
        for offset in range(ENDS[-1]):
            number = record_of(offset)
            unit = expected(number)
            assert candidate.batch_entry(offset) == unit
            assert candidate.entry(offset) == unit[:3]
            assert candidate.first_of_entry(offset) == unit.base_offset
            assert candidate.next_message(offset) == offset
            found = batch_entries(candidate.read(offset, 4))
            in_file = min(4, PER_FILE - number % PER_FILE)
            assert found == [expected(n) for n in range(number, number + in_file)]
        assert candidate.last_entry() == (29_000, 500, 7)
        for beyond in (-1, ENDS[-1], ENDS[-1] + 5):
            assert candidate.batch_entry(beyond) is None
            assert candidate.read(beyond, 4) == b""


@each_row("offset", [0, 1, 3, 39, 40, 55, 199, 205, 219, 220, 300])
@each_row("count", [0, 1, 2, 7, 100, 1000])
def test_entries_of_a_range(queue_with_a_gap: BatchConsumeQueue, offset: int, count: int) -> None:
    """The entry of its record for each message, across files and a gap, as one by one."""
    wanted = [queue_with_a_gap.entry(each) for each in range(offset, offset + count)]
    assert queue_with_a_gap.entries(offset, count) == [entry for entry in wanted if entry is not None]


def test_reading_without_blocking(folder: Path) -> None:
    queue = filled(folder, 0)
    assert queue.read_now(3, 4) is None
    found = queue.read(3, 4)
    assert queue.read_now(3, 4) == found


def test_entries_of_single_messages(folder: Path) -> None:
    queue = new_queue(folder)
    queue.put_many(QUEUE_ENTRY.pack(0, 100, 1) + QUEUE_ENTRY.pack(100, 100, 2), 77)
    assert [queue.batch_entry(0), queue.batch_entry(1)] == [
        BatchEntry(0, 100, 1, 77, 0, 1),
        BatchEntry(100, 100, 2, 77, 1, 1),
    ]


def test_offsets_assigned_before_entries(folder: Path) -> None:
    queue = new_queue(folder)
    queue.next_offset += 8
    queue.put(0, 100, 0, 0, 5)
    assert (queue.max_offset, queue.next_offset) == (5, 8)
    queue.put(100, 100, 0, 0, 3)
    assert (queue.max_offset, queue.next_offset) == (8, 8)


# --- by time ---


@pytest.mark.parametrize(
    ("timestamp_ms", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 0), (1, 1, 0), (10, 1, 1), (11, 2, 1), (155, 16, 15), (290, 29, 29), (999, 29, 29)],
)
def test_by_time(folder: Path, timestamp_ms: int, lower: int, upper: int) -> None:
    """The first message of a record, as with Apache's broker, else of the last (first) record."""
    for queue in (filled(folder, 0), loaded(folder)):
        assert queue.offset_by_time(timestamp_ms, lambda place: 0) == expected(lower).base_offset
        assert queue.offset_by_time(timestamp_ms, lambda place: 0, upper=True) == expected(upper).base_offset


def test_by_time_with_equal_times(folder: Path) -> None:
    queue = new_queue(folder)
    for number, time_ms in enumerate([10, 20, 20, 20, 30]):
        queue.put(number * 1000, 500, 0, time_ms, 3)
    assert queue.offset_by_time(20, lambda place: 0) == 3
    assert queue.offset_by_time(20, lambda place: 0, upper=True) == 9


# --- correcting ---


@pytest.mark.parametrize("kept", [0, 1, 5, 10, 11, 29, 30])
def test_entries_beyond_the_log_are_cut(folder: Path, kept: int) -> None:
    for log_end in (kept * 1000, kept * 1000 + 499):
        queue = filled(folder)
        queue.cut(log_end)
        end = ENDS[kept - 1] if kept else 0
        assert (queue.max_offset, queue.next_offset) == (end, end)
        queue.put(kept * 1000, 10, 1, 2, 3)
        assert queue.batch_entry(end + 2) == BatchEntry(kept * 1000, 10, 1, 2, end, 3)
        queue.write_out()
        queue.close()
        queue = loaded(folder)
        assert queue.max_offset == end + 3
        queue.delete()


def test_cut_at_an_offset(folder: Path) -> None:
    for offset in (1, 6, 8, 38, 40, 41, 100):
        queue = filled(folder)
        queue.cut_at(offset)
        assert (queue.max_offset, queue.next_offset) == (offset, offset)
        queue.put(77, 77, 77, 77, 2)
        assert queue.batch_entry(offset + 1) == BatchEntry(77, 77, 77, 77, offset, 2)
        first = expected(record_of(offset)).base_offset
        assert queue.batch_entry(first - 1) == expected(record_of(first - 1))
        queue.delete()


def test_a_queue_may_begin_anywhere_and_have_gaps(folder: Path) -> None:
    queue = new_queue(folder)
    queue.fill_gap(1000)
    assert offsets(queue) == (1000, 1000, 1000)
    queue.put(0, 100, 0, 0, 5)
    queue.fill_gap(2000)
    queue.put(100, 100, 0, 0, 5)
    queue.write_out()
    for candidate in (queue, loaded(folder)):
        assert offsets(candidate) == (1000, 2005, 2005)
        assert candidate.batch_entry(1005) is None
        assert candidate.entry(1999) is None
        assert candidate.next_message(1002) == 1002
        assert candidate.next_message(1005) == candidate.next_message(1999) == 2000
        assert [unit.base_offset for unit in batch_entries(candidate.read(1500, 9))] == [1000, 2000]
    assert (folder / file_name(0)).stat().st_size == FILE_BYTES


@pytest.mark.parametrize(
    ("log_begin", "first", "files"), [(0, 0, 0), (1, 1, 0), (10_000, 10, 1), (25_500, 26, 2), (99_000, 30, 2)]
)
def test_entries_before_the_log(folder: Path, log_begin: int, first: int, files: int) -> None:
    queue = filled(folder, 0)
    assert queue.delete_before(log_begin) == files
    offset = expected(first).base_offset if first < 30 else ENDS[-1]
    assert offsets(queue)[:2] == (offset, ENDS[-1])
    assert len(list(folder.iterdir())) == 3 - files
    queue.close()
    queue = loaded(folder)
    queue.advance_min(log_begin)
    assert offsets(queue)[:2] == (offset, ENDS[-1])


def test_deleting_a_queue(folder: Path) -> None:
    queue = filled(folder)
    queue.delete()
    assert not folder.exists()
    assert (queue.max_offset, queue.reported_min_offset) == (0, -1)


@settings(max_examples=examples(80))
@given(st.data())
def test_look_up_agrees_with_a_list(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any batches and gaps, with any part of them in memory."""
    folder = tmp_path_factory.mktemp("queue") / "T" / "0"
    queue = new_queue(
        folder, data.draw(st.integers(0, 5)) * BATCH_ENTRY_BYTES + data.draw(st.integers(0, 45))
    )
    units: list[BatchEntry] = []
    for number in range(data.draw(st.integers(1, 40))):
        if data.draw(st.integers(0, 5)) == 0:
            queue.fill_gap(queue.max_offset + data.draw(st.integers(1, 4)))
        unit = BatchEntry(number * 100, 100, 0, number // 3, queue.max_offset, data.draw(st.integers(1, 6)))
        queue.put(*unit[:4], unit.messages)
        units.append(unit)
        if data.draw(st.integers(0, 9)) == 0:
            queue.write_out()
    for offset in range(queue.max_offset + 1):
        holding = [unit for unit in units if unit.base_offset <= offset < unit.end_offset]
        assert queue.batch_entry(offset) == (holding[0] if holding else None)
        if queue.min_offset <= offset < queue.max_offset:
            following = min(unit.base_offset for unit in units if unit.end_offset > offset)
            assert queue.next_message(offset) == max(offset, following)
    for time_ms in range(-1, 16):
        later = [unit.base_offset for unit in units if unit.store_timestamp_ms >= time_ms]
        earlier = [unit.base_offset for unit in units if unit.store_timestamp_ms <= time_ms]
        lower = later[0] if later else units[-1].base_offset
        upper = earlier[-1] if earlier else units[0].base_offset
        assert queue.offset_by_time(time_ms, lambda place: 0) == lower
        assert queue.offset_by_time(time_ms, lambda place: 0, upper=True) == upper
