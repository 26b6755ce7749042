"""A log that replicates another one: the same bytes, the same queues, the same index."""

from __future__ import annotations

import errno
import mmap
import os
import random
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from tests.support.stores import (
    LOG_FILE_BYTES,
    bodies,
    check_agreement,
    fill,
    log_file,
    opened,
    put,
    put_batch,
    read_all,
)
from tests.support.waiting import until


def copied(source: MessageStore, target: MessageStore, most: int, until: int | None = None) -> None:
    """Bring the target's log up to the source's, in parts of `most` bytes."""
    chance = random.Random(most)
    end = source.commit_log.max_offset if until is None else until
    offset = target.commit_log.max_offset
    while offset < end:
        data = source.commit_log.get_data(offset, min(chance.randint(1, most), end - offset))
        assert data
        take(target, offset, data)
        offset += len(data)


def take(store: MessageStore, offset: int, data: bytes) -> None:
    """Append bytes, and let consumers see their messages."""
    store.append_data(offset, data)
    store.enter_data()


def queues_of(store: MessageStore) -> dict[tuple[str, int], bytes]:
    return {
        (queue.topic, queue.queue_id): b"".join(
            queue.read(offset, 1) for offset in range(queue.min_offset, queue.max_offset)
        )
        for queue in store.queues
        if queue.max_offset
    }


@pytest.mark.parametrize("most", [7, 100, 5000, 100_000])
def test_the_same_log_yields_the_same_queues(tmp_path: Path, most: int) -> None:
    """However the bytes are split, over several files of the log."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 900, topics=3, queues=2, size=150)
    put_batch(source, [b"a", b"b", b"c"], "Topic0")
    assert source.commit_log.max_offset > 2 * LOG_FILE_BYTES
    copied(source, target, most)
    assert target.commit_log.max_offset == source.commit_log.max_offset
    assert target.dispatch_behind_bytes == 0
    assert queues_of(target) == queues_of(source)
    source.close()
    target.close()
    assert check_agreement(tmp_path / "b") == 903


def test_a_record_is_entered_once_it_is_complete(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    arrived: list[ConsumeQueue] = []
    target.appender.add_arrival_listener(arrived.append)
    put(source, b"first")
    put(source, b"second")
    end = source.commit_log.max_offset
    copied(source, target, 50, until=end - 1)
    assert (target.max_offset("TopicA", 0), len(arrived)) == (1, 1)
    take(target, end - 1, data_of(source, end - 1))
    assert bodies(target) == [b"first", b"second"]
    assert (len(arrived), target.dispatch_behind_bytes) == (2, 0)
    source.close()
    target.close()


def data_of(store: MessageStore, begin: int = 0, end: int | None = None) -> bytes:
    """The bytes of a log from an offset to the end of its file."""
    data = store.commit_log.get_data(begin, (store.commit_log.max_offset if end is None else end) - begin)
    assert data
    return data


def test_messages_are_entered_later_than_they_are_appended(tmp_path: Path) -> None:
    """The master hears between the two that they are in the log."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    put(source, b"first")
    target.append_data(0, data_of(source))
    assert target.commit_log.max_offset == source.commit_log.max_offset
    assert (target.entries_end, bodies(target)) == (0, [])
    begin = source.commit_log.max_offset
    put(source, b"second")
    target.append_data(begin, data_of(source, begin))
    assert (target.entries_end, bodies(target)) == (begin, [b"first"])  # at the latest with the next bytes
    target.enter_data()
    assert (target.dispatch_behind_bytes, bodies(target)) == (0, [b"first", b"second"])
    source.close()
    target.close()


async def test_space_is_allocated_ahead(tmp_path: Path) -> None:
    """In a thread, so that no transfer waits for the file system."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    put(source)
    target.start()
    take(target, 0, data_of(source))
    file = target.commit_log.current
    assert file is not None
    await until(lambda: file.reserved == file.size and target.commit_log.has_next)
    source.close()
    await target.stop()


def test_an_incomplete_record_is_not_appended(tmp_path: Path) -> None:
    """If the process is killed between two blocks, the log ends with a complete record."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    ends = [0]
    for number in range(5):
        put(source, b"x" * 50 * number, tags="T")
        ends.append(source.commit_log.max_offset)
    data = data_of(source)
    for offset in range(0, len(data), 5):
        take(target, offset, data[offset : offset + 5])
        end = max(each for each in ends if each <= offset + 5)
        assert target.commit_log.max_offset == end
        content = log_file(tmp_path / "b").read_bytes() if end else b""
        assert content == data[:end] + bytes(len(content) - end)
    source.close()
    target.close()


class _KilledMap(mmap.mmap):
    """A map that takes a number of bytes, and then ends the process."""

    left = 1 << 40

    def __setitem__(self, place: Any, content: Any) -> None:
        whole = len(content)
        part = max(0, min(whole, _KilledMap.left))
        super().__setitem__(slice(place.start, place.start + part), content[:part])
        _KilledMap.left -= whole
        if part < whole:
            raise KeyboardInterrupt


