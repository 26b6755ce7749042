"""One queue: its files, where it begins and ends, and how it is corrected."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.consume_queue import ENTRY, PLACEHOLDER_SIZE, ConsumeQueue
from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.mapped_file import file_name
from tests.unit.broker.store.parts import open_files_of_process

FILE_BYTES = 300 * 20
PLACEHOLDER = ENTRY.pack(0, PLACEHOLDER_SIZE, 0)


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
def test_loaded_as_it_was_left(folder: Path, messages: int) -> None:
    filled(folder, messages).close()
    queue = loaded(folder)
    assert offsets(queue) == (0, messages)
    assert queue.last_entry() == ((messages - 1) * 100, 100, messages - 1)
    assert [queue.entry(number) for number in range(messages)] == [
        (number * 100, 100, number) for number in range(messages)
    ]
    queue.put(messages * 100, 100, messages)
    assert offsets(queue) == (0, messages + 1)
    assert names(folder) == list(range(messages // 300 + 1))
    queue.close()


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
    queue.close()


@pytest.mark.parametrize(("before", "count"), [(0, 300), (0, 301), (295, 5), (295, 6), (300, 1), (10, 1000)])
def test_batches_and_prepared_files(folder: Path, before: int, count: int) -> None:
    queue = filled(folder, before)
    queue.prepare(count)
    queue.put_many(
        b"".join(ENTRY.pack(number * 100, 100, number) for number in range(before, before + count))
    )
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (0, before + count)
    assert queue.last_entry() == ((before + count - 1) * 100, 100, before + count - 1)
    queue.close()


def test_files_prepared_in_vain_are_used_later(folder: Path) -> None:
    queue = filled(folder, 290)
    for _ in range(3):
        queue.prepare(900)
    assert names(folder) == [0, 1, 2, 3]
    for number in range(290, 700):
        queue.prepare(1)
        queue.put(number * 100, 100, number)
    assert names(folder) == [0, 1, 2, 3]
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (0, 700)
    assert names(folder) == [0, 1, 2]
    queue.close()


def test_space_for_few_messages_is_small(folder: Path) -> None:
    queue = ConsumeQueue(folder, "TopicA", 0, 6_000_000)
    queue.put(0, 100, 0)
    queue.close()
    assert (folder / file_name(0)).stat().st_blocks * 512 <= 32 * 1024


# --- correcting ---


@pytest.mark.parametrize("messages", [1, 300, 301, 650])
@pytest.mark.parametrize("kept", [0, 1, 299, 300, 301, 649])
def test_cutting_what_is_not_in_the_log(folder: Path, messages: int, kept: int) -> None:
    queue = filled(folder, messages)
    kept = min(kept, messages)
    queue.cut(kept * 100)
    assert offsets(queue) == (0, kept)
    queue.put(kept * 100, 50, 1)
    assert queue.last_entry() == (kept * 100, 50, 1)
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (0, kept + 1)
    queue.close()


def test_cutting_a_record_short(folder: Path) -> None:
    """An entry goes when its record's last byte is not in the log."""
    queue = filled(folder, 10)
    queue.cut(799)
    assert offsets(queue) == (0, 7)
    queue.cut(10_000)
    assert offsets(queue) == (0, 7)
    queue.close()


@pytest.mark.parametrize(
    "holes", [[5], [5, 6], [7, 8], [8], [9], [0], [0, 1, 2], [3, 4, 8, 9], list(range(10))]
)
def test_pages_that_were_not_written(folder: Path, holes: list[int]) -> None:
    """Within what may be missing; nothing from the cut on stays, nor anything that is no entry."""
    filled(folder, 10).close()
    path = folder / file_name(0)
    content = bytearray(path.read_bytes())
    for hole in holes:
        content[hole * 20 : hole * 20 + 20] = bytes(20)
    path.write_bytes(content)
    for log_end in range(0, 1100, 100):
        path.write_bytes(content)
        queue = loaded(folder)
        queue.cut(log_end)
        queue.distrust()
        assert queue.max_offset <= log_end // 100
        last = queue.last_entry()
        assert last is None or last == ((queue.max_offset - 1) * 100, 100, queue.max_offset - 1)
        kept = queue.max_offset
        queue.close()
        assert not any(path.read_bytes()[kept * 20 :])


def test_an_entry_of_which_a_part_is_missing(folder: Path) -> None:
    """Its first bytes stood on a page that was not written."""
    filled(folder, 10).close()
    path = folder / file_name(0)
    content = bytearray(path.read_bytes())
    content[8 * 20 : 8 * 20 + 8] = bytes(8)
    path.write_bytes(content)
    queue = loaded(folder)
    queue.cut(950)
    assert offsets(queue) == (0, 8)
    queue.close()


