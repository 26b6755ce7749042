"""All queues of a store: their kinds, and writing, flushing and open files of all of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rmq_broker.store.queues import queue_resources
from rmq_broker.store.queues.batch_consume_queue import BATCH_ENTRY_BYTES, BatchConsumeQueue
from rmq_broker.store.queues.consume_queues import ConsumeQueues
from tests.support.stores import content_of, open_files_of_process


def new_queues(root: Path, **options: Any) -> ConsumeQueues:
    """Topics that begin with B store batches."""
    return ConsumeQueues(
        root / "consumequeue",
        6000,
        is_batch=lambda topic: topic.startswith("B"),
        batch_file_bytes=100 * BATCH_ENTRY_BYTES,
        **options,
    )


def loaded(root: Path, **options: Any) -> ConsumeQueues:
    queues = new_queues(root, **options)
    queues.load()
    return queues


def fill(queues: ConsumeQueues, topics: int = 3, queue_ids: int = 2, messages: int = 5) -> None:
    for topic in range(topics):
        for queue_id in range(queue_ids):
            queue = queues.get_or_create(f"Topic{topic}", queue_id)
            for number in range(messages):
                queue.put(number * 100, 100, 0)


def ends(queues: ConsumeQueues) -> dict[tuple[str, int], int]:
    return {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}


def test_loaded_queues_are_as_before(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    queues.get_or_create("Never written", 0)
    before = ends(queues)
    queues.close()
    folders = tmp_path / "consumequeue"
    assert sorted(path.name for path in folders.iterdir()) == ["Topic0", "Topic1", "Topic2"]
    (folders / "a file").touch()
    (folders / "Topic0" / "no queue").mkdir()
    (folders / "Topic0" / "²").mkdir()
    del before["Never written", 0]
    assert ends(loaded(tmp_path)) == before


def test_topics_of_batches_have_their_own_folder(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    queue = queues.get_or_create("Batches", 3)
    assert isinstance(queue, BatchConsumeQueue)
    queue.put(0, 100, 0, 7, 5)
    queues.get_or_create("Single", 0).put(100, 100, 0)
    queues.close()
    assert [path.name for path in (tmp_path / "batchconsumequeue").iterdir()] == ["Batches"]
    queues = loaded(tmp_path)
    assert ends(queues) == {("Batches", 3): 5, ("Single", 0): 1}
    assert [queue.is_batch for queue in queues] == [False, True]
    queues.remove_files(queues.forget_topics(["Batches"], 0))
    assert list((tmp_path / "batchconsumequeue").iterdir()) == []


def test_a_queue_of_another_kind_than_its_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The topic's attribute was changed in its file: existing queues are read by their own kind."""
    queues = new_queues(tmp_path)
    queues.get_or_create("Batches", 0).put(0, 100, 0)
    queues.get_or_create("Single", 0).put(0, 100, 0)
    queues.close()
    queues = ConsumeQueues(
        tmp_path / "consumequeue", 6000, is_batch=lambda topic: True, batch_file_bytes=100 * BATCH_ENTRY_BYTES
    )
    queues.load()
    assert {queue.topic: queue.is_batch for queue in queues} == {"Batches": True, "Single": False}
    assert not caplog.text
    queues = ConsumeQueues(tmp_path / "consumequeue", 6000, batch_file_bytes=100 * BATCH_ENTRY_BYTES)
    queues.load()
    assert {queue.topic: queue.is_batch for queue in queues} == {"Batches": True, "Single": False}
    assert "batch queue of a topic without queue.type=BatchCQ topic=Batches queue=0" in caplog.text


# --- writing out ---