def test_killed_in_the_middle_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of several records is appended as a whole or not at all."""
    source = opened(tmp_path / "a")
    for number in range(3):
        put(source, b"body %d" % number, tags="Tag", properties=b"KEYS\x01key%d\x02" % number)
    data, messages = data_of(source), read_all(source)
    end = source.commit_log.max_offset
    source.close()
    monkeypatch.setattr(mmap, "mmap", _KilledMap)
    for written in range(len(data) + 1):
        monkeypatch.setattr(_KilledMap, "left", 1 << 40)
        target = opened(tmp_path / str(written))
        take(target, 0, data[:50])
        _KilledMap.left = written
        try:
            take(target, 50, data[50:])
        except KeyboardInterrupt:
            assert written < len(data)
        _KilledMap.left = 1 << 40
        target.close()
        target = opened(tmp_path / str(written))
        assert target.commit_log.max_offset == (end if written == len(data) else 0)
        assert read_all(target) == (messages if written == len(data) else [])
        target.close()


def test_a_lost_beginning_of_a_record_is_sent_again(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 3)
    data = data_of(source)
    first = source.queues.get_or_create("Topic0", 0).entry(1)
    assert first is not None
    begin = first[0]
    take(target, 0, data[: begin + 60])
    assert target.commit_log.max_offset == begin
    take(target, begin, data[begin : begin + 30])
    take(target, begin + 30, data[begin + 30 :])
    assert bodies(target, "Topic0") == bodies(source, "Topic0")
    source.close()
    target.close()


@pytest.mark.parametrize("position", [0, 3, 5, 30, 95, 100])
def test_bytes_that_are_no_record_are_refused(tmp_path: Path, position: int) -> None:
    """Entries are made in order, so such bytes would block all later ones."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 3)
    data = data_of(source)
    begin = len(data) // 3
    take(target, 0, data[:begin])
    damaged = bytearray(data)
    damaged[begin + position] ^= 0x55
    with pytest.raises(ValueError, match=f"the bytes of {begin} are no valid record"):
        take(target, begin, bytes(damaged[begin:]))
    assert (target.commit_log.max_offset, target.dispatch_behind_bytes) == (begin, 0)
    take(target, begin, data[begin:])
    assert bodies(target, "Topic0") == bodies(source, "Topic0")
    source.close()
    target.close()


def test_a_full_disk_leaves_complete_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is continued where it ends."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 300, size=300)
    data = data_of(source, 0, LOG_FILE_BYTES) + data_of(source, LOG_FILE_BYTES)
    fallocate, left = os.posix_fallocate, 1

    def fail(descriptor: int, offset: int, length: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fallocate(descriptor, offset, length)

    take(target, 0, data[:1000])
    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="No space left"):
        take(target, 1000, data[1000:])
    end = target.commit_log.max_offset
    assert end == LOG_FILE_BYTES
    monkeypatch.undo()
    take(target, end, data[end:])
    assert queues_of(target) == queues_of(source)
    source.close()
    target.close()
    assert check_agreement(tmp_path / "b") == 300


def test_a_replica_continues_after_a_restart(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 300, size=300)
    copied(source, target, 4000, until=source.commit_log.max_offset // 2)
    target.close()
    target = opened(tmp_path / "b")
    # The incomplete record was never appended: the sender repeats it.
    assert target.commit_log.max_offset <= source.commit_log.max_offset // 2
    copied(source, target, 4000)
    assert queues_of(target) == queues_of(source)
    source.close()
    target.close()


def test_a_replica_may_begin_in_the_middle_of_the_other_log(tmp_path: Path) -> None:
    """The other log's first files were deleted: queues begin with its first messages."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 900, size=150)
    begin = source.commit_log.files[1].start
    data = source.commit_log.get_data(begin, 10_000)
    assert data
    take(target, begin, data)
    copied(source, target, 9000)
    assert target.commit_log.min_offset == begin
    assert target.max_offset("Topic0", 0) == 900
    first = target.min_offset("Topic0", 0)
    assert 0 < first < 900
    assert bodies(target, "Topic0") == bodies(source, "Topic0")[first:]
    source.close()
    target.close()


def test_bytes_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    end = store.commit_log.max_offset
    for offset in (0, end - 1, end + 1, end + LOG_FILE_BYTES):
        with pytest.raises(ValueError, match=f"the log ends at {end}"):
            store.append_data(offset, b"x" * 100)
    assert store.commit_log.max_offset == end
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.append_data(end, b"x")


def test_get_data_returns_bytes_up_to_the_end_of_a_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 500, size=200)
    log = store.commit_log
    whole = b"".join(bytes(file.map[: file.wrote]) for file in log.files)
    assert log.get_data(0, 100) == whole[:100]
    assert log.get_data(LOG_FILE_BYTES - 50, 1000) == whole[LOG_FILE_BYTES - 50 : LOG_FILE_BYTES]
    assert log.get_data(log.max_offset - 10, 1000) == whole[-10:]
    assert log.get_data(log.max_offset, 10) is None
    assert log.get_data(-1, 10) is None
    assert [log.next_file_offset(offset) for offset in (0, 1, LOG_FILE_BYTES - 1, LOG_FILE_BYTES)] == [
        LOG_FILE_BYTES,
        LOG_FILE_BYTES,
        LOG_FILE_BYTES,
        2 * LOG_FILE_BYTES,
    ]
    store.close()


def test_consumers_see_a_record_once_it_is_confirmed(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    fill(source, 3)
    end = source.commit_log.max_offset
    target.confirm_data(end - 1)
    copied(source, target, 100_000)
    assert target.commit_log.max_offset == end
    assert len(bodies(target, "Topic0")) == 2
    target.confirm_data(0)  # a master that was elected meanwhile knows less
    assert len(bodies(target, "Topic0")) == 2
    target.confirm_data(end)
    assert bodies(target, "Topic0") == bodies(source, "Topic0")
    assert target.entries_end == end


async def test_a_stop_keeps_the_entries_of_records_that_were_not_confirmed(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "source"), opened(tmp_path / "target")
    target.start()
    fill(source, 3)
    target.confirm_data(0)
    copied(source, target, 100_000)
    assert (target.entries_end, bodies(target, "Topic0")) == (0, [])
    await target.stop()
    assert check_agreement(tmp_path / "target") == 3
    target = opened(tmp_path / "target")
    assert target.stopped_cleanly
    assert len(bodies(target, "Topic0")) == 3