@pytest.mark.parametrize("messages", [10, 650])
@pytest.mark.parametrize("offset", [0, 1, 299, 300, 301, 600, 649])
def test_cutting_at_an_offset(folder: Path, messages: int, offset: int) -> None:
    if offset >= messages:
        return
    queue = filled(folder, messages)
    queue.cut_at(offset)
    assert offsets(queue) == (0, offset)
    queue.put(77, 77, 77)
    assert queue.entry(offset) == (77, 77, 77)
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (0, offset + 1)
    queue.close()


# --- queues that begin later, and gaps ---


@pytest.mark.parametrize("first", [0, 1, 299, 300, 301, 1_000_000])
def test_a_queue_may_begin_anywhere(folder: Path, first: int) -> None:
    queue = new_queue(folder)
    queue.fill_gap(first)
    assert offsets(queue) == (first, first)
    for number in range(10):
        queue.put(number * 100, 100, number)
    assert offsets(queue) == (first, first + 10)
    queue.close()
    assert names(folder)[0] == first // 300
    in_file = first % 300
    assert (folder / file_name(first // 300 * FILE_BYTES)).read_bytes()[
        : in_file * 20
    ] == PLACEHOLDER * in_file
    queue = loaded(folder)
    assert offsets(queue) == (first, first + 10)
    assert queue.entry(first) == (0, 100, 0)
    assert queue.entry(first - 1) is None
    queue.close()


def test_a_gap(folder: Path) -> None:
    queue = filled(folder, 10)
    queue.fill_gap(3010)
    queue.put(5000, 100, 1)
    assert offsets(queue) == (0, 3011)
    assert queue.entry(9) == (900, 100, 9)
    assert queue.entry(10) is queue.entry(3009) is None
    assert queue.next_message(10) == 3010
    assert queue.next_message(5) == 5
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (0, 3011)
    assert queue.last_entry() == (5000, 100, 1)
    queue.advance_min(0)
    assert queue.min_offset == 0
    queue.advance_min(901)
    assert queue.next_message(queue.min_offset) == 3010
    queue.close()


def test_messages_around_a_gap_stay_visible(folder: Path) -> None:
    """Whatever the search for the first message looks at first."""
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
    queue.close()


# --- files that are not as they should be ---


def test_the_first_files_may_be_gone(folder: Path) -> None:
    filled(folder, 650).close()
    (folder / file_name(0)).unlink()
    queue = loaded(folder)
    assert offsets(queue) == (300, 650)
    assert queue.read(299, 1) == b""
    assert not queue.lost_files
    queue.close()


def test_a_missing_file_between_others(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(folder, 950).close()
    (folder / file_name(FILE_BYTES)).unlink()
    queue = loaded(folder)
    assert queue.lost_files
    assert queue.max_offset == 950  # the offsets that were given stay known
    assert "lacks the file before" in caplog.text
    queue.close()


def test_another_file_size_is_refused(folder: Path) -> None:
    filled(folder, 650).close()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    queue = ConsumeQueue(folder, "TopicA", 0, FILE_BYTES // 2)
    with pytest.raises(
        StoreDamaged, match=r"mappedFileSizeConsumeQueue .* remove the whole folder consumequeue"
    ):
        queue.load()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_empty_last_files_are_taken_away(folder: Path) -> None:
    filled(folder, 300).close()
    for start in (FILE_BYTES, 2 * FILE_BYTES):
        (folder / file_name(start)).write_bytes(bytes(FILE_BYTES))
    queue = loaded(folder)
    assert offsets(queue) == (0, 300)
    assert names(folder) == [0]
    queue.close()


def test_the_last_file_stays_as_it_names_the_offset(folder: Path) -> None:
    """With the queue's only file gone, its offsets would begin at 0 again."""
    queue = new_queue(folder)
    queue.fill_gap(900)
    queue.put(50, 100, 0)
    queue.cut(0)
    queue.close()
    queue = loaded(folder)
    assert offsets(queue) == (900, 900)
    queue.close()


def test_deleting(folder: Path) -> None:
    before = open_files_of_process()
    queue = filled(folder, 650)
    queue.prepare(1000)
    queue.delete()
    assert offsets(queue) == (0, 0)
    assert not folder.exists()
    assert open_files_of_process() == before
    folder.mkdir()
    (folder / "somebody's file").touch()
    queue.put(0, 100, 0)
    queue.delete()
    assert [path.name for path in folder.iterdir()] == ["somebody's file"]
