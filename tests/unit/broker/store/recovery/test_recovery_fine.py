"""Entries in memory alone when the process died, and how far back recovery reads for them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import file_name
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.checkpoint import Checkpoint
from rmq_broker.store.recovery.fine_checkpoint import FineCheckpoint
from rmq_broker.store.recovery.recovery import RecoveryReport
from rmq_broker.store.recovery.stop_marker import StopKind
from tests.support.stores import (
    Clock,
    bodies,
    check_agreement,
    fill,
    log_file,
    machine_crashed,
    opened,
    overwrite,
    put,
    put_batch,
    records_on_disk,
    stopped_cleanly,
)

Stop = Callable[[MessageStore], None]


def killed(store: MessageStore) -> None:
    """Unwritten entries are lost."""
    store.queues.close(write_out=False)
    store.close()


def crashed(store: MessageStore) -> None:
    killed(store)
    machine_crashed(store.settings.store_path_root_dir)


every_crash = pytest.mark.parametrize("stop", [killed, crashed])


def written(store: MessageStore, *, flushed: bool = False) -> int:
    """Write all entries to the files, as the flusher does; return the log's end."""
    store.queues.write_out()
    end = store.commit_log.max_offset
    before = fine_of(store)
    FineCheckpoint(end, end if flushed else before.flushed).save(fine_path(store), durable=False)
    return end


def fine_path(store: MessageStore) -> Path:
    return store.settings.store_path_root_dir / "rmq_checkpoint"


def fine_of(store: MessageStore) -> FineCheckpoint:
    return FineCheckpoint.load(fine_path(store)) or FineCheckpoint(0, 0)


def report_of(store: MessageStore) -> RecoveryReport:
    assert store.recovery is not None
    return store.recovery


def opened_complete(root: Path, messages: int) -> RecoveryReport:
    """Open again, check that all messages and queue entries exist, and return recovery's report."""
    store = opened(root)
    store.close()
    assert check_agreement(root) == messages
    return report_of(store)


# --- start points ---


@every_crash
def test_only_later_records_are_read(tmp_path: Path, stop: Stop) -> None:
    store = opened(tmp_path)
    fill(store, 1500, topics=3, queues=2, size=150)
    end = written(store, flushed=True)
    fill(store, 200, topics=3, queues=2, size=150)
    stop(store)
    report = opened_complete(tmp_path, 1700)
    assert (report.began_at, report.records_read) == (end, 200)


def test_the_written_offset_is_valid_after_a_kill_only(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 300, topics=3)
    flushed = written(store, flushed=True)
    fill(store, 300, topics=3)
    end = written(store)
    fill(store, 30, topics=3)
    killed(store)
    fine = fine_path(store).read_bytes()
    store = opened(tmp_path)
    assert (report_of(store).began_at, report_of(store).records_read) == (end, 30)
    killed(store)
    fine_path(store).write_bytes(fine)
    machine_crashed(tmp_path)
    report = opened_complete(tmp_path, 630)
    assert (report.began_at, report.records_read) == (flushed, 330)


@every_crash
def test_no_record_follows_the_offset(tmp_path: Path, stop: Stop) -> None:
    store = opened(tmp_path)
    fill(store, 100, topics=3)
    end = written(store, flushed=True)
    stop(store)
    report = opened_complete(tmp_path, 100)
    assert (report.began_at, report.records_read, report.log_end) == (end, 0, end)


@every_crash
def test_the_offset_is_the_end_of_a_file(tmp_path: Path, stop: Stop) -> None:
    store = opened(tmp_path)
    while store.commit_log.max_offset < 60_000:
        fill(store, 1, size=150)
    count = store.max_offset("Topic0", 0)
    written(store, flushed=True)
    fill(store, 200, size=150)  # the next record is in the next file
    stop(store)
    assert opened_complete(tmp_path, count + 200).records_read == 200


@every_crash
def test_a_torn_record_follows_the_offset(tmp_path: Path, stop: Stop) -> None:
    """No valid record begins there, but one ends there."""
    store = opened(tmp_path)
    fill(store, 100, topics=3)
    end = written(store, flushed=True)
    put(store, b"to be torn" * 10)
    stop(store)
    overwrite(log_file(tmp_path), end + 100, bytes(40))
    report = opened_complete(tmp_path, 100)
    assert (report.began_at, report.log_end) == (end, end)


