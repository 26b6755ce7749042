"""The file `rmq_queues.json`: ends of queues at the last clean stop, and deleted topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.queues.consume_queues import ConsumeQueues
from rmq_broker.store.recovery.checkpoint import Checkpoint
from rmq_broker.store.recovery.queue_state import MAX_DELETED, QueueStateFile

CHECKPOINT = Checkpoint(log_timestamp_ms=10, queue_timestamp_ms=20)


def queues_with(folder: Path, **messages: int) -> ConsumeQueues:
    """Queues 0 of topics, each with a number of messages."""
    queues = ConsumeQueues(folder, 6000)
    for topic, count in messages.items():
        queue = queues.get_or_create(topic, 0)
        for number in range(count):
            queue.put(number, 1, 0)
    return queues


def loaded(path: Path) -> QueueStateFile:
    state = QueueStateFile(path)
    state.load()
    return state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a file that a clean stop with 5 messages of TopicA and 3 of Thème wrote."""
    path = tmp_path / "rmq_queues.json"
    queues = queues_with(tmp_path / "before", TopicA=5, Thème=3, Empty=0)
    QueueStateFile(path).save_ends(queues, CHECKPOINT, 0)
    queues.close()
    return path


@pytest.mark.parametrize(
    ("found", "lacking"),
    [
        ({"TopicA": 5, "Thème": 3}, False),
        ({"TopicA": 6, "Thème": 3, "New": 1}, False),
        ({"TopicA": 5, "Thème": 2}, True),
        ({"TopicA": 4, "Thème": 3}, True),
        ({"TopicA": 5}, True),
        ({}, True),
    ],
)
def test_queues_that_lack_entries(tmp_path: Path, path: Path, found: dict[str, int], lacking: bool) -> None:
    queues = queues_with(tmp_path / "after", **found)
    state = loaded(path)
    assert state.lacks_entries(queues, CHECKPOINT, after_clean_stop=True) is lacking
    other = Checkpoint(log_timestamp_ms=11, queue_timestamp_ms=20)
    assert state.lacks_entries(queues, other, after_clean_stop=False) is lacking
    assert state.lacks_entries(queues, other, after_clean_stop=True) is False  # another broker was here
    queues.close()


def test_deleted_topics_lack_no_entries(tmp_path: Path, path: Path) -> None:
    state = loaded(path)
    state.note_deleted({"TopicA": 700, "Unknown": 700}, 0)
    queues = queues_with(tmp_path / "after", Thème=3)
    for again in (state, loaded(path)):
        assert not again.lacks_entries(queues, CHECKPOINT, after_clean_stop=True)
        assert again.deleted == {"TopicA": 700, "Unknown": 700}
    loaded(path).note_deleted({"TopicA": 900}, 0)
    assert loaded(path).deleted == {"TopicA": 900, "Unknown": 700}
    queues.close()


def test_deleted_topics_are_dropped_with_their_messages(tmp_path: Path, path: Path) -> None:
    state = loaded(path)
    state.note_deleted({"Old": 500, "New": 900}, 0)
    queues = queues_with(tmp_path / "after")
    state.save_ends(queues, CHECKPOINT, 500)
    assert loaded(path).deleted == {"New": 900}
    state.note_deleted({"Newest": 1200}, 900)
    assert loaded(path).deleted == {"Newest": 1200}


def test_the_latest_deletions_are_kept(path: Path) -> None:
    state = loaded(path)
    for number in range(0, MAX_DELETED + 10, 1000):
        state.note_deleted({f"Topic{number + each}": number + each for each in range(1000)}, 0)
    state.note_deleted({"Topic0": 9999}, 0)
    kept = list(loaded(path).deleted)
    assert len(kept) == MAX_DELETED
    assert kept[-2:] == ["Topic4999", "Topic0"]
    assert kept[0] == f"Topic{5001 - MAX_DELETED}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"checkpoint": [1, 2], "ends": {"TopicA": 5}, "deleted": {}}',
        b'{"checkpoint": 1, "ends": {}, "deleted": {}}',
        b'{"checkpoint": [], "ends": {"T": {"0": 5}}, "deleted": {"a": "b"}}',
        b'{"checkpoint": [], "ends": {"T": {"x": 5}}, "deleted": {}}',
        b'{"checkpoint": [], "ends": {"T": {"0": null}}, "deleted": {}}',
    ],
)
def test_a_damaged_file_is_ignored(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "rmq_queues.json"
    path.write_bytes(content)
    state = loaded(path)
    assert not state.lacks_entries(queues_with(tmp_path / "q"), CHECKPOINT, after_clean_stop=False)
    assert state.deleted == {}
    assert "unreadable file ignored" in caplog.text


def test_a_missing_file_counts_as_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = loaded(tmp_path / "rmq_queues.json")
    assert not state.lacks_entries(queues_with(tmp_path / "q"), Checkpoint(), after_clean_stop=True)
    assert not caplog.text
