"""The messages that a pull gets: limits, filters, and all statuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store.log.mapped_file import Preadv
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.batch_consume_queue import BatchConsumeQueue
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from rmq_broker.store.reading.cold_read import ColdRead
from rmq_broker.store.reading.log_ranges import ColdData
from rmq_broker.store.reading.reader import Reader
from rmq_broker.store.reading.results import GetResult, GetStatus, ReadStatistics
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_messages
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS
from tests.support.examples import examples
from tests.support.stores import Clock, fill, log_file, new_store, opened, put, put_batch, template

LARGE = 1 << 20
RECORD = template("TopicA").fixed_bytes


def bodies_of(result: GetResult) -> list[bytes]:
    return [message.body for message in decode_messages(result.body, check_crc=True)]


def offsets_of(result: GetResult) -> list[int]:
    return [message.queue_offset for message in decode_messages(result.body)]


def with_messages(tmp_path: Path, count: int, size: int = 10, **keys: Any) -> MessageStore:
    store = new_store(tmp_path, log_file_bytes=LARGE, clock=Clock(), **keys)
    store.open()
    for number in range(count):
        put(store, (b"%d" % number).ljust(size))
    return store


def status(store: MessageStore, offset: int, queue_id: int = 0) -> tuple[GetStatus, int, int, int]:
    result = store.get("TopicA", queue_id, offset, 32, None)
    assert (result.body, result.count) == (b"", 0)
    return result.status, result.next_offset, result.min_offset, result.max_offset


# --- statuses ---


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


def test_a_queue_whose_messages_were_all_deleted(tmp_path: Path) -> None:
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
    """The log's first file is deleted before the queue knows: existing messages are read, others skipped."""
    store = opened(tmp_path)
    fill(store, 40, size=5000)
    in_first_file = sum(
        store.queues.get_or_create("Topic0", 0).read(number, 1)[:8] < (65536).to_bytes(8, "big")
        for number in range(40)
    )
    store.commit_log.remove_oldest()
    result = store.get("Topic0", 0, 0, in_first_file, None)
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, in_first_file)
    result = store.get("Topic0", 0, in_first_file - 2, 5, None)
    assert (result.status, result.count) == (GetStatus.FOUND, 3)
    assert offsets_of(result) == [in_first_file, in_first_file + 1, in_first_file + 2]
    assert result.next_offset == in_first_file + 3
    store.close()


@pytest.mark.parametrize("tags", [None, frozenset({0}), frozenset({0, 7}), frozenset({7})])
def test_a_gap_is_skipped_at_once(tmp_path: Path, tags: frozenset[int] | None) -> None:
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
def test_the_limit_of_messages(tmp_path: Path, asked: int, given: int) -> None:
    store = with_messages(tmp_path, 100)
    for tags in (None, frozenset({0})):
        result = store.get("TopicA", 0, 10, asked, tags)
        assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, given, 10 + given)
    store.close()


@pytest.mark.parametrize(("record_bytes", "given"), [(8192, 32), (8193, 31), (65536, 4), (65537, 3)])
def test_the_limit_of_bytes(tmp_path: Path, record_bytes: int, given: int) -> None:
    """256 KiB, to the byte."""
    store = with_messages(tmp_path, 40, record_bytes - RECORD)
    result = store.get("TopicA", 0, 0, 32, None)
    assert (result.count, len(result.body)) == (given, given * record_bytes)
    store.close()


def test_one_message_is_returned_however_large(tmp_path: Path) -> None:
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
    """8 messages, 64 KiB: messages far from the log's end may have to be read from disk."""
    store = with_messages(tmp_path, 10 if size > 50_000 else 40, size)
    store.reader.memory_bytes = 2 * (size + RECORD)  # of which 40 % count
    result = store.get("TopicA", 0, 0, 32, None)
    assert (result.count, result.reads_old_data) == (given, True)
    last = store.max_offset("TopicA", 0) - 1
    result = store.get("TopicA", 0, last, 32, None)
    assert (result.count, result.reads_old_data) == (1, True)
    store.reader.memory_bytes = 3 * (size + RECORD)
    assert not store.get("TopicA", 0, last, 32, None).reads_old_data
    entries = store.queue_entries("TopicA", 0, last - 1, 2) or []
    assert [store.reader.is_recent(physical_offset) for physical_offset, _, _ in entries] == [False, True]
    assert not store.is_first_in_memory("TopicA", 0)
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


# --- pulls in bulk ---


