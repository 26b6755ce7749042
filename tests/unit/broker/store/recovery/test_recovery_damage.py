"""Logs that are damaged at the end or in the middle."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import HEAD_BYTES, PAGE_BYTES, file_name
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_broker.store.reading.results import GetStatus
from tests.support.rows import each_row
from tests.support.stores import (
    Clock,
    bodies,
    check_agreement,
    copy_of,
    entries_on_disk,
    fill,
    log_file,
    machine_crashed,
    opened,
    overwrite,
    put,
    put_batch,
    read_all,
    records_on_disk,
)

SMALL = 8192
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT = 20, 28
crashes = pytest.mark.parametrize("crash_of_the_machine", [False, True], ids=["killed", "crashed"])


class Torn:
    """A store to be opened repeatedly, each time with other damage to the last message."""

    def __init__(self, root: Path, crash_of_the_machine: bool) -> None:
        store = opened(root, log_file_bytes=SMALL)
        for number in range(5):
            put(store, b"message %d" % number, properties=b"a\x01b\x02", tags="TagA")
        begin, _ = put(store, b"the last message", properties=b"name\x01value\x02", tags="TagB")
        store.close()
        self.root = root
        self.crash_of_the_machine = crash_of_the_machine
        self.log = log_file(root)
        self.queue = root / "consumequeue/TopicA/0" / file_name(0)
        self.content, self.entries = self.log.read_bytes(), self.queue.read_bytes()
        self.record = range(begin, begin + list(records_on_disk(root))[-1].message.store_size)

    def put_back(self, *, with_entry: bool) -> None:
        """Restore the directory before the damage, with or without the queue's last entry."""
        self.log.write_bytes(self.content)
        self.queue.write_bytes(self.entries if with_entry else self.entries[:100] + bytes(5900))
        (self.root / "abort").touch()
        (self.root / "rmq_checkpoint").unlink(missing_ok=True)
        if self.crash_of_the_machine:
            machine_crashed(self.root)

    def opened_twice(self) -> int:
        """The number of messages found, after checking that they are readable and appends continue."""
        store = opened(self.root, log_file_bytes=SMALL)
        found = read_all(store)
        end = store.commit_log.max_offset
        store.close()
        assert check_agreement(self.root) == len(found)
        store = opened(self.root, log_file_bytes=SMALL)
        assert store.commit_log.max_offset == end
        assert read_all(store) == found
        assert put(store, b"next") == (end, len(found))
        store.close()
        assert check_agreement(self.root) == len(found) + 1
        assert [message.body for message in found[:5]] == [b"message %d" % number for number in range(5)]
        assert all(message.body == b"the last message" for message in found[5:])
        return len(found)


@crashes
@pytest.mark.parametrize("with_entry", [False, True])
def test_a_last_record_written_in_part(tmp_path: Path, crash_of_the_machine: bool, with_entry: bool) -> None:
    """Zeros from any byte on, or a file that ends there; the process writes the beginning last."""
    torn = Torn(tmp_path, crash_of_the_machine)
    properties = torn.content.index(b"name\x01value", torn.record.start)
    for position in torn.record:
        written = torn.content[:position]
        if not crash_of_the_machine:
            head = torn.record.start
            written = (written[:head] + bytes(HEAD_BYTES) + written[head + HEAD_BYTES :])[:position]
        contents = [written + bytes(SMALL - position)]
        if position % 8 == 0:
            contents.append(written)
        for content in contents:
            torn.put_back(with_entry=with_entry)
            torn.log.write_bytes(content)
            found = torn.opened_twice()
            if position < properties or not crash_of_the_machine:
                assert found == 5, position


