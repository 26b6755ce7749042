"""What a pull gets: its limits, its filter, and every way in which it can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.reader import GetResult, GetStatus
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_messages
from tests.unit.broker.store.parts import Clock, fill, log_file, new_store, opened, put, put_batch, template

LARGE = 1 << 20
RECORD = template("TopicA").fixed_bytes


def bodies_of(result: GetResult) -> list[bytes]:
    return [message.body for message in decode_messages(result.body, check_crc=True)]


def offsets_of(result: GetResult) -> list[int]:
    return [message.queue_offset for message in decode_messages(result.body)]


def with_messages(tmp_path: Path, count: int, size: int = 10, **keys: int) -> MessageStore:
    store = new_store(tmp_path, log_file_bytes=LARGE, clock=Clock(), **keys)
    store.open()
    for number in range(count):
        put(store, (b"%d" % number).ljust(size))
    return store


def status(store: MessageStore, offset: int, queue_id: int = 0) -> tuple[GetStatus, int, int, int]:
    result = store.get("TopicA", queue_id, offset, 32, None)
    assert (result.body, result.count) == (b"", 0)
    return result.status, result.next_offset, result.min_offset, result.max_offset


# --- how a pull ends ---


def test_found(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 5)
    result = store.get("TopicA", 0, 1, 3, None)
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 4)
    assert (result.min_offset, result.max_offset, result.count) == (0, 5, 3)
    assert offsets_of(result) == [1, 2, 3]
    assert not result.reads_old_data
    store.close()


def test_no_such_queue(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 1)
    assert status(store, 7, queue_id=1) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    store.queues.get_or_create("TopicA", 1)
    assert status(store, 7, queue_id=1) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    store.close()


def test_beyond_the_end(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 5)
    assert status(store, 5) == (GetStatus.OFFSET_OVERFLOW_ONE, 5, 0, 5)
    assert status(store, 6) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5)
    assert status(store, 1 << 60) == (GetStatus.OFFSET_OVERFLOW_BADLY, 5, 0, 5)
    store.close()


def test_before_the_beginning(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 60, size=5000)
    store.close()
    log_file(tmp_path).unlink()
    store = opened(tmp_path)
    first = store.min_offset("Topic0", 0)
    assert first > 0
    for offset in (0, first - 1, -1):
        result = store.get("Topic0", 0, offset, 32, None)
        assert (result.status, result.next_offset, result.min_offset) == (
            GetStatus.OFFSET_TOO_SMALL,
            first,
            first,
        )
    store.close()


def test_a_queue_whose_messages_have_all_gone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    fill(store, 60, size=5000)
    store.close()
    log_file(tmp_path).unlink()
    store = opened(tmp_path)
    assert status(store, 0) == (GetStatus.OFFSET_TOO_SMALL, 1, 1, 1)
    assert status(store, 1) == (GetStatus.OFFSET_OVERFLOW_ONE, 1, 1, 1)
    store.close()


def test_entries_whose_messages_were_removed(tmp_path: Path) -> None:
    """The log's first file goes before the queue knows: what is there is given, the rest passed over."""
    store = opened(tmp_path)
    fill(store, 40, size=5000)
    in_first_file = sum(
        store.queues.get_or_create("Topic0", 0).read(number, 1)[:8] < (65536).to_bytes(8, "big")
        for number in range(40)
    )
    store.commit_log.files.pop(0).delete()
    store.commit_log._files_changed()
    result = store.get("Topic0", 0, 0, in_first_file, None)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, in_first_file)
    result = store.get("Topic0", 0, in_first_file - 2, 5, None)
    assert (result.status, result.count) == (GetStatus.FOUND, 3)
    assert offsets_of(result) == [in_first_file, in_first_file + 1, in_first_file + 2]
    assert result.next_offset == in_first_file + 3
    store.close()


@pytest.mark.parametrize("tags", [None, frozenset({0}), frozenset({0, 7}), frozenset({7})])
def test_a_gap_is_passed_over_at_once(tmp_path: Path, tags: frozenset[int] | None) -> None:
    store = with_messages(tmp_path, 3)
    queue = store.queues.get_or_create("TopicA", 0)
    queue.fill_gap(2000)
    put(store, b"behind")
    offset, pulls = 0, 0
    while offset < 2001:
        result = store.get("TopicA", 0, offset, 32, tags)
        assert result.next_offset > offset
        offset, pulls = result.next_offset, pulls + 1
    assert pulls <= 9
    store.close()