def test_a_bulk_pull_gets_more_bytes(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 1200, queue_file_bytes=40_000)
    queue = store.queues.get("TopicA", 0)
    usual_bytes = 256 * 1024
    for max_bytes, asked, count in [
        (0, 2000, 32),
        (usual_bytes, 2000, 32),
        (usual_bytes + 1, 2000, 1024),
        ((1 << 31) - 1, 2000, 1024),  # pulling Java clients
        ((1 << 31) - 1, 100, 100),
    ]:
        result = store.reader.get(queue, 0, asked, None, max_bytes)
        assert (result.count, result.next_offset) == (count, count)
        assert offsets_of(result) == list(range(count))
    store.close()


def test_a_bulk_pull_is_limited_in_bytes(tmp_path: Path) -> None:
    size = 40_000
    store = with_messages(tmp_path, 20, size, maxTransferBytesOnBulkPull=500_000)
    queue = store.queues.get("TopicA", 0)
    assert store.reader.get(queue, 0, 100, None, 1 << 30).count == 500_000 // (RECORD + size)
    assert store.reader.get(queue, 0, 100, None, 300_000).count == 300_000 // (RECORD + size)
    store.close()


def test_a_bulk_pull_has_its_limits_on_disk_too(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 1200, accessMessageInMemoryMaxRatio=0, queue_file_bytes=40_000)
    queue = store.queues.get("TopicA", 0)
    assert store.reader.get(queue, 0, 2000, None).count == 8
    assert store.reader.get(queue, 0, 2000, None, 1 << 30).count == 1024
    store.close()


def test_bulk_pulls_can_be_switched_off(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 700, maxTransferBytesOnBulkPull=0)
    assert store.reader.get(store.queues.get("TopicA", 0), 0, 1000, None, 1 << 30).count == 32
    store.close()


# --- filter ---


def test_messages_of_some_tags(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE)
    fill(store, 200)  # T0, T1, T2 in turn
    chosen = frozenset({tags_code("T1"), tags_code("T2")})
    result = store.get("Topic0", 0, 0, 10, chosen)
    assert offsets_of(result) == [1, 2, 4, 5, 7, 8, 10, 11, 13, 14]
    assert result.next_offset == 16  # offset 15 is examined, too
    assert (result.count, result.status) == (10, GetStatus.FOUND)
    store.close()


def test_no_message_of_the_tags(tmp_path: Path) -> None:
    """A pull examines at most 20 times maxFilterMessageSize, and nothing beyond the end of a file."""
    store = opened(tmp_path, log_file_bytes=LARGE, queue_file_bytes=2200 * 20, maxFilterMessageSize=40 * 20)
    for _ in range(25):
        put_batch(store, [b"x"] * 100)
    assert _positions_of_empty_pulls(store) == [800, 1600, 2200, 2500]
    store.close()


def _positions_of_empty_pulls(store: MessageStore) -> list[int]:
    """The offsets at which pulls that find nothing continue."""
    seen = []
    offset = 0
    while offset < 2500:
        result = store.get("TopicA", 0, offset, 32, frozenset({4711}))
        assert (result.status, result.count, result.body) == (GetStatus.NO_MATCHED_MESSAGE, 0, b"")
        offset = result.next_offset
        seen.append(offset)
    return seen


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


def test_messages_before_a_rare_tag_are_skipped_at_once(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE, queue_file_bytes=6_000_000, maxFilterMessageSize=40 * 20)
    for _ in range(3):
        put_batch(store, [b"x"] * 100)
    places = [put(store, b"wanted", tags="Rare")[1] for _ in range(3)]
    put_batch(store, [b"x"] * 100)
    put(store, b"far behind", tags="Rare")
    chosen = frozenset({tags_code("Rare"), 4711})
    result = store.get("TopicA", 0, 0, 32, chosen)
    assert (offsets_of(result), result.next_offset) == (places, 340)  # 40 entries from the first one on
    result = store.get("TopicA", 0, 0, 2, chosen)
    assert (offsets_of(result), result.next_offset) == (places[:2], 302)
    result = store.get("TopicA", 0, 340, 32, chosen)
    assert (offsets_of(result), result.next_offset) == ([403], 404)
    store.close()


# --- cold messages ---


