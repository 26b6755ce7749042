"""`repair`: rebuilt files, unchanged files, and refusals."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from rmq_broker.store.directory_lock import DirectoryLock
from rmq_broker.store_tool import repair as repair_module
from rmq_broker.store_tool.directory import DirectoryUnusable
from rmq_broker.store_tool.layout import PLACEHOLDER
from rmq_broker.store_tool.rebuilt_index import RebuiltIndex
from rmq_broker.store_tool.verify import VerifyOptions, verify
from tests.unit.broker.store_tool.parts import (
    StoreWriter,
    errors_of,
    finished,
    index_path,
    kinds_of,
    log_path,
    made_by_ours,
    overwrite,
    queue_path,
    rebuild,
)


def content_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_intact_store_does_not_change(root: Path) -> None:
    before = content_of(root)
    rebuild(root, discard=True)
    after = content_of(root)
    after.pop("lock")
    before.pop("lock")
    assert after == before


def test_replaced_files_are_kept(root: Path) -> None:
    overwrite(queue_path(root, "Topic0"), 0, b"x")
    before = content_of(root)
    report = rebuild(root)
    assert [path.name.partition(".before-repair-")[0] for path in report.kept] == ["consumequeue", "index"]
    for path in report.kept:
        name = path.name.partition(".")[0]
        kept = {f"{name}/{inside}": data for inside, data in content_of(path).items()}
        assert kept == {place: data for place, data in before.items() if place.startswith(f"{name}/")}
    assert errors_of(root) == []


def test_replacement_without_an_atomic_exchange(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_module, "_exchange", lambda one, other: False)
    overwrite(queue_path(root, "Topic0"), 0, b"x")
    report = rebuild(root)
    assert len(report.kept) == 2
    assert errors_of(root) == []


def test_a_dry_run_changes_nothing(root: Path) -> None:
    overwrite(queue_path(root, "Topic0"), 0, b"x")
    before = content_of(root)
    report = rebuild(root, dry_run=True)
    assert content_of(root) == before
    assert (report.messages, report.queues, report.queue_entries) == (60, 4, 60)
    assert (report.index_files, report.index_entries) == (4, 150)
    assert report.lines(dry_run=True)[-1].startswith("would build 4 queues with 60 entries")


def test_a_store_in_use_is_refused(root: Path) -> None:
    before = content_of(root)
    lock = DirectoryLock(root)
    try:
        with pytest.raises(DirectoryUnusable, match="stop that broker first"):
            rebuild(root)
    finally:
        lock.release()
    assert content_of(root) == before


def test_a_failure_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: RebuiltIndex) -> None:
        raise OSError(28, "No space left on device", "a file")

    before = content_of(root)
    monkeypatch.setattr(RebuiltIndex, "finish", fail)
    with pytest.raises(OSError, match="No space left"):
        rebuild(root)
    assert content_of(root) == before


def test_without_the_index(root: Path) -> None:
    index_path(root).unlink()
    before = sorted(path.name for path in (root / "index").iterdir())
    rebuild(root, with_index=False)
    assert sorted(path.name for path in (root / "index").iterdir()) == before


def test_the_marks_of_the_index_are_updated(root: Path, writer: StoreWriter) -> None:
    made_by_ours(root)
    (root / "rmq_index.json").write_text('{"complete_to": 0, "files": [["20200101000000000", 5]]}')
    rebuild(root, discard=True)
    marks = json.loads((root / "rmq_index.json").read_text())
    assert marks["complete_to"] == writer.end
    assert [name for name, _ in marks["files"]] == [path.name for path in sorted((root / "index").iterdir())]
    assert marks["files"][-1][1] == writer.messages[-1].physical_offset
    assert errors_of(root) == []


def test_file_sizes_are_taken_from_the_old_files(root: Path) -> None:
    before = content_of(root)
    for path in (root / "index").iterdir():
        overwrite(path, 40, bytes(8))
        break
    rebuild(root, discard=True, index_slots=None, index_entries=None, queue_file_bytes=None)
    before.pop("lock")
    after = content_of(root)
    after.pop("lock")
    assert after == before


def test_a_log_whose_old_files_were_deleted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for _ in range(60):
        writer.put(body=b"x" * 200)
    root = finished(writer)
    log_path(root).unlink()
    first = next(m.queue_offset for m in writer.messages if m.physical_offset >= 4096)
    rebuild(root, discard=True)
    path = sorted((root / "consumequeue" / "TopicA" / "0").iterdir())[0]
    assert int(path.name) == first * 20 // 200 * 200
    inside = first - int(path.name) // 20
    assert path.read_bytes()[: inside * 20] == PLACEHOLDER * inside
    assert errors_of(root) == []


def test_deleted_topics_do_not_reappear(root: Path, writer: StoreWriter) -> None:
    made_by_ours(root)
    marks = {"checkpoint": [], "ends": {}, "deleted": {"Topic1": writer.end}}
    (root / "rmq_queues.json").write_text(json.dumps(marks))
    rebuild(root, discard=True)
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == ["Topic0"]
    assert errors_of(root) == []


def test_damage_in_the_log_leaves_a_gap(root: Path, writer: StoreWriter) -> None:
    bad = [m for m in writer.messages if (m.topic, m.queue_id) == ("Topic0", 0)][5]
    overwrite(log_path(root, bad.physical_offset), bad.physical_offset % 4096 + 4, b"?")
    report = rebuild(root, discard=True)
    assert report.problem_count == 2
    assert queue_path(root, "Topic0").read_bytes()[100:120] == PLACEHOLDER
    assert set(kinds_of(root)) == {"log.magic", "log.queue_offset"}


def test_invalid_queue_offsets(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for offset in (0, 1, 1, 1000000):
        writer.put(queue_offset=offset)
    report = rebuild(writer.root)
    assert ["used twice" in text for text in report.problems] == [True, False]
    assert "do not fit into the log" in report.problems[1]
    assert report.queue_entries == 2


def test_a_topic_that_was_created_again(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for offset in (*range(25), 0, 1):
        writer.put("Again", queue_offset=offset)
    root = finished(writer)
    (path,) = (root / "consumequeue" / "Again" / "0").iterdir()
    assert struct.unpack_from(">q", path.read_bytes())[0] == writer.messages[25].physical_offset
    assert not any(path.read_bytes()[40:])


# --- truncation of the log ---


def test_the_log_is_cut_off(root: Path, writer: StoreWriter) -> None:
    place = writer.messages[25].physical_offset
    (root / "rmq_checkpoint").write_bytes(b"x")
    before = content_of(root / "commitlog")

    report = rebuild(root, truncate_at=place)

    assert (report.messages, report.log_end) == (25, place)
    checked = verify(root, VerifyOptions(jobs=1))
    assert checked.findings == []
    assert (checked.counts["messages"], checked.facts["log"]) == (25, f"0 to {place}")
    assert not (root / "rmq_checkpoint").exists()
    (kept,) = [path for path in report.kept if path.name.startswith("commitlog")]
    at_least = place - place % 4096
    assert content_of(kept) == {name: data for name, data in before.items() if int(name) >= at_least}
    assert log_path(root, place).stat().st_size == 4096


def test_truncation_between_two_files(root: Path) -> None:
    report = rebuild(root, truncate_at=4096, discard=True)
    assert report.kept == []
    assert [path.name for path in (root / "commitlog").iterdir()] == [f"{0:020d}"]
    assert errors_of(root) == []


def test_truncation_at_the_end_of_the_log(root: Path, writer: StoreWriter) -> None:
    before = content_of(root / "commitlog")
    rebuild(root, truncate_at=writer.end)
    assert content_of(root / "commitlog") == before


def test_truncation_before_a_damaged_record(root: Path, writer: StoreWriter) -> None:
    bad = writer.messages[20]
    overwrite(log_path(root, bad.physical_offset), bad.physical_offset % 4096 + 4, b"?")
    rebuild(root, truncate_at=bad.physical_offset)
    assert errors_of(root) == []


@pytest.mark.parametrize("place", [1, 4095, -1, 10_000_000])
def test_truncation_inside_a_record_is_refused(root: Path, place: int) -> None:
    before = content_of(root)
    with pytest.raises(ValueError, match=r"cannot be cut off|nearest boundary before it is"):
        rebuild(root, truncate_at=place)
    after = content_of(root)
    assert after == before


def test_the_nearest_boundary_is_named(root: Path, writer: StoreWriter) -> None:
    place = writer.messages[3].physical_offset
    with pytest.raises(ValueError, match=f"the nearest boundary before it is {place}$"):
        rebuild(root, truncate_at=place + 7)