@crashes
def test_a_last_record_with_a_damaged_byte(tmp_path: Path, crash_of_the_machine: bool) -> None:
    """The record is found or not, and no other message is affected."""
    torn = Torn(tmp_path, crash_of_the_machine)
    for position in torn.record:
        for flip in (0x01, 0x80):
            torn.put_back(with_entry=False)
            overwrite(torn.log, position, bytes((torn.content[position] ^ flip,)))
            store = opened(tmp_path, log_file_bytes=SMALL)
            assert bodies(store, last=5) == [b"message %d" % number for number in range(5)]
            end = store.commit_log.max_offset
            assert end in (torn.record.start, torn.record.stop)
            offset = store.max_offset("TopicA", 0)
            assert offset in (5, 6)
            assert put(store, b"next") == (end, offset)
            store.close()
            store = opened(tmp_path, log_file_bytes=SMALL)
            assert store.max_offset("TopicA", 0) == offset + 1
            assert store.get("TopicA", 0, offset, 1, None).body.endswith(b"next\x06TopicA\0\0")
            store.close()
            for topic in tmp_path.glob("consumequeue/*"):
                if topic.name != "TopicA":
                    shutil.rmtree(topic)
            for queue_id in tmp_path.glob("consumequeue/TopicA/*"):
                if queue_id.name != "0":
                    shutil.rmtree(queue_id)


@crashes
def test_old_records_behind_the_end_never_reappear(tmp_path: Path, crash_of_the_machine: bool) -> None:
    """Valid records of the same size follow a damaged one: they are cleared."""
    store = opened(tmp_path)
    places = [put(store, b"old %d" % number) for number in range(10)]
    store.close()
    overwrite(log_file(tmp_path), places[5][0] + 90, b"?")
    overwrite(tmp_path / "consumequeue/TopicA/0" / file_name(0), 100, bytes(100))
    if crash_of_the_machine:
        machine_crashed(tmp_path)
    store = opened(tmp_path)
    assert bodies(store) == [b"old %d" % number for number in range(5)]
    assert put(store, b"new 5") == places[5]
    store.close()
    for _ in range(2):
        store = opened(tmp_path)
        assert bodies(store) == [b"old %d" % number for number in range(5)] + [b"new 5"]
        store.close()
        machine_crashed(tmp_path)
    assert check_agreement(tmp_path) == 6


# --- impossible queue offsets ---


def with_queue_offset(root: Path, place: int, queue_offset: int) -> None:
    overwrite(log_file(root), place + QUEUE_OFFSET_AT, struct.pack(">q", queue_offset))


def damaged_offset(tmp_path: Path, at: int, queue_offset: int, *, messages: int = 20) -> MessageStore:
    """A store, opened without queues, in which one record has a wrong queue offset."""
    store = opened(tmp_path)
    places = [put(store, b"%d" % number)[0] for number in range(messages)]
    store.close()
    with_queue_offset(tmp_path, places[at], queue_offset)
    shutil.rmtree(tmp_path / "consumequeue")
    return opened(tmp_path)