def test_only_queues_with_unwritten_entries_are_visited(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    assert queues.unwritten_bytes == 3 * 2 * 5 * 20
    queues.write_out()
    assert queues.unwritten_bytes == 0
    queues.get_or_create("Topic1", 1).put(500, 100, 0)
    assert queues.unwritten_bytes == 20
    with mock.patch.object(os, "pwrite", wraps=os.pwrite) as pwrite:
        queues.write_out()
        queues.write_out()
    assert pwrite.call_count == 1
    queues.close()


def test_a_queue_that_cannot_be_written_does_not_block_others(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "consumequeue" / "Topic1").touch()  # no folder can be created in its place
    fill(queues)
    for _ in range(3):
        with pytest.raises(OSError, match="Topic1"):
            queues.write_out()
        assert queues.unwritten_bytes == 2 * 5 * 20
    (tmp_path / "consumequeue" / "Topic1").unlink()
    queues.write_out()
    assert queues.unwritten_bytes == 0
    before = ends(queues)
    queues.close()
    assert ends(loaded(tmp_path)) == before


def test_close_writes_as_many_entries_as_possible(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    with mock.patch.object(os, "pwrite", side_effect=OSError(errno.ENOSPC, "No space left on device")):
        queues.close()
    assert "queue entries not written cause=" in caplog.text
    queues = new_queues(tmp_path)
    fill(queues)
    queues.close(write_out=False)
    assert all(end == 0 for end in ends(loaded(tmp_path)).values())


def test_a_topic_deleted_before_it_is_written(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    queues.write_out()
    fill(queues)
    queues.remove_files(queues.forget_topics(["Topic1"], 0))
    queues.write_out()
    queues.flush()
    assert not (tmp_path / "consumequeue/Topic1").exists()
    assert queues.topics() == ["Topic0", "Topic2"]
    fill(queues)
    queues.close()
    assert ends(loaded(tmp_path))["Topic1", 0] == 5


# --- flushing ---


def test_many_files_are_flushed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []

    def flush_all(folder: Path) -> bool:
        flushed.append(folder)
        return True

    monkeypatch.setattr(queue_resources, "flush_file_system", flush_all)
    queues = new_queues(tmp_path)
    fill(queues, topics=5)
    queues.write_out()
    with mock.patch.object(os, "fdatasync") as fdatasync:
        queues.flush()
        assert (len(flushed), fdatasync.call_count) == (0, 10)
        fill(queues, topics=60)
        queues.write_out()
        queues.flush()
        assert (flushed, fdatasync.call_count) == ([tmp_path / "consumequeue"], 10)
        queues.flush()
        assert (len(flushed), fdatasync.call_count) == (1, 10)
        fill(queues, topics=1)
        queues.write_out()
        queues.flush()
        assert (len(flushed), fdatasync.call_count) == (1, 12)
    queues.close()


# --- open files ---


def test_open_files_are_bounded(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues, topics=50, messages=20)
    queues.close()
    before = open_files_of_process()
    queues = loaded(tmp_path, descriptors=10)
    assert open_files_of_process() == before
    for queue in queues:
        assert len(queue.read(0, 3)) == 60
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 10
    queues.close()
    assert open_files_of_process() == before


# --- the deletion of topics ---


def test_a_recreated_topic_waits_until_the_files_of_its_predecessor_are_removed(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    queues.write_out()
    files = content_of(tmp_path / "consumequeue/Topic1")
    removal = queues.forget_topics(["Topic1"], 500)
    assert queues.topics() == ["Topic0", "Topic2"]
    queue = queues.get_or_create("Topic1", 0)
    for number in range(3):
        queue.put(500 + number * 100, 100, 0)
    queues.get_or_create("Topic0", 0).put(800, 100, 0)
    assert not queues.write_out()
    assert content_of(tmp_path / "consumequeue/Topic1") == files
    assert queue.entry(2) == (700, 100, 0)
    queues.remove_files(removal)
    assert not (tmp_path / "consumequeue/Topic1").exists()
    assert queues.write_out()
    queues.close()
    assert ends(loaded(tmp_path)) == {
        ("Topic0", 0): 6,
        ("Topic0", 1): 5,
        ("Topic1", 0): 3,
        ("Topic2", 0): 5,
        ("Topic2", 1): 5,
    }


def test_a_topic_that_is_deleted_again_before_its_files_are_removed(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues)
    queues.write_out()
    first = queues.forget_topics(["Topic1"], 500)
    queues.get_or_create("Topic1", 0).put(500, 100, 0)
    second = queues.forget_topics(["Topic1"], 600)
    queues.get_or_create("Topic1", 1).put(600, 100, 0)
    queues.remove_files(first)
    assert not queues.write_out()
    queues.remove_files(second)
    assert queues.write_out()
    queues.close()
    found = ends(loaded(tmp_path))
    assert {key: end for key, end in found.items() if key[0] == "Topic1"} == {("Topic1", 1): 1}


def test_a_message_of_a_deleted_topic_that_is_entered_late_is_not_written(tmp_path: Path) -> None:
    """With SYNC_FLUSH it may have been flushed meanwhile."""
    queues = new_queues(tmp_path)
    fill(queues)
    queue = queues.get_or_create("Topic1", 0)
    removal = queues.forget_topics(["Topic1"], 500)
    queue.put(400, 100, 0)
    queues.remove_files(removal)
    queue.put(450, 100, 0)
    assert queues.write_out()
    assert not (tmp_path / "consumequeue/Topic1").exists()
    assert queues.unwritten_bytes == 0
    queues.close()


# --- the first message ---


def test_the_place_of_the_first_message_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = new_queues(tmp_path)
    queue, batches = queues.get_or_create("T", 0), queues.get_or_create("Batches", 0)
    assert queue.first_physical_offset() is None
    for number in range(2000):
        queue.put(7 + number * 100, 100, 0)
        batches.put(9 + number * 100, 100, 0, 7, 2)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", lambda *_: pytest.fail("a read"))
            assert (queue.first_physical_offset(), batches.first_physical_offset()) == (7, 9)
        queues.write_out()
    queues.close()
    queues = loaded(tmp_path)
    found, found_batches = queues.get("T", 0), queues.get("Batches", 0)
    assert found is not None and found_batches is not None
    assert (found.first_physical_offset(), found_batches.first_physical_offset()) == (7, 9)
    found.delete_before(1000)
    assert found.first_physical_offset() is None
    found.cut_at(0)
    assert found.first_physical_offset() is None
    found.put(200_000, 100, 0)
    assert found.first_physical_offset() == 200_000
    queues.close()
