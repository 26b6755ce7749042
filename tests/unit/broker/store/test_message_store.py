"""The message store: life cycle, refusals, look-ups."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged, StoreUnavailable
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import ConsumeQueue
from rmq_broker.store.reading.results import GetStatus
from tests.support.clock import START_MS
from tests.support.stores import (
    Clock,
    bodies,
    check_agreement,
    fill,
    new_store,
    open_files_of_process,
    opened,
    put,
    put_batch,
    template,
)

LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
print("locked", flush=True)
sys.stdin.read()
"""


def test_offsets_of_puts(tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = put(store, b"one")
    second = put(store, b"three")
    assert (first, second[1]) == ((0, 0), 1)
    assert second[0] == template("TopicA").fixed_bytes + 3
    assert put(store, b"x", queue_id=1)[1] == 0
    offsets, first_of_batch = put_batch(store, [b"a", b"b", b"c"])
    assert (len(offsets), first_of_batch) == (3, 2)
    assert bodies(store) == [b"one", b"three", b"a", b"b", b"c"]
    assert (store.min_phy_offset(), store.max_phy_offset()) == (0, store.commit_log.max_offset)
    store.close()


def test_an_empty_batch_stores_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    end = store.commit_log.max_offset
    assert put_batch(store, []) == ([], 1)
    assert store.commit_log.max_offset == end
    store.close()
    assert check_agreement(tmp_path) == 1


def test_arrival_listeners_are_called(tmp_path: Path) -> None:
    store = opened(tmp_path)
    arrived: list[tuple[str, int, int]] = []

    def note(queue: ConsumeQueue) -> None:
        arrived.append((queue.topic, queue.queue_id, queue.max_offset))

    store.appender.add_arrival_listener(note)
    put(store)
    put_batch(store, [b"a", b"b"], "TopicB", 3)
    assert arrived == [("TopicA", 0, 1), ("TopicB", 3, 2)]
    store.close()


def test_times(tmp_path: Path) -> None:
    clock = Clock(step_ms=10)
    store = opened(tmp_path, clock=clock)
    begin = clock.now_ms + 10
    fill(store, 10)
    assert store.earliest_store_time("Topic0", 0) == begin
    assert [store.store_time_at("Topic0", 0, number) for number in (0, 3, 9)] == [
        begin,
        begin + 30,
        begin + 90,
    ]
    assert store.store_time_at("Topic0", 0, 10) == store.store_time_at("Topic0", 0, -1) == -1
    assert store.store_time_at("Unknown", 0, 0) == store.earliest_store_time("Unknown", 0) == -1
    for time_ms, lower, upper in [
        (begin - 1, 0, 0),
        (begin, 0, 0),
        (begin + 1, 1, 0),
        (begin + 35, 4, 3),
        (begin + 40, 4, 4),
        (begin + 90, 9, 9),
        (begin + 91, 10, 9),
    ]:
        assert store.offset_by_time("Topic0", 0, time_ms) == lower
        assert store.offset_by_time("Topic0", 0, time_ms, upper=True) == upper
    assert store.offset_by_time("Unknown", 0, begin) == 0
    assert store.is_first_in_memory("Topic0", 0)
    assert not store.is_first_in_memory("Unknown", 0)
    store.close()


def test_messages_of_the_same_millisecond(tmp_path: Path) -> None:
    clock = Clock(step_ms=0)
    store = opened(tmp_path, clock=clock)
    fill(store, 5)
    clock.now_ms += 1
    fill(store, 5)
    assert store.offset_by_time("Topic0", 0, START_MS) == 0
    assert store.offset_by_time("Topic0", 0, START_MS, upper=True) == 4
    assert store.offset_by_time("Topic0", 0, START_MS + 1) == 5
    store.close()


def test_queues_without_messages(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, queue_id=3)
    put(store, queue_id=1)
    store.queues.get_or_create("TopicA", 2)  # created by a consumer's request
    assert sorted(store.queues.of_topic("TopicA")) == [1, 2, 3]
    assert (store.min_offset("TopicA", 2), store.max_offset("TopicA", 2)) == (0, 0)
    assert (store.min_offset("Unknown", 0), store.max_offset("Unknown", 0)) == (0, 0)
    store.close()


def test_deleted_topics(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 700, topics=2, queues=2)
    store.queues.write_out()
    assert store.get("Topic1", 0, 0, 32, None).count == 32
    store.delete_topics(["Topic1", "Unknown"]).result()
    assert store.get("Topic1", 0, 0, 32, None).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.queues.of_topic("Topic1") == {}
    assert not (tmp_path / "consumequeue/Topic1").exists()
    assert len(bodies(store, "Topic0", 1)) == 175
    store.close()


def test_runtime_info(tmp_path: Path) -> None:
    clock = Clock()
    store = opened(tmp_path, clock=clock)
    assert store.runtime_info()["earliestMessageTimeStamp"] == "-1"
    first_ms = clock.now_ms + 1
    fill(store, 100)
    info = store.runtime_info()
    end = str(store.commit_log.max_offset)
    assert (info["commitLogMinOffset"], info["commitLogMaxOffset"], info["flushBehindBytes"]) == (
        "0",
        end,
        end,
    )
    assert info["earliestMessageTimeStamp"] == str(first_ms)
    assert 0 <= float(info["commitLogDiskRatio"]) <= 1
    assert info[f"commitLogDiskRatio_{tmp_path / 'commitlog'}"] == info["commitLogDiskRatio"]
    store.close()


# --- life ---


def test_a_second_store_in_this_process_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"is in use by another broker; give each .* storePathRootDir"):
            opened(tmp_path)
    put(store)
    # The refused store did not release the first store's lock, for other processes either.
    refused = subprocess.run(
        [sys.executable, "-c", LOCKER, str(tmp_path / "lock")], input=b"", capture_output=True, check=False
    )
    assert b"BlockingIOError" in refused.stderr
    store.close()
    opened(tmp_path).close()
    assert check_agreement(tmp_path) == 2