def _always_cold(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
    raise BlockingIOError(errno.EAGAIN, "not in memory")


def _cannot_tell(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
    if flags:
        raise OSError(errno.EOPNOTSUPP, "not supported")
    return os.preadv(descriptor, buffers, position, flags)


def _cold_reader(store: MessageStore, preadv: Preadv = _always_cold, **keys: int) -> Reader:
    return Reader(store.commit_log, broker_settings(**keys), preadv)


def _queue(store: MessageStore, queue_id: int = 0, topic: str = "Topic0") -> ConsumeQueue:
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    return queue


def test_a_cold_read_is_finished_by_a_thread(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE)
    fill(store, 100)
    reader = _cold_reader(store)
    warm = store.reader.get_now(_queue(store), 10, 20, None)
    assert isinstance(warm, GetResult)

    cold = reader.get_now(_queue(store), 10, 20, None)
    assert isinstance(cold, ColdRead)
    assert reader.statistics == ReadStatistics()
    thread = Thread(target=cold.run)
    thread.start()
    thread.join()
    cold.read_ahead()

    assert reader.finish(cold) == warm
    assert reader.statistics == ReadStatistics(20, len(warm.body), 1, len(warm.body))
    assert store.reader.statistics == ReadStatistics(20, len(warm.body), 0, 0)
    store.close()


async def test_cold_entries_of_a_queue_are_read_by_the_thread_too(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE)
    fill(store, 100)
    expected = store.get("Topic0", 0, 10, 20, None)
    await store.stop()
    store = opened(tmp_path, log_file_bytes=LARGE)  # which has read no entries yet
    cold = store.reader.get_now(_queue(store), 10, 20, None)
    assert isinstance(cold, ColdRead)
    assert store.reader.finish(cold.run()) == expected
    cold.read_ahead()
    # A read beyond the queue needs no disk.
    result = store.reader.get_now(_queue(store), 100, 20, None)
    assert isinstance(result, GetResult)
    store.close()


def test_a_removed_file_gives_the_same_status_warm_and_cold(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 40, size=5000)
    reader, queue = _cold_reader(store), _queue(store)
    before = reader.get_now(queue, 0, 2, None)
    store.commit_log.remove_oldest()
    log_file(tmp_path).unlink()
    after = reader.get_now(queue, 0, 2, None)
    assert isinstance(before, ColdRead)
    # A read that has begun keeps the file; a read that begins now finds it removed.
    assert reader.finish(before.run()).status is GetStatus.FOUND
    assert isinstance(after, GetResult)
    assert (after.status, after.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 2)
    assert reader.statistics.cold_reads == 1
    store.close()


def test_without_nowait_old_messages_are_read_in_a_thread(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=LARGE)
    fill(store, 100)
    reader = _cold_reader(store, _cannot_tell)
    young = reader.get_now(_queue(store), 0, 5, None)
    assert isinstance(young, GetResult)
    reader.memory_bytes = 100
    old = reader.get_now(_queue(store), 0, 5, None)
    assert isinstance(old, ColdRead)
    result = reader.finish(old.run())
    assert (result.body, result.reads_old_data) == (young.body, True)
    store.close()


def test_a_thread_searches_for_the_end_of_a_gap(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 3)
    queue = _queue(store, topic="TopicA")
    queue.fill_gap(20_000)
    put(store, b"behind")
    cold = store.reader.get_now(queue, 3, 32, None)
    assert isinstance(cold, ColdRead)
    result = store.reader.finish(cold.run())
    assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 20_000)
    store.close()


@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([10, 300, 3000, 20_000]), st.sampled_from("ABC")),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 30),
    st.integers(1, 40),
    st.sampled_from([None, frozenset({tags_code("A")}), frozenset({tags_code("B"), tags_code("C")})]),
    st.booleans(),
    st.booleans(),
)
def test_warm_and_cold_reads_return_the_same(
    messages: list[tuple[int, int, str]],
    offset: int,
    count: int,
    tags: frozenset[int] | None,
    is_old: bool,
    is_removed: bool,
) -> None:
    """And they hold the stored messages, in order."""
    with TemporaryDirectory() as folder:
        store = opened(Path(folder))
        for number, (queue_id, size, tag) in enumerate(messages):
            put(store, b"%04d" % number + bytes(size), queue_id=queue_id, tags=tag)
        queue = store.queues.get("TopicA", 0)
        cold_reader = _cold_reader(store)
        if is_old:
            store.reader.memory_bytes = cold_reader.memory_bytes = 0
        if is_removed and len(store.commit_log.files) > 1:
            store.commit_log.remove_oldest()
        warm = store.reader.get(queue, offset, count, tags)
        assert cold_reader.get(queue, offset, count, tags) == warm
        log_begin = store.commit_log.min_offset
        expected = [b"%04d" % n + bytes(s) for n, (q, s, _) in enumerate(messages) if q == 0]
        found = decode_messages(warm.body)
        assert len(found) == warm.count
        assert all(message.body == expected[message.queue_offset] for message in found)
        assert all(message.physical_offset >= log_begin for message in found)
        assert [m.queue_offset for m in found] == sorted({m.queue_offset for m in found})
        if warm.status is GetStatus.FOUND:
            assert offset <= found[0].queue_offset <= found[-1].queue_offset < warm.next_offset
        store.close()


# --- tags codes in extension files ---