# --- limits ---


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 1), (31, 31), (32, 32), (33, 32), (1000, 32), (0, 1), (-5, 1)]
)
def test_how_many(tmp_path: Path, asked: int, given: int) -> None:
    store = with_messages(tmp_path, 100)
    for tags in (None, frozenset({0})):
        result = store.get("TopicA", 0, 10, asked, tags)
        assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, given, 10 + given)
    store.close()


@pytest.mark.parametrize(("record_bytes", "given"), [(8192, 32), (8193, 31), (65536, 4), (65537, 3)])
def test_how_much(tmp_path: Path, record_bytes: int, given: int) -> None:
    """256 KiB, to the byte."""
    store = with_messages(tmp_path, 40, record_bytes - RECORD)
    result = store.get("TopicA", 0, 0, 32, None)
    assert (result.count, len(result.body)) == (given, given * record_bytes)
    store.close()


def test_one_message_is_given_however_large(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 0)
    put(store, b"a")
    put(store, b"b" * 600_000)
    put(store, b"c")
    assert store.get("TopicA", 0, 0, 32, None).next_offset == 1
    result = store.get("TopicA", 0, 1, 32, None)
    assert (result.count, result.next_offset, bodies_of(result)) == (1, 2, [b"b" * 600_000])
    assert bodies_of(store.get("TopicA", 0, 2, 32, None)) == [b"c"]
    store.close()


@pytest.mark.parametrize(("size", "given"), [(10, 8), (8192 - RECORD, 8), (8193 - RECORD, 7), (100_000, 1)])
def test_old_data_has_limits_of_its_own(tmp_path: Path, size: int, given: int) -> None:
    """8 messages, 64 KiB: what is far from the log's end may have to come from the disk."""
    store = with_messages(tmp_path, 10 if size > 50_000 else 40, size)
    store.reader._memory_bytes = 2 * (size + RECORD)  # of which 40 % count
    result = store.get("TopicA", 0, 0, 32, None)
    assert (result.count, result.reads_old_data) == (given, True)
    last = store.max_offset("TopicA", 0) - 1
    result = store.get("TopicA", 0, last, 32, None)
    assert (result.count, result.reads_old_data) == (1, True)
    store.reader._memory_bytes = 3 * (size + RECORD)
    assert not store.get("TopicA", 0, last, 32, None).reads_old_data
    assert store.is_in_memory("TopicA", 0, last)
    assert not store.is_in_memory("TopicA", 0, last - 1)
    store.close()


def test_limits_are_settings(tmp_path: Path) -> None:
    store = with_messages(
        tmp_path,
        50,
        maxTransferCountOnMessageInMemory=40,
        maxTransferBytesOnMessageInMemory=20 * (RECORD + 10),
    )
    assert store.get("TopicA", 0, 0, 100, None).count == 20
    store.close()


# --- filter ---


def test_messages_of_chosen_tags(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE)
    fill(store, 200)  # T0, T1, T2 in turn
    chosen = frozenset({tags_code("T1"), tags_code("T2")})
    result = store.get("Topic0", 0, 0, 10, chosen)
    assert offsets_of(result) == [1, 2, 4, 5, 7, 8, 10, 11, 13, 14]
    assert result.next_offset == 16  # 15 is looked at, too
    assert (result.count, result.status) == (10, GetStatus.FOUND)
    store.close()


def test_nothing_of_the_chosen_tags(tmp_path: Path) -> None:
    """A pull looks through 800 entries at most, none beyond the end of a file."""
    store = opened(tmp_path, log_file_bytes=LARGE, queue_file_bytes=2000 * 20)
    for _ in range(25):
        put_batch(store, [b"x"] * 100)
    seen = []
    offset = 0
    while offset < 2500:
        result = store.get("TopicA", 0, offset, 32, frozenset({4711}))
        assert (result.status, result.count, result.body) == (GetStatus.NO_MATCHED_MESSAGE, 0, b"")
        offset = result.next_offset
        seen.append(offset)
    assert seen == [800, 1600, 2000, 2500]
    store.close()


def test_messages_without_tags_have_the_code_0(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, b"without")
    put(store, b"with", tags="TagA")
    assert bodies_of(store.get("TopicA", 0, 0, 32, frozenset({0}))) == [b"without"]
    assert bodies_of(store.get("TopicA", 0, 0, 32, frozenset({tags_code("TagA")}))) == [b"with"]
    store.close()


def test_a_rare_tag_far_behind(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE, queue_file_bytes=6_000_000)
    for _ in range(5):
        put_batch(store, [b"x"] * 100)
    put(store, b"the one", tags="Rare")
    put(store, b"other")
    result = store.get("TopicA", 0, 0, 32, frozenset({tags_code("Rare")}))
    assert (bodies_of(result), result.next_offset) == ([b"the one"], 502)
    store.close()