def test_a_store_of_another_process_is_refused(tmp_path: Path) -> None:
    """The lock is that of Apache's broker: the first byte of the file `lock`."""
    opened(tmp_path).close()
    with subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StoreDamaged, match="is in use by another broker"):
            opened(tmp_path)
        other.stdin.close()
    opened(tmp_path).close()


def test_a_store_that_cannot_be_opened_releases_everything(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 700, topics=3)
    store.close()
    (tmp_path / "commitlog/00000000000000000001").write_bytes(b"x" * 65536)
    files = open_files_of_process()
    store = new_store(tmp_path)
    with pytest.raises(StoreDamaged):
        store.open()
    assert open_files_of_process() == files
    assert store.unavailable_reason == "the store is closed"
    (tmp_path / "commitlog/00000000000000000001").unlink()
    opened(tmp_path).close()


def test_a_closed_store_refuses_messages(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        put(store)
    store.open()
    queue = store.queues.get_or_create("TopicA", 0)
    put(store)
    store.close()
    before = sorted(tmp_path.rglob("*"))
    for attempt in (put, lambda store: put_batch(store, [b"a", b"b"])):
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            attempt(store)
    assert (queue.max_offset, sorted(tmp_path.rglob("*"))) == (1, before)
    store.close()


def test_close_releases_everything(tmp_path: Path) -> None:
    files = open_files_of_process()
    store = opened(tmp_path)
    fill(store, 1000, topics=5, size=200)
    assert open_files_of_process() > files
    store.close()
    assert open_files_of_process() == files


async def test_a_clean_stop(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.start()
    fill(store, 100)
    await store.stop()
    with pytest.raises(StoreUnavailable):
        put(store)
    assert not (tmp_path / "abort").exists()
    await store.stop()
    assert check_agreement(tmp_path) == 100


async def test_stopping_a_store_that_was_never_opened(tmp_path: Path) -> None:
    await new_store(tmp_path / "a").stop()
    assert not (tmp_path / "a").exists()


async def test_stopping_a_store_that_was_never_started(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    await store.stop()
    assert not (tmp_path / "abort").exists()


async def test_close_ends_flushing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.start()
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("store-")]
    assert tasks
    store.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)


def test_folders_of_the_settings(tmp_path: Path) -> None:
    store: MessageStore = new_store(tmp_path / "root", storePathCommitLog=str(tmp_path / "elsewhere/log"))
    store.open()
    put(store)
    store.close()
    assert [path.name for path in (tmp_path / "elsewhere/log").iterdir()] == ["0" * 20]
    assert not (tmp_path / "root/commitlog").exists()


def test_records_without_crc_check(tmp_path: Path) -> None:
    store = opened(tmp_path)
    place, _ = put(store, b"the body")
    store.close()
    (tmp_path / "rmq_boot_id").unlink()
    path = tmp_path / "commitlog" / ("0" * 20)
    path.write_bytes(path.read_bytes().replace(b"the body", b"The body"))
    assert place == 0
    store = new_store(tmp_path, checkCRCOnRecover="false")
    store.open()
    assert store.max_offset("TopicA", 0) == 1
    store.close()