@every_crash
def test_without_the_file_the_checkpoint_decides(tmp_path: Path, stop: Stop) -> None:
    clock = Clock(step_ms=10)
    store = opened(tmp_path, clock=clock)
    fill(store, 900, topics=3)
    store.flush()
    fill(store, 100, topics=3)
    stop(store)
    fine_path(store).unlink()
    assert 400 <= opened_complete(tmp_path, 1000).records_read <= 410  # 3 s of safety


def saved(*offsets: int) -> bytes:
    """The content of a valid file."""
    path = Path(tempfile.mkstemp()[1])
    FineCheckpoint(*offsets).save(path, durable=False)
    content = path.read_bytes()
    path.unlink()
    return content


def bad_contents(end: int) -> dict[str, bytes]:
    good = saved(end, end)
    return {
        "empty": b"",
        "garbled": good[:9] + b"?" + good[10:],
        "middle of a record": saved(end - 10, end - 10),
        "behind the log": saved(end + 147, end + 147),
        "far behind the log": saved(1 << 50, 1 << 50),
        "negative": saved(-5, -5),
    }


@every_crash
@pytest.mark.parametrize("damage", bad_contents(1000))
def test_an_offset_that_does_not_fit_the_log(tmp_path: Path, stop: Stop, damage: str) -> None:
    store = opened(tmp_path)
    fill(store, 300, topics=3, size=150)
    written(store, flushed=True)
    fill(store, 100, topics=3, size=150)
    end = store.commit_log.max_offset
    stop(store)
    fine_path(store).write_bytes(bad_contents(end)[damage])
    report = opened_complete(tmp_path, 400)
    assert (report.began_at, report.log_end) == (0, end)


def test_a_log_whose_beginning_was_deleted(tmp_path: Path) -> None:
    """The offset is before the first remaining file."""
    store = opened(tmp_path)
    fill(store, 100, size=150)
    written(store, flushed=True)
    fill(store, 900, size=150)
    killed(store)
    log_file(tmp_path).unlink()
    left = len(list(records_on_disk(tmp_path)))
    store = opened(tmp_path)
    assert report_of(store).records_read == left
    assert (store.min_offset("Topic0", 0), store.max_offset("Topic0", 0)) == (1000 - left, 1000)
    store.close()


@every_crash
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/Topic1", "consumequeue/Topic1/0"])
def test_queues_removed_since_the_last_run(tmp_path: Path, stop: Stop, lost: str) -> None:
    """They contradict the offset: newer messages reveal older ones."""
    store = opened(tmp_path)
    fill(store, 300, topics=3)
    written(store, flushed=True)
    fill(store, 30, topics=3)
    stop(store)
    shutil.rmtree(tmp_path / lost)
    assert opened_complete(tmp_path, 330).began_at == 0


@every_crash
def test_a_queues_first_file_is_lost(tmp_path: Path, stop: Stop) -> None:
    """Reading begins in the middle of that file: earlier messages do not count as deleted."""
    store = opened(tmp_path)
    fill(store, 150, size=150)
    written(store, flushed=True)
    fill(store, 450, size=150)
    store.queues.write_out()
    stop(store)
    (tmp_path / "consumequeue/Topic0/0" / file_name(0)).unlink()
    assert opened_complete(tmp_path, 600).began_at == 0


def test_a_clean_stop_removes_the_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, 300, topics=3)
    asyncio.run(store.stop())
    FineCheckpoint(100, 100).save(fine_path(store), durable=False)
    assert opened_complete(tmp_path, 300).records_read == 0


# --- the file rmq_checkpoint ---


@every_crash
def test_the_file_is_correct_while_the_store_is_open(tmp_path: Path, stop: Stop) -> None:
    store = opened(tmp_path)
    fill(store, 300, topics=3)
    flushed = written(store, flushed=True)
    fill(store, 100, topics=3)
    stop(store)
    store = opened(tmp_path)
    expected = FineCheckpoint(store.commit_log.max_offset, flushed)
    assert fine_of(store) == report_of(store).fine == expected
    killed(store)
    assert opened_complete(tmp_path, 400).records_read == 0


