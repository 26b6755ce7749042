"""A log that follows another one's: the same bytes, the same queues, the same index."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreUnavailable
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from tests.unit.broker.store.parts import (
    LOG_FILE_BYTES,
    bodies,
    check_agreement,
    fill,
    opened,
    put,
    put_batch,
)


def copied(source: MessageStore, target: MessageStore, most: int, until: int | None = None) -> None:
    """Bring the target's log up to the source's, in parts of `most` bytes."""
    chance = random.Random(most)
    end = source.commit_log.max_offset if until is None else until
    offset = target.commit_log.max_offset
    while offset < end:
        data = source.commit_log.get_data(offset, min(chance.randint(1, most), end - offset))
        assert data
        target.append_data(offset, data)
        offset += len(data)


def queues_of(store: MessageStore) -> dict[tuple[str, int], bytes]:
    return {
        (queue.topic, queue.queue_id): b"".join(
            queue.read(offset, 1) for offset in range(queue.min_offset, queue.max_offset)
        )
        for queue in store.queues
        if queue.max_offset
    }


@pytest.mark.parametrize("most", [7, 100, 5000, 100_000])
def test_the_same_log_makes_the_same_queues(tmp_path: Path, most: int) -> None:
    """However the bytes are cut, over several files of the log."""
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


def test_a_record_is_entered_when_all_of_it_is_there(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    arrived: list[ConsumeQueue] = []
    target.appender.on_arrival = arrived.append
    put(source, b"first")
    put(source, b"second")
    end = source.commit_log.max_offset
    copied(source, target, 50, until=end - 1)
    assert (target.max_offset("TopicA", 0), len(arrived)) == (1, 1)
    assert 0 < target.dispatch_behind_bytes < end
    copied(source, target, 50)
    assert bodies(target) == [b"first", b"second"]
    assert (len(arrived), target.dispatch_behind_bytes) == (2, 0)
    source.close()
    target.close()


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 300, size=300)
    copied(source, target, 4000, until=source.commit_log.max_offset // 2)
    target.close()
    target = opened(tmp_path / "b")
    # What came in part is no record to a start: it is cut off, and comes again.
    assert target.commit_log.max_offset <= source.commit_log.max_offset // 2
    copied(source, target, 4000)
    assert queues_of(target) == queues_of(source)
    source.close()
    target.close()


def test_it_may_begin_in_the_middle_of_the_other_log(tmp_path: Path) -> None:
    """The other one's first files are gone: queues begin where its messages do."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    fill(source, 900, size=150)
    begin = source.commit_log.files[1].start
    data = source.commit_log.get_data(begin, 10_000)
    assert data
    target.append_data(begin, data)
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


def test_data_of_the_log(tmp_path: Path) -> None:
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
