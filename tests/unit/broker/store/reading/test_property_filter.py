"""Reading with a filter of message properties."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store.log.record import properties_of
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from rmq_broker.store.reading.cold_read import ColdRead
from rmq_broker.store.reading.property_filter import PropertyFilter
from rmq_broker.store.reading.reader import Reader
from rmq_broker.store.reading.results import GetResult, GetStatus
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message_codec import decode_messages
from tests.support.broker_settings import broker_settings
from tests.support.examples import examples
from tests.support.golden import json_lines
from tests.support.stores import fill, log_file, new_store, opened, put

_LARGE = 1 << 20


def _wants(kind: bytes, tests: int = 1) -> PropertyFilter:
    return PropertyFilter(kind.decode(), lambda properties: b"kind\x01%b\x02" % kind in properties, tests)


_RED = _wants(b"red")


def _put(store: MessageStore, *kinds: str, size: int = 10, queue_id: int = 0, tags: str = "") -> None:
    for kind in kinds:
        properties = b"kind\x01%b\x02" % kind.encode()
        put(store, kind.encode().ljust(size), "T", queue_id, properties=properties, tags=tags)


def _queue(store: MessageStore, topic: str = "T") -> ConsumeQueue:
    queue = store.queues.get(topic, 0)
    assert queue is not None
    return queue


def _get(store: MessageStore, offset: int, wanted: PropertyFilter = _RED, count: int = 32) -> GetResult:
    return store.reader.get(_queue(store), offset, count, None, 0, wanted)


def _offsets(result: GetResult) -> list[int]:
    offsets = [message.queue_offset for message in decode_messages(result.body, check_crc=True)]
    assert len(offsets) == result.count
    return offsets


def test_messages_that_match_the_filter(tmp_path: Path) -> None:
    store = opened(tmp_path)
    _put(store, "blue", "red", "blue", "red", "red", "blue")
    result = _get(store, 0)
    assert (result.status, _offsets(result), result.next_offset) == (GetStatus.FOUND, [1, 3, 4], 6)
    result = _get(store, 2, count=1)
    assert (_offsets(result), result.next_offset) == ([3], 4)
    result = _get(store, 5)
    assert (result.status, result.next_offset, result.body) == (GetStatus.NO_MATCHED_MESSAGE, 6, b"")
    assert _get(store, 6).status is GetStatus.OFFSET_OVERFLOW_ONE
    store.close()


def _needles(*kinds: bytes) -> PropertyFilter:
    """The same messages as `_wants` takes, found by needles."""
    needles = tuple(b"kind\x01" + kind for kind in kinds)
    wanted = {b"kind\x01%b\x02" % kind for kind in kinds}
    return PropertyFilter(
        "needles", lambda raw: any(each in raw for each in wanted), may_match=None, needles=needles
    )


@settings(max_examples=examples(50), deadline=None)
@given(
    kinds=st.lists(
        st.sampled_from(["red", "redder", "blue", "green", "", "kind\x01red"]), min_size=1, max_size=40
    ),
    wanted=st.lists(st.sampled_from([b"red", b"blue", b"redder"]), min_size=1, max_size=3, unique=True),
    gap_bytes=st.sampled_from([0, 100, 20_000]),
    count=st.integers(1, 10),
)
def test_a_search_for_needles_finds_the_same_messages(
    kinds: list[str], wanted: list[bytes], gap_bytes: int, count: int
) -> None:
    with TemporaryDirectory() as root:
        store = opened(Path(root))
        for kind in kinds:
            _put(store, kind)
            if gap_bytes:  # the record of another queue, which contains the needles, too
                put(store, bytes(gap_bytes), "T", 1, properties=b"kind\x01red\x02kind\x01blue\x02")
        by_needles = _needles(*wanted)
        by_tests = PropertyFilter("tests", by_needles.matches)
        for offset in range(len(kinds)):
            found, expected = (_get(store, offset, each, count) for each in (by_needles, by_tests))
            assert (found.status, found.body, found.count) == (expected.status, expected.body, expected.count)
            # A read with needles ends at the first match beyond the limit, the other one at the next message.
            assert expected.next_offset <= found.next_offset <= len(kinds)
            later = _get(store, expected.next_offset, by_tests) if expected.next_offset < len(kinds) else None
            if found.next_offset > expected.next_offset and later is not None and later.count:
                assert _offsets(later)[0] >= found.next_offset
        store.close()


def test_tags_and_properties_together(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for tag in "AB":
        _put(store, "red", "blue", tags=tag)
    result = store.reader.get(_queue(store), 0, 32, frozenset({tags_code("B")}), 0, _RED)
    assert _offsets(result) == [2]
    assert store.reader.get(_queue(store), 0, 32, frozenset({7}), 0, _RED).next_offset == 4
    store.close()


def test_one_read_tests_a_bounded_number_of_messages(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=_LARGE, queue_file_bytes=2000 * 20)
    _put(store, *["blue"] * 1000, "red")
    assert _get(store, 0).next_offset == 800
    assert _offsets(_get(store, 800)) == [1000]
    # The more an expression costs, the fewer messages are tested.
    assert _get(store, 0, _wants(b"red", tests=500)).next_offset == 8
    assert _get(store, 0, _wants(b"red", tests=10**6)).next_offset == 1
    store.close()


def test_one_read_tests_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=16 << 20)
    _put(store, *["blue"] * 20, size=100_000)
    assert _get(store, 0).next_offset == 10
    _put(store, "red", size=2 << 20)
    assert _offsets(_get(store, 20)) == [20]
    store.close()


def test_the_limits_of_a_result(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=16 << 20)
    _put(store, *["red", "blue"] * 50)
    assert _offsets(_get(store, 0, count=100)) == list(range(0, 64, 2))
    assert _get(store, 0, count=100).next_offset == 63
    _put(store, *["red"] * 10, size=60_000)
    assert len(_offsets(_get(store, 100))) == 4
    store.close()


def test_bounded_reads_skip_no_message(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=_LARGE)
    kinds = ["red" if number % 7 == 3 else "blue" for number in range(500)]
    for number, kind in enumerate(kinds):
        _put(store, kind, size=[10, 3000, 20_000][number % 3])
        put(store, b"another topic's", "Other")
    seen, offset = [], 0
    while offset < 500:
        result = _get(store, offset, count=5)
        assert result.next_offset > offset
        seen += _offsets(result)
        offset = result.next_offset
    assert seen == [number for number, kind in enumerate(kinds) if kind == "red"]
    store.close()


# --- cold and missing messages ---


def _cold(store: MessageStore, preadv_fails_from: int = 0) -> Reader:
    """A reader that finds the log cold from an offset on."""

    def preadv(descriptor: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        if position + len(buffers[0]) > preadv_fails_from:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return os.preadv(descriptor, buffers, position, 0)

    return Reader(store.commit_log, broker_settings(), preadv)


def test_cold_messages_are_filtered_in_a_thread(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=_LARGE)
    _put(store, *["blue", "red"] * 20)
    warm = _get(store, 3)
    reader = _cold(store)
    cold = reader.get_now(_queue(store), 3, 32, None, 0, _RED)
    assert isinstance(cold, ColdRead)
    assert reader.finish(cold.run()) == warm
    cold.read_ahead()
    assert reader.statistics.cold_reads == 1 and reader.statistics.messages_got == warm.count
    store.close()


def test_messages_in_memory_are_returned_first(tmp_path: Path) -> None:
    store = opened(tmp_path, log_file_bytes=4 * _LARGE)
    _put(store, *["red"] * 4, size=200_000)
    reader = _cold(store, preadv_fails_from=500_000)
    result = reader.get_now(_queue(store), 0, 32, None, 0, _RED)
    assert isinstance(result, GetResult)
    assert (_offsets(result), result.next_offset) == ([0], 1)
    result = reader.get_now(_queue(store), 1, 32, None, 0, _RED)
    assert isinstance(result, GetResult) and _offsets(result) == [1]
    assert isinstance(reader.get_now(_queue(store), 2, 32, None, 0, _RED), ColdRead)
    store.close()


def test_removed_messages(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 40, size=5000)
    store.commit_log.remove_oldest()
    log_file(tmp_path).unlink()
    everything = PropertyFilter("all", lambda properties: True)
    result = store.reader.get(_queue(store, "Topic0"), 0, 2, None, 0, everything)
    assert result.status is GetStatus.FOUND and result.next_offset > 2
    nothing_there = store.reader.get(_queue(store, "Topic0"), 0, 2, frozenset({tags_code("T0")}), 0, _RED)
    assert nothing_there.body == b""
    store.close()


def test_a_gap_is_skipped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    _put(store, "red", "blue")
    _queue(store).fill_gap(20_000)
    _put(store, "blue", "red")
    seen: list[int] = []
    offset = pulls = 0
    while offset < 20_002:
        result = _get(store, offset)
        assert result.next_offset > offset
        seen += _offsets(result)
        offset, pulls = result.next_offset, pulls + 1
    assert (seen, pulls <= 4) == ([0, 20_001], True)
    store.close()


def test_bit_maps_save_reads_from_disk(tmp_path: Path) -> None:
    store = new_store(
        tmp_path,
        log_file_bytes=_LARGE,
        bit_map_of=lambda topic, properties: b"R" if b"red" in properties() else b"-",
        enableConsumeQueueExt=True,
    )
    store.open()
    _put(store, *["red", "blue", "blue"] * 20)
    looked_at: list[bytes] = []

    def matches(properties: bytes) -> bool:
        looked_at.append(properties)
        return b"red" in properties

    def cold_read(may_match: Callable[[int, bytes], bool]) -> GetResult:
        looked_at.clear()
        wanted = PropertyFilter("red", matches, 1, may_match)
        cold = _cold(store).get_now(_queue(store), 0, 32, None, 0, wanted)
        assert isinstance(cold, ColdRead)
        result = cold.run().result
        assert result is not None
        return result

    assert _offsets(cold_read(lambda _, bit_map: bit_map == b"R")) == list(range(0, 60, 3))
    assert len(looked_at) == 20
    assert _offsets(cold_read(lambda _, bit_map: True)) == list(range(0, 60, 3))
    assert len(looked_at) == 60
    nothing = cold_read(lambda _, bit_map: bit_map == b"G")
    assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 60)
    # By the message's store time.
    seen: list[int] = []

    def note(store_time_ms: int, bit_map: bytes) -> bool:
        seen.append(store_time_ms)
        return True

    cold_read(note)
    stored = [message.store_timestamp for message in decode_messages(store.get("T", 0, 0, 32, None).body)]
    assert seen[:32] == stored
    # Tags are found behind the addresses.
    assert store.get("T", 0, 0, 32, frozenset({4711})).status is GetStatus.NO_MATCHED_MESSAGE
    assert store.get("T", 0, 0, 32, frozenset({0})).count == 32
    store.close()


# --- every kind of record ---


def test_the_properties_of_records() -> None:
    rows = json_lines("wire/messages.jsonl", "stored message")
    versions = set()
    for row in rows:
        record = bytes.fromhex(row["hex"])
        versions.add(record[7])
        raw = properties_of(record, 0, len(record))
        assert raw == properties_of(b"before" + record + b"behind", 6, len(record))
        length = int.from_bytes(record[-len(raw) - 2 :][:2], "big") if raw else 0
        assert length == len(raw)
    assert len(versions) == 2


@pytest.mark.parametrize("damaged", [b"", b"\0" * 40, b"\xff" * 91, b"\x7f" * 91])
def test_a_damaged_record_has_no_properties(damaged: bytes) -> None:
    assert properties_of(damaged, 0, len(damaged)) == b""


@settings(max_examples=examples(25))
@given(
    st.lists(
        st.tuples(st.sampled_from([10, 300, 20_000]), st.sampled_from(["red", "blue"])),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 40),
)
def test_pulls_return_matching_messages_in_order(messages: list[tuple[int, str]], count: int) -> None:
    with TemporaryDirectory() as folder:
        store = opened(Path(folder))
        for size, kind in messages:
            _put(store, kind, size=size)
        seen, offset = [], 0
        while offset < len(messages):
            result = _get(store, offset, count=count)
            assert result.next_offset > offset and result.count <= count
            seen += _offsets(result)
            offset = result.next_offset
        assert seen == [number for number, (_, kind) in enumerate(messages) if kind == "red"]
        store.close()
