"""The commit log: roll-over as with Apache's broker, and reading by offset."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from rmq_broker.store.errors import MessageRejected, StoreDamaged
from rmq_broker.store.log.commit_log import CommitLog
from rmq_broker.store.log.mapped_file import MappedFile, file_name
from tests.support.stores import (
    LOG_FILE_BYTES,
    bodies,
    check_agreement,
    fill,
    log_file,
    new_store,
    opened,
    put,
    put_batch,
    read_all,
    records_on_disk,
    template,
)

FIXED = template("TopicA").fixed_bytes
LARGEST_BODY = LOG_FILE_BYTES - 8 - FIXED


def test_a_message_that_fits_exactly(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store, b"x" * LARGEST_BODY) == (0, 0)
    assert put(store, b"next") == (LOG_FILE_BYTES, 1)
    assert bodies(store) == [b"x" * LARGEST_BODY, b"next"]
    store.close()
    assert log_file(tmp_path).read_bytes()[-8:] == (8).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    assert check_agreement(tmp_path) == 2


def test_one_byte_less_leaves_no_space_for_another_record(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, b"x" * (LARGEST_BODY - 1))
    assert put(store, b"") == (LOG_FILE_BYTES, 1)
    store.close()
    assert log_file(tmp_path).read_bytes()[-9:] == (9).to_bytes(4, "big") + b"\xcb\xd4\x31\x94\0"


def test_a_record_one_byte_too_large_is_refused(tmp_path: Path) -> None:
    """Nothing is written to the log or the queue, and the store continues."""
    store = opened(tmp_path)
    put(store, b"before")
    end = store.commit_log.max_offset
    with pytest.raises(MessageRejected, match=r"takes 65529 bytes .* more than fit .* 65528"):
        put(store, b"x" * (LARGEST_BODY + 1))
    assert (store.commit_log.max_offset, store.max_offset("TopicA", 0)) == (end, 1)
    assert put(store, b"after") == (end, 1)
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    store.close()


@pytest.mark.parametrize("room", range(8))
def test_a_blank_closes_the_rest_of_a_file(tmp_path: Path, room: int) -> None:
    """A record goes to the next file if fewer than 8 bytes would stay free behind it."""
    store = opened(tmp_path)
    first = 1000
    put(store, b"a" * first)
    used = FIXED + first
    put(store, b"b" * (LOG_FILE_BYTES - used - FIXED - room))  # would leave `room` bytes
    assert store.commit_log.max_offset == LOG_FILE_BYTES + FIXED + (LOG_FILE_BYTES - used - FIXED - room)
    store.close()
    blank = log_file(tmp_path).read_bytes()[used:]
    assert blank[:8] == len(blank).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    assert not any(blank[8:])
    assert check_agreement(tmp_path) == 2


def test_batches_never_cross_the_end_of_a_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    expected: list[bytes] = []
    for number in range(60):
        batch = [b"%d-%d" % (number, index) + b"x" * 300 for index in range(number % 13 + 1)]
        offsets, first = put_batch(store, batch)
        assert first == len(expected)
        assert offsets[0] // LOG_FILE_BYTES == offsets[-1] // LOG_FILE_BYTES
        expected += batch
    assert bodies(store) == expected
    assert [message.flag for message in read_all(store)[:3]] == [0, 0, 1]
    store.close()
    assert check_agreement(tmp_path) == len(expected)
    assert len(list((tmp_path / "commitlog").iterdir())) > 2


def test_a_batch_that_fits_exactly_and_one_that_does_not(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fixed = FIXED + len(b"a\x01b\x02")
    rest = LOG_FILE_BYTES - 8 - 3 * fixed
    offsets, _ = put_batch(store, [b"x" * 10, b"y" * 20, b"z" * (rest - 30)])
    assert offsets[0] == 0
    with pytest.raises(MessageRejected, match=r"the batch takes 65529 bytes"):
        put_batch(store, [b"x" * 10, b"y" * 20, b"z" * (rest - 29)])
    assert put_batch(store, [b"next"]) == ([LOG_FILE_BYTES], 3)
    store.close()
    assert check_agreement(tmp_path) == 4


def test_queue_files_roll_over(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=1 << 20)
    fill(store, 299)
    put_batch(store, [b"%d" % index for index in range(650)], "Topic0")  # through three files
    assert store.max_offset("Topic0", 0) == 949
    result = store.get("Topic0", 0, 299, 32, None)
    assert (result.count, result.next_offset) == (1, 300)  # none beyond the end of a file
    assert len(read_all(store, "Topic0")) == 949
    store.close()
    files = [path.name for path in sorted((tmp_path / "consumequeue/Topic0/0").iterdir())]
    assert files == [file_name(start) for start in (0, 6000, 12000, 18000)]
    assert check_agreement(tmp_path) == 949


def test_many_files_are_loaded_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 2000, topics=3, queues=2, size=200)
    expected = {queue: bodies(store, *queue) for queue in _queues(3, 2)}
    end = store.commit_log.max_offset
    asyncio.run(store.stop())
    assert len(list((tmp_path / "commitlog").iterdir())) >= 9
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    assert {queue: bodies(store, *queue) for queue in _queues(3, 2)} == expected
    fill(store, 600, topics=3, queues=2, size=200)
    store.close()
    assert check_agreement(tmp_path) == 2600


def _queues(topics: int, queues: int) -> list[tuple[str, int]]:
    return [(f"Topic{topic}", queue_id) for topic in range(topics) for queue_id in range(queues)]


def test_a_pull_reads_across_log_files(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 40, size=5000)
    result = store.get("Topic0", 0, 5, 20, None)
    assert result.count == 20
    first = next(iter(records_on_disk(tmp_path)))
    assert len(result.body) == 20 * len(first.raw)
    store.close()


def test_reading_by_offset(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 30, size=5000)
    commit_log = store.commit_log
    for stored in records_on_disk(tmp_path):
        offset = stored.message.physical_offset
        assert commit_log.read(offset, len(stored.raw)) == stored.raw
        assert commit_log.store_timestamp(offset) == stored.message.store_timestamp
        record = commit_log.record_at(offset)
        assert record is not None and record.queue_offset == stored.message.queue_offset
        assert commit_log.record_at(offset + 1) is None
    end = commit_log.max_offset
    for offset in (-1, -LOG_FILE_BYTES, end, end + 1, end + LOG_FILE_BYTES, 1 << 60):
        assert commit_log.read(offset, 100) is None
        assert commit_log.store_timestamp(offset) == -1
        assert commit_log.record_at(offset) is None
    assert commit_log.read(end - 10, 11) is None
    store.close()


def test_a_log_that_ends_with_a_full_file(tmp_path: Path) -> None:
    """Stopped between the blank and the next file, which the next message creates."""
    store = opened(tmp_path)
    put(store, b"x" * (LARGEST_BODY - 500))
    put(store, b"y" * 1000)
    store.close()
    log_file(tmp_path, 1).unlink()
    store = opened(tmp_path)
    assert store.commit_log.max_offset == LOG_FILE_BYTES
    assert put(store, b"z") == (LOG_FILE_BYTES, 1)
    store.close()
    assert check_agreement(tmp_path) == 2


def test_an_empty_next_file_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    """Apache's broker creates files in advance, and may be killed before it uses them."""
    store = opened(tmp_path)
    fill(store, 5)
    end = store.commit_log.max_offset
    store.close()
    (tmp_path / "commitlog" / file_name(LOG_FILE_BYTES)).write_bytes(bytes(LOG_FILE_BYTES))
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    fill(store, 5)
    store.close()
    assert check_agreement(tmp_path) == 10


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 60, size=5000)
    store.close()
    log_file(tmp_path, 2).unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreDamaged, match=r"lacks the file 0+131072 before 0+196608: put it back, or move"):
        opened(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_another_file_size_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 60, size=5000)
    store.close()
    for other in (LOG_FILE_BYTES // 2, LOG_FILE_BYTES * 2):
        store = new_store(tmp_path, log_file_bytes=other)
        with pytest.raises(StoreDamaged, match=r"bytes instead of .*mappedFileSizeCommitLog"):
            store.open()
    store = opened(tmp_path)  # neither changed nor locked by the failed attempts
    assert len(read_all(store, "Topic0")) == 60
    store.close()


def test_flushed_offset(tmp_path: Path) -> None:
    commit_log = CommitLog(tmp_path, LOG_FILE_BYTES)
    commit_log.load()
    assert (commit_log.min_offset, commit_log.max_offset, commit_log.flushed_offset) == (0, 0, 0)
    assert commit_log.flush() == 0
    for _ in range(3):
        file = commit_log.file_for_append(40_000)
        file.map[file.wrote : file.wrote + 40_000] = b"x" * 40_000
        file.wrote += 40_000
    assert (commit_log.max_offset, commit_log.flushed_offset) == (2 * LOG_FILE_BYTES + 40_000, 0)
    assert commit_log.flush() == commit_log.flushed_offset == commit_log.max_offset
    commit_log.close()
    assert commit_log.max_offset == 0


def test_the_log_may_begin_at_any_file(tmp_path: Path) -> None:
    """Its first files are deleted in time; queue entries of them are skipped."""
    store = opened(tmp_path)
    fill(store, 60, size=5000)
    asyncio.run(store.stop())
    log_file(tmp_path, 0).unlink()
    log_file(tmp_path, 0).unlink()
    store = opened(tmp_path)
    assert store.commit_log.min_offset == 2 * LOG_FILE_BYTES
    first = store.min_offset("Topic0", 0)
    assert 0 < first < 60 == store.max_offset("Topic0", 0)
    assert [message.queue_offset for message in read_all(store, "Topic0")] == list(range(first, 60))
    assert store.earliest_store_time("Topic0", 0) == read_all(store, "Topic0")[0].store_timestamp
    store.close()


class _Watcher:
    """Records what `log.files` shows while it is freed itself."""

    def __init__(self, log: CommitLog, seen: list[list[MappedFile]]) -> None:
        self._log, self._seen = log, seen

    def __del__(self) -> None:
        self._seen.append(list(self._log.files))


def test_a_file_is_gone_from_the_list_before_it_is_freed(tmp_path: Path) -> None:
    """Freeing a file lets other threads run, which must not find a freed list (compiled code)."""
    store = opened(tmp_path)
    put(store, b"x")
    log, seen = store.commit_log, list[list[MappedFile]]()
    files = list(log.files)
    log.files.insert(0, cast(MappedFile, _Watcher(log, seen)))
    log.remove_oldest()
    assert seen == [files]
    log.files = [cast(MappedFile, _Watcher(log, seen)), *files]
    log.files = files
    assert seen == [files, files]
    store.close()