def test_a_log_that_became_shorter(tmp_path: Path) -> None:
    """After a power cut, the old offset does not cover records written at the same place now."""
    store = opened(tmp_path)
    fill(store, 300, topics=3)
    flushed = written(store, flushed=True)
    fill(store, 60, topics=3)
    end = written(store)
    crashed(store)
    for path in (tmp_path / "consumequeue").rglob("0*"):
        if path.is_file():
            overwrite(path, 100 * 20, bytes(20 * 20))
    overwrite(log_file(tmp_path), flushed, bytes(end - flushed))
    store = opened(tmp_path)
    assert store.commit_log.max_offset == flushed
    fill(store, 60, topics=3)
    assert store.commit_log.max_offset == end
    killed(store)
    report = opened_complete(tmp_path, 360)
    assert (report.began_at, report.records_read) == (flushed, 60)


@pytest.mark.parametrize("first", [StopKind.CLEAN, StopKind.PROCESS_KILLED])
def test_an_interrupted_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: StopKind) -> None:
    """The process dies while queues are rebuilt in memory: the offset must not count those entries."""
    store = opened(tmp_path)
    fill(store, 900, topics=3)
    written(store, flushed=True)
    store.queue_state.save_ends(store.queues, Checkpoint(), 0)
    killed(store)
    if first is StopKind.CLEAN:
        stopped_cleanly(tmp_path)
    (tmp_path / "consumequeue/Topic1/0" / file_name(0)).unlink()  # all of the log has to be read

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            opened(tmp_path)
    assert check_agreement_but(tmp_path, "Topic1")
    with monkeypatch.context() as patch:
        patch.setattr("rmq_broker.store.queues.consume_queues.ConsumeQueues.write_out", full)
        with pytest.raises(OSError, match="No space left"):
            opened(tmp_path)
    assert fine_of(store).written == fine_of(store).flushed == 0
    opened_complete(tmp_path, 900)


def check_agreement_but(root: Path, topic: str) -> bool:
    """Check that the other topics' queues hold all messages of the log."""
    ends = {stored.key: stored.message.queue_offset + 1 for stored in records_on_disk(root)}
    return all(
        (root / "consumequeue" / name / str(queue_id) / file_name(0)).read_bytes()[end * 20 - 20 : end * 20]
        != bytes(20)
        for (name, queue_id), end in ends.items()
        if name != topic
    )


# --- zeros in properties ---


@pytest.mark.parametrize("value", [b"\0", b"a\0b", b"\0" * 15])
def test_a_last_message_with_zeros_in_its_properties(tmp_path: Path, value: bytes) -> None:
    """The message was acknowledged, and no entry in a file proves it."""
    store = opened(tmp_path)
    put(store, b"first")
    put(store, b"last", properties=b"name\x01" + value + b"\x02")
    killed(store)
    store = opened(tmp_path)
    assert bodies(store) == [b"first", b"last"]
    store.close()


# --- kills at any moment ---


@pytest.mark.parametrize("seed", range(20))
def test_kills_and_crashes_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Messages, batches, writes that fail in the middle, kills and crashes, repeatedly."""
    chance = random.Random(seed)
    messages = 0
    for _ in range(6):
        store = opened(tmp_path)
        assert sum(queue.max_offset for queue in store.queues) == messages
        for _ in range(chance.randrange(12)):
            topic, queue_id = f"Topic{chance.randrange(4)}", chance.randrange(2)
            count = chance.randrange(1, 80)
            if chance.random() < 0.3:
                put_batch(store, [b"x" * chance.randrange(60)] * count, topic, queue_id)
            else:
                for _ in range(count):
                    put(store, b"y" * chance.randrange(200), topic, queue_id)
            messages += count
            what = chance.random()
            if what < 0.3:
                written(store, flushed=what < 0.15)
            elif what < 0.5:  # a part of the queues only
                for queue in list(store.queues)[: chance.randrange(5)]:
                    queue.write_out()
        chance.choice((killed, crashed, MessageStore.close))(store)
    opened_complete(tmp_path, messages)