@each_row("queue_offset", [20 * 100 // 90 + 1, 10_000, 1 << 31, 1 << 40, (1 << 63) - 1])
@each_row("at", [0, 10, 19])
def test_an_impossible_queue_offset(
    tmp_path: Path, queue_offset: int, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The record gets no entry, all others keep theirs, and no huge gap is filled."""
    store = damaged_offset(tmp_path, at, queue_offset)
    expected = [b"%d" % number for number in range(20) if number != at]
    assert bodies(store) == expected
    assert f"topic=TopicA queue=0 queue_offset={queue_offset} " in caplog.text
    # Behind the last message 20 would be right, but 19 cannot be ruled out.
    assert put(store, b"next")[1] == (19 if at == 19 else 20)
    store.close()
    store = opened(tmp_path)
    assert bodies(store) == [*expected, b"next"]
    store.close()
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*")) < 1 << 20


@pytest.mark.parametrize(("at", "queue_offset"), [(10, 3), (19, 18), (10, 12), (10, 15), (5, 6)])
def test_a_queue_offset_of_another_message(tmp_path: Path, at: int, queue_offset: int) -> None:
    """A damaged field loses at most its own message."""
    store = damaged_offset(tmp_path, at, queue_offset)
    found = bodies(store)
    assert len(found) == len(set(found))
    assert set(found) >= {b"%d" % number for number in range(20) if number != at}
    assert put(store, b"next")[1] == (19 if at == 19 else 20)
    expected = [*found, b"next"]
    store.close()
    for _ in range(2):
        store = opened(tmp_path)
        assert bodies(store) == expected
        store.close()


def test_an_offset_assigned_twice(tmp_path: Path) -> None:
    """An earlier broker lost a queue's end and reused its offsets: the first messages win, as with Apache."""
    store = opened(tmp_path)
    places = [put(store, b"%d" % number)[0] for number in range(10)]
    store.close()
    for number in range(7, 10):
        with_queue_offset(tmp_path, places[number], number - 2)
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert bodies(store) == [b"%d" % number for number in (0, 1, 2, 3, 4, 5, 6, 9)]
    assert put(store)[1] == 8
    store.close()


def test_a_gap_in_the_log_stays_a_gap(tmp_path: Path) -> None:
    """Messages of a queue are missing in the log: others keep their offsets, pulls skip the gap."""
    store = opened(tmp_path)
    for number in range(200):
        put(store, b"%d" % number, properties=b"a\x01" + b"x" * 400)
    store.close()
    for stored in records_on_disk(tmp_path):
        if 50 <= stored.message.queue_offset < 150:
            place = stored.message.physical_offset
            file = log_file(tmp_path, place // 65536)
            overwrite(file, place % 65536 + 12, struct.pack(">i", 7))  # of another queue
            overwrite(
                file, place % 65536 + QUEUE_OFFSET_AT, struct.pack(">q", stored.message.queue_offset - 50)
            )
    shutil.rmtree(tmp_path / "consumequeue")
    for _ in range(3):
        store = opened(tmp_path)
        assert store.max_offset("TopicA", 0) == 200
        assert bodies(store) == [b"%d" % number for number in (*range(50), *range(150, 200))]
        assert bodies(store, queue_id=7) == [b"%d" % number for number in range(50, 150)]
        assert store.get("TopicA", 0, 50, 32, None).next_offset == 150
        filtered = store.get("TopicA", 0, 20, 100, frozenset({4711}))
        assert (filtered.status, filtered.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 200)
        store.close()
        machine_crashed(tmp_path)
    assert set(entries_on_disk(tmp_path, "TopicA", 0)) == {*range(50), *range(150, 200)}


# --- damage before the offset that was certainly written ---


def test_damage_in_the_middle_loses_only_damaged_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Queues are rebuilt from a log with damage: later records are not cut off."""
    store = opened(tmp_path)
    fill(store, 1000, size=300)
    end = store.commit_log.max_offset
    store.close()
    bad = list(records_on_disk(tmp_path))[100].message.physical_offset
    overwrite(log_file(tmp_path, bad // 65536), bad % 65536 + 100, b"\0" * 500)
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    assert f"the commit log is damaged at {bad}" in caplog.text
    found = [int(message.body[:6]) for message in read_all(store, "Topic0")]
    assert found == [number for number in range(1000) if number not in (100, 101)]
    assert store.max_offset("Topic0", 0) == 1000
    store.close()


@pytest.mark.parametrize("length", [65536 // 2, 65536])
def test_a_file_damaged_to_its_end(tmp_path: Path, length: int) -> None:
    store = opened(tmp_path)
    fill(store, 1000, size=300)
    end = store.commit_log.max_offset
    store.close()
    overwrite(log_file(tmp_path, 2), 65536 - length, random.Random(1).randbytes(length))
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    assert store.max_offset("Topic0", 0) == 1000
    found = [int(message.body[:6]) for message in read_all(store, "Topic0")]
    assert 1000 - 65536 // 400 <= len(found) < 1000
    assert found[-1] == 999
    store.close()


def test_after_a_crash_of_the_machine_the_log_ends_at_the_first_bad_record(tmp_path: Path) -> None:
    """Any bytes may follow: later files are removed, too."""
    store = opened(tmp_path)
    fill(store, 1000, size=300)
    store.close()
    machine_crashed(tmp_path)
    bad = list(records_on_disk(tmp_path))[300].message.physical_offset
    overwrite(log_file(tmp_path, bad // 65536), bad % 65536 + 100, b"\0" * 50)
    store = opened(tmp_path)
    assert store.commit_log.max_offset == bad
    assert store.max_offset("Topic0", 0) == 300
    assert len(list((tmp_path / "commitlog").iterdir())) == bad // 65536 + 1
    store.close()
    assert check_agreement(tmp_path) == 300


def test_the_log_never_ends_before_the_checkpoint(tmp_path: Path) -> None:
    clock = Clock(step_ms=20)
    store = opened(tmp_path, clock=clock)
    fill(store, 1000, size=300)
    store.flush()
    end = store.commit_log.max_offset
    store.close()
    machine_crashed(tmp_path)
    bad = list(records_on_disk(tmp_path))[300].message.physical_offset
    overwrite(log_file(tmp_path, bad // 65536), bad % 65536 + 100, b"\0" * 50)
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path, clock=clock)
    assert store.commit_log.max_offset == end
    assert [int(message.body[:6]) for message in read_all(store, "Topic0")] == [
        *range(300),
        *range(301, 1000),
    ]
    store.close()


# --- records of several pages ---


@pytest.mark.parametrize("page", [1, 2, 3])
def test_a_missing_page_of_properties(tmp_path: Path, page: int) -> None:
    """No checksum reveals it, but a page of zeros does."""
    store = opened(tmp_path)
    put(store, b"first")
    begin, _ = put(store, b"x" * 1000, properties=b"name\x01" + b"v" * 15_000 + b"\x02")
    put(store, b"behind")
    store.close()
    machine_crashed(tmp_path)
    end = next(s for s in records_on_disk(tmp_path) if s.message.body == b"behind").message.physical_offset
    overwrite(log_file(tmp_path), page * PAGE_BYTES, bytes(min(PAGE_BYTES, end - page * PAGE_BYTES)))
    assert begin + 1200 < PAGE_BYTES
    store = opened(tmp_path)
    assert bodies(store) == [b"first"]
    store.close()
    assert check_agreement(tmp_path) == 1


def test_zeros_in_properties_are_allowed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    expected = []
    for number in range(50):
        expected.append(b"%d" % number)
        put(store, expected[-1], properties=b"name\x01\0\0\0" + b"v" * (number * 20) + b"\0\x02")
    store.close()
    machine_crashed(tmp_path)
    store = opened(tmp_path)
    assert bodies(store) == expected
    store.close()
    store = opened(tmp_path)
    assert bodies(store) == expected
    store.close()


def test_a_batch_written_in_part(tmp_path: Path) -> None:
    """The beginning is written last: after a kill in the middle, no message of the batch exists."""
    store = opened(tmp_path / "a")
    fill(store, 10)
    offsets, _ = put_batch(store, [b"%d" % number * 20 for number in range(10)], "Topic0")
    end = store.commit_log.max_offset
    store.close()
    for cut in range(offsets[0], end, 7):
        root = copy_of(tmp_path / "a", tmp_path / "b")
        overwrite(log_file(root), cut, bytes(end - cut))
        overwrite(log_file(root), offsets[0], bytes(HEAD_BYTES))
        overwrite(root / "consumequeue/Topic0/0" / file_name(0), 200, bytes(200))
        store = opened(root)
        assert store.max_offset("Topic0", 0) == 10
        store.close()
        check_agreement(root)


def test_an_entry_that_leads_to_a_record_of_another_queue(tmp_path: Path) -> None:
    """A queue's entry leads to a record of another queue: the log's end is not taken from it."""
    store = opened(tmp_path)
    fill(store, 100, topics=2)
    end = store.commit_log.max_offset
    store.close()
    last = list(records_on_disk(tmp_path))[-1]
    assert last.message.topic == "Topic1"
    overwrite(tmp_path / "consumequeue/Topic0/0" / file_name(0), 50 * 20, QUEUE_ENTRY.pack(*last.entry))
    store = opened(tmp_path)
    assert (store.commit_log.max_offset, store.max_offset("Topic0", 0)) == (end, 50)
    store.close()
    assert check_agreement(tmp_path) == 100