def test_a_tags_code_in_an_extension_file_is_looked_up_in_a_thread(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 2)
    queue = _queue(store, topic="TopicA")
    address = -(1 << 63) + 40
    entry = queue.entry(0)
    assert entry is not None
    queue.put(entry[0], entry[1], address)
    store.appender.notify_arrival(queue, START_MS)
    codes = {address: 7}
    queue.ext = SimpleNamespace(tags_code=codes.get)  # type: ignore[assignment]

    def given(*tags: int) -> int:
        cold = store.reader.get_now(queue, 2, 32, frozenset(tags))
        assert isinstance(cold, ColdRead)
        return store.reader.finish(cold.run()).count

    assert (given(7), given(8)) == (1, 0)
    codes.clear()
    assert given(8) == 1  # unknown tags codes match
    assert isinstance(store.reader.get_now(queue, 2, 32, None), GetResult)
    store.close()


# --- queues of batches ---


class _Batches:
    """A store with a queue of batches: (messages, bytes, tags code) each."""

    def __init__(self, root: Path, batches: Sequence[tuple[int, int, int]]) -> None:
        self.store = new_store(root, log_file_bytes=LARGE)
        self.store.open()
        self.queue = BatchConsumeQueue(root / "batches", "TopicA", 0, 46 * 1000)
        for number, (messages, size, code) in enumerate(batches):
            offset, _ = put(self.store, (b"%d" % number).ljust(size - RECORD), topic="TopicA", queue_id=9)
            self.queue.put(offset, size, code, 0, messages)

    def get(self, offset: int, count: int = 32, tags: frozenset[int] | None = None) -> GetResult:
        warm = self.store.reader.get(self.queue, offset, count, tags)
        assert _cold_reader(self.store).get(self.queue, offset, count, tags) == warm
        return warm

    def numbers(self, result: GetResult) -> list[int]:
        return [int(message.body) for message in decode_messages(result.body)]


def test_a_batch_counts_as_its_messages(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(10, 300, 0)] * 5)
    result = batches.get(0)
    assert (result.status, result.count, result.next_offset) == (GetStatus.FOUND, 30, 30)
    assert batches.numbers(result) == [0, 1, 2]
    assert (result.min_offset, result.max_offset) == (0, 50)
    assert batches.get(30).next_offset == 50
    assert batches.get(50).status is GetStatus.OFFSET_OVERFLOW_ONE
    batches.store.close()


def test_an_offset_within_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(10, 300, 0), (1, 300, 0), (5, 300, 0)])
    result = batches.get(7, count=11)
    assert (batches.numbers(result), result.count, result.next_offset) == ([0, 1], 11, 11)
    assert batches.numbers(batches.get(15)) == [2]
    batches.store.close()


def test_one_batch_is_returned_however_large(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(100, 300_000, 0), (1, 300, 0)])
    result = batches.get(0, count=1)
    assert (batches.numbers(result), result.count, result.next_offset) == ([0], 100, 100)
    batches.store.close()


def test_batches_are_bounded_in_bytes(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(1, 100_000, 0)] * 4)
    assert batches.numbers(batches.get(0)) == [0, 1]
    batches.store.close()


def test_batches_of_some_tags(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(4, 300, 1), (4, 300, 2), (4, 300, 1), (4, 300, 2)])
    result = batches.get(0, tags=frozenset({2}))
    assert (batches.numbers(result), result.count, result.next_offset) == ([1, 3], 8, 16)
    result = batches.get(5, tags=frozenset({3}))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 16)
    batches.store.close()


def test_a_gap_between_batches_is_skipped(tmp_path: Path) -> None:
    batches = _Batches(tmp_path, [(4, 300, 1)])
    batches.queue.fill_gap(1000)
    offset, _ = put(batches.store, b"1".ljust(300 - RECORD), queue_id=9)
    batches.queue.put(offset, 300, 1, 0, 3)
    result = batches.get(500)
    assert (batches.numbers(result), result.count, result.next_offset) == ([1], 3, 1003)
    batches.store.close()


def test_a_record_by_its_log_offset(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 3)
    (first, second) = [entry[0] for entry in store.queue_entries("TopicA", 0, 0, 2) or []]

    assert store.record_now(first) == store.record_at(first)
    assert decode_messages(store.record_now(second) or b"")[0].body.startswith(b"1")
    for place in (-1, first + 1, second - 4, store.max_phy_offset(), store.max_phy_offset() + 1, 2**62):
        assert store.record_now(place) is None


def test_a_record_that_is_not_in_memory(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 1)

    def cold(*_: object) -> int:
        raise BlockingIOError

    store.reader = Reader(store.commit_log, broker_settings(), cold)
    with pytest.raises(ColdData):
        store.record_now(0)


def test_without_nowait_old_records_count_as_cold(tmp_path: Path) -> None:
    store = with_messages(tmp_path, 2)
    store.reader.warm.is_exact = False
    assert store.record_now(0) is not None
    store.reader.memory_bytes = 0
    with pytest.raises(ColdData):
        store.record_now(0)
