"""Opening after a clean stop, a crash of the process, and a crash of the machine."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_broker.store.recovery.checkpoint import Checkpoint
from rmq_broker.store.recovery.recovery import RecoveryReport
from rmq_broker.store.recovery.stop_marker import StopKind
from tests.support.stores import (
    Clock,
    bodies,
    check_agreement,
    content_of,
    entries_on_disk,
    fill,
    log_file,
    machine_crashed,
    opened,
    overwrite,
    put,
    put_batch,
    queues_written,
    read_all,
    records_on_disk,
    stopped_cleanly,
)

Stop = Callable[[MessageStore], None]


def stop_cleanly(store: MessageStore) -> None:
    asyncio.run(store.stop())


def kill(store: MessageStore) -> None:
    """A killed process leaves the files as `close` does."""
    store.close()


def crash(store: MessageStore) -> None:
    """All pages were written, but the next start cannot know."""
    store.close()
    machine_crashed(store.settings.store_path_root_dir)


STOPS = [
    pytest.param(stop_cleanly, StopKind.CLEAN, id="clean"),
    pytest.param(kill, StopKind.PROCESS_KILLED, id="killed"),
    pytest.param(crash, StopKind.MACHINE_CRASHED, id="crashed"),
]
every_stop = pytest.mark.parametrize(("stop", "kind"), STOPS)


def report_of(store: MessageStore) -> RecoveryReport:
    assert store.recovery is not None
    return store.recovery


@every_stop
def test_an_empty_store(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    for _ in range(3):
        store = opened(tmp_path)
        assert (store.commit_log.min_offset, store.commit_log.max_offset) == (0, 0)
        assert list(store.queues) == []
        stop(store)
    store = opened(tmp_path)
    assert report_of(store).stop is kind
    assert put(store) == (0, 0)
    store.close()


@every_stop
def test_no_message_is_lost_and_appends_continue(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    messages = 0
    for _ in range(4):
        store = opened(tmp_path)
        assert [store.max_offset(f"Topic{n}", q) for n in range(3) for q in range(2)] == [messages // 6] * 6
        fill(store, 600, topics=3, queues=2, size=150)
        messages += 600
        stop(store)
        assert check_agreement(tmp_path) == messages


@every_stop
def test_recovery_is_idempotent(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    store = opened(tmp_path)
    fill(store, 1500, topics=2, queues=2, size=150)
    stop(store)
    opened(tmp_path).close()
    first = content_of(tmp_path)
    opened(tmp_path).close()
    assert content_of(tmp_path) == first


@every_stop
def test_all_queues_removed(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    """The usual way to have the queues rebuilt."""
    store = opened(tmp_path)
    fill(store, 1500, topics=3, queues=2, size=150)
    stop(store)
    before = content_of(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert (report_of(store).began_at, report_of(store).records_read) == (0, 1500)
    store.close()
    assert content_of(tmp_path / "consumequeue") == before


@every_stop
@pytest.mark.parametrize("lost", ["Topic1", "Topic1/0", "Topic1/0/00000000000000006000"])
def test_queue_files_removed(tmp_path: Path, stop: Stop, kind: StopKind, lost: str) -> None:
    """A queue that ends earlier than at the last clean stop is rebuilt, no offset is assigned twice."""
    store = opened(tmp_path)
    fill(store, 1300, topics=2, size=150)
    stop_cleanly(store)
    store = opened(tmp_path)
    fill(store, 100, topics=1, size=150)
    stop(store)
    path = tmp_path / "consumequeue" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    store = opened(tmp_path)
    assert put(store, topic="Topic1")[1] == 650
    store.close()
    assert check_agreement(tmp_path) == 1401


@every_stop
def test_a_queue_file_missing_between_others(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    store = opened(tmp_path)
    fill(store, 1000, size=150)
    stop(store)
    (tmp_path / "consumequeue/Topic0/0" / file_name(6000)).unlink()
    store = opened(tmp_path)
    assert len(read_all(store, "Topic0")) == 1000
    store.close()
    assert check_agreement(tmp_path) == 1000


@every_stop
def test_newer_messages_reveal_lost_entries(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    """The file of queue ends is missing (a store of Apache's), but newer messages reveal older ones."""
    store = opened(tmp_path)
    fill(store, 900, topics=2, size=150)
    stop(store)
    (tmp_path / "rmq_queues.json").unlink(missing_ok=True)
    # Topic1 loses its last file and half of the first, Topic0 only its newest entries.
    folder = tmp_path / "consumequeue"
    (folder / "Topic1/0" / file_name(6000)).unlink()
    overwrite(folder / "Topic1/0" / file_name(0), 150 * 20, bytes(150 * 20))
    overwrite(folder / "Topic0/0" / file_name(6000), 140 * 20, bytes(160 * 20))
    opened(tmp_path).close()
    assert check_agreement(tmp_path) == 900


@every_stop
def test_queues_ahead_of_the_log(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    """Entries of messages that never got to disk are dropped, and their offsets reused."""
    store = opened(tmp_path)
    fill(store, 200, topics=2, size=150)
    end = store.commit_log.max_offset
    for topic in ("Topic0", "Topic1", "Topic2"):
        queue = store.queues.get_or_create(topic, 0)
        for number in range(250):
            queue.put(end + number * 300, 300, 7)
    stop(store)
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    assert [store.max_offset(f"Topic{n}", 0) for n in range(3)] == [100, 100, 0]
    fill(store, 400, topics=2, size=100)
    store.close()
    assert check_agreement(tmp_path) == 600


@every_stop
def test_a_queue_with_wrong_log_offsets(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    """Entries that lead to no record are ignored: the log's end is found without them."""
    store = opened(tmp_path)
    fill(store, 200, size=150)
    end = store.commit_log.max_offset
    for number, (position, size) in enumerate(
        [(end - 13, 50), (end + 5, 90), (end - 5000, 77), (1 << 61, 1)]
    ):
        store.queues.get_or_create(f"Bad{number}", 0).put(position, size, 0)
    store.queues.get_or_create("Bad9", 0).put(-500, 100, 0)
    stop(store)
    store = opened(tmp_path)
    assert store.commit_log.max_offset == end
    assert put(store, topic="Topic0") == (end, 200)
    assert len(read_all(store, "Topic0")) == 201
    store.close()


def test_a_queue_with_a_part_of_a_batch(tmp_path: Path) -> None:
    """Killed in the middle of the copy, whose parts are written in any order."""
    for holes in ([0], [3], [0, 1, 2], [9], [8, 9], [0, 9], [4, 5, 6], list(range(10))):
        root = tmp_path / "-".join(map(str, holes))
        store = opened(root)
        fill(store, 400, topics=2, size=100)
        put_batch(store, [b"%d" % number for number in range(10)], "Topic1")
        store.close()
        for hole in holes:
            overwrite(root / "consumequeue/Topic1/0" / file_name(0), (200 + hole) * 20, bytes(20))
        store = opened(root)
        assert report_of(store).stop is StopKind.PROCESS_KILLED
        assert put(store, topic="Topic1")[1] == 210
        store.close()
        assert check_agreement(root) == 411


def test_an_entry_written_in_part(tmp_path: Path) -> None:
    for missing in range(1, 20):
        root = tmp_path / str(missing)
        store = opened(root)
        fill(store, 10, topics=2)
        put(store, topic="Topic1", tags="TagA")
        store.close()
        overwrite(root / "consumequeue/Topic1/0" / file_name(0), 5 * 20 + 20 - missing, bytes(missing))
        opened(root).close()
        assert check_agreement(root) == 11


def test_only_records_newer_than_the_checkpoint_are_read(tmp_path: Path) -> None:
    clock = Clock(step_ms=10)  # 1,000 messages take 10 s
    store = opened(tmp_path, log_file_bytes=1 << 20, clock=clock)
    fill(store, 2000, topics=3, queues=2)
    store.flush()
    fill(store, 500, topics=3, queues=2)
    crash(store)
    (tmp_path / "rmq_checkpoint").unlink()
    store = opened(tmp_path, log_file_bytes=1 << 20, clock=clock)
    assert 800 <= report_of(store).records_read <= 810  # 500, and the records of 3 s of safety
    crash(store)
    assert check_agreement(tmp_path) == 2500


def test_idle_queues_lead_to_the_start_point(tmp_path: Path) -> None:
    """Queues that were all written to just now do not help, idle queues do."""
    clock = Clock(step_ms=10)
    store = opened(tmp_path, log_file_bytes=1 << 20, clock=clock)
    fill(store, 1000, topics=50)
    for number in range(300):
        put(store, topic=f"New{number}")
    store.flush()
    crash(store)
    (tmp_path / "rmq_checkpoint").unlink()
    store = opened(tmp_path, log_file_bytes=1 << 20, clock=clock)
    assert report_of(store).records_read == 301
    store.close()
    assert check_agreement(tmp_path) == 1300


def test_without_a_checkpoint_the_whole_log_is_read(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 1000, topics=3)
    crash(store)
    (tmp_path / "checkpoint").unlink(missing_ok=True)
    store = opened(tmp_path)
    assert report_of(store).records_read == 1000
    store.close()


def test_records_in_the_page_cache_are_flushed_after_a_crash(tmp_path: Path) -> None:
    """Before the checkpoint declares them flushed."""
    store = opened(tmp_path)
    fill(store, 1500, size=150)
    store.close()
    store = opened(tmp_path)
    assert [file.flushed for file in store.commit_log.files] == [0] * len(store.commit_log.files)
    assert store.commit_log.flushed_offset == 0
    store.flush()
    assert store.commit_log.flushed_offset == store.commit_log.max_offset
    store.close()


def test_the_abort_file_exists_before_the_first_message(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert (tmp_path / "abort").read_text().isdigit()
    stop_cleanly(store)
    assert not (tmp_path / "abort").exists()


def test_a_commit_log_alone(tmp_path: Path) -> None:
    """A commit log without any other file, as a backup may hold it."""
    store = opened(tmp_path / "a")
    fill(store, 700, topics=3, size=150)
    store.close()
    shutil.copytree(tmp_path / "a/commitlog", tmp_path / "b/commitlog")
    store = opened(tmp_path / "b")
    assert report_of(store).stop is StopKind.CLEAN
    fill(store, 2, topics=3, size=150)
    store.close()
    assert check_agreement(tmp_path / "b") == 702


def test_queues_without_a_log_begin_at_0(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path)
    fill(store, 700, topics=2, size=150)
    stop_cleanly(store)
    shutil.rmtree(tmp_path / "commitlog")
    store = opened(tmp_path)
    assert "there is no commit log: Topic0/0 begins at 0 again" in caplog.text
    assert put(store, topic="Topic0") == (0, 0)
    store.close()
    assert check_agreement(tmp_path) == 1


# --- deleted topics, and logs without a beginning ---


def test_a_deleted_topic_created_again(tmp_path: Path) -> None:
    """The log holds both topics; the rebuilt queue is that of the second."""
    store = opened(tmp_path)
    for number in range(50):
        put(store, b"old %d" % number)
    store.delete_topics(["TopicA"]).result()
    assert (store.max_offset("TopicA", 0), queues_written(store, "TopicA")) == (0, [])
    assert not (tmp_path / "consumequeue/TopicA").exists()
    for number in range(20):
        put(store, b"new %d" % number)
    expected = bodies(store)
    assert expected == [b"new %d" % number for number in range(20)]
    crash(store)
    store = opened(tmp_path)
    assert bodies(store) == expected
    stop_cleanly(store)
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert bodies(store) == expected
    assert put(store)[1] == 20
    store.close()


def test_a_deleted_topic_does_not_count_as_lost_queues(tmp_path: Path) -> None:
    """The next start does not read the whole log to restore the topic."""
    store = opened(tmp_path)
    fill(store, 700, topics=2)
    stop_cleanly(store)
    for stop in (stop_cleanly, kill, crash, stop_cleanly):
        store = opened(tmp_path)
        assert report_of(store).records_read < 10 or report_of(store).stop is not StopKind.CLEAN
        assert store.max_offset("Topic0", 0) == 350
        store.delete_topics(["Topic1", "Unknown"]).result()
        assert queues_written(store, "Topic1") == []
        stop(store)
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(tmp_path)
    assert (queues_written(store, "Topic1"), store.max_offset("Topic0", 0)) == ([], 350)
    store.close()


def test_an_interrupted_deletion_is_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path)
    fill(store, 700, topics=2, queues=2)
    store.queues.write_out()
    files = content_of(tmp_path / "consumequeue/Topic1/0")
    store.delete_topics(["Topic1"]).result()
    put(store, b"new", topic="Topic1", queue_id=1)
    store.close()
    for name, content in files.items():
        (tmp_path / "consumequeue/Topic1/0").mkdir()
        (tmp_path / "consumequeue/Topic1/0" / name).write_bytes(content)
    store = opened(tmp_path)
    assert "Topic1/0 was being deleted" in caplog.text
    assert queues_written(store, "Topic1") == [1]
    assert bodies(store, "Topic1", 1) == [b"new"]
    store.close()


@every_stop
def test_a_log_that_lost_its_beginning_without_queues(tmp_path: Path, stop: Stop, kind: StopKind) -> None:
    store = opened(tmp_path)
    fill(store, 1500, topics=2, size=150)
    stop(store)
    log_file(tmp_path).unlink()
    log_file(tmp_path).unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    remaining = list(records_on_disk(tmp_path))
    store = opened(tmp_path)
    for topic in ("Topic0", "Topic1"):
        messages = [stored for stored in remaining if stored.message.topic == topic]
        first = messages[0].message.queue_offset
        assert (store.min_offset(topic, 0), store.max_offset(topic, 0)) == (first, 750)
        assert read_all(store, topic) == [stored.message for stored in messages]
        assert put(store, topic=topic)[1] == 750
    kill(store)
    store = opened(tmp_path)
    assert store.max_offset("Topic0", 0) == 751
    store.close()
    assert len(entries_on_disk(tmp_path, "Topic0", 0)) == 751 - remaining[0].message.queue_offset


def test_a_queue_whose_messages_were_all_deleted_keeps_its_offset(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 350, topics=1, size=150)
    for number in range(700):
        put(store, b"%d" % number + b"x" * 150, "Busy")
    stop_cleanly(store)
    first, second = log_file(tmp_path, 0), log_file(tmp_path, 1)
    assert not any(stored.message.topic == "Topic0" for stored in list(records_on_disk(tmp_path))[700:])
    first.unlink()
    second.unlink()
    for mark in (kill, crash, stop_cleanly):
        store = opened(tmp_path)
        assert (store.min_offset("Topic0", 0), store.max_offset("Topic0", 0)) == (350, 350)
        mark(store)
    store = opened(tmp_path)
    assert put(store, topic="Topic0")[1] == 350
    store.close()


def test_the_checkpoint_follows_a_clock_that_is_set_back(tmp_path: Path) -> None:
    clock = Clock()
    store = opened(tmp_path, clock=clock)
    put(store)
    store.flush()
    clock.now_ms -= 3_600_000
    put(store)
    store.flush()
    store.close()
    checkpoint = Checkpoint.load(tmp_path / "checkpoint")
    assert checkpoint.log_timestamp_ms == checkpoint.queue_timestamp_ms == clock.now_ms


def test_entries_behind_the_end_of_a_queue_are_cleared(tmp_path: Path) -> None:
    """Old entries behind the end of a queue are cleared, or a later start would find them."""
    store = opened(tmp_path)
    fill(store, 20)
    store.close()
    path = tmp_path / "consumequeue/Topic0/0" / file_name(0)
    old = QUEUE_ENTRY.pack(0, 147, 0) * 30
    overwrite(path, 21 * 20, old)
    for _ in range(2):
        store = opened(tmp_path)
        assert store.max_offset("Topic0", 0) == 20
        store.close()
    assert not any(path.read_bytes()[400:])
    stopped_cleanly(tmp_path)
    store = opened(tmp_path)
    assert put(store, topic="Topic0")[1] == 20
    store.close()
