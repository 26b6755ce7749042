"""Findings of `verify` by state of the store and by defect."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.directory_lock import DirectoryLock
from rmq_broker.store_tool.directory import DirectoryUnusable
from rmq_broker.store_tool.layout import EXT_ADDRESS_BASE
from rmq_broker.store_tool.properties import java_hash
from rmq_broker.store_tool.verify import VerifyOptions, verify
from tests.unit.broker.store_tool.parts import (
    StoreWriter,
    errors_of,
    finished,
    index_path,
    killed,
    kinds_of,
    log_path,
    made_by_ours,
    overwrite,
    queue_path,
    rebuild,
)


def cut_queue(root: Path, topic: str, queue_id: int, keep: int) -> None:
    """Remove all but the first entries of a queue."""
    for path in (root / "consumequeue" / topic / str(queue_id)).iterdir():
        at = max(0, keep * 20 - int(path.name))
        if at < 200:
            overwrite(path, at, bytes(200 - at))


def test_an_intact_store(root: Path) -> None:
    report = verify(root, VerifyOptions(jobs=1, strict=True))
    assert report.findings == []
    assert report.counts["messages"] == 60
    assert report.lines()[-1].endswith("store: clean")
    assert report.as_json()["clean"] is True


def test_a_preallocated_gigabyte_is_neither_read_nor_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 messages in a log file of the default size, which must not be searched byte by byte."""
    writer = StoreWriter(tmp_path / "store", file_bytes=1 << 30)
    writer.fill(48)
    root = finished(writer)
    if log_path(root).stat().st_blocks > 20_000:
        pytest.skip("this file system stores holes")
    read: list[int] = []
    preadv = os.preadv

    def counted(*arguments: Any) -> int:
        read.append(preadv(*arguments))
        return read[-1]

    monkeypatch.setattr(os, "preadv", counted)
    report = verify(root, VerifyOptions(jobs=1, strict=True))
    assert report.counts["messages"] == 48 and report.findings == []
    assert 0 < sum(read) < 1 << 20


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryUnusable, match="no folder 'commitlog'"):
        verify(tmp_path)


def test_an_empty_store(tmp_path: Path) -> None:
    assert errors_of(finished(StoreWriter(tmp_path / "store"))) == []


# --- queues that lag behind the log ---


def test_a_queue_that_is_short_after_a_clean_stop(root: Path) -> None:
    cut_queue(root, "Topic0", 1, 13)
    assert kinds_of(root) == {"queue.missing": 1}
    assert "Topic0/1: 2 entries are missing, 13 to 14 " in errors_of(root)[0]


def test_apaches_queues_may_lag_in_the_order_of_the_log(root: Path, writer: StoreWriter) -> None:
    killed(root)
    for topic, queue_id in (("Topic0", 0), ("Topic1", 0), ("Topic0", 1), ("Topic1", 1)):
        cut_queue(root, topic, queue_id, 12)
    (root / "index").rename(root / "no index")
    assert kinds_of(root) == {"queue.behind": 4, "index.none": 1}
    assert errors_of(root) == []
    assert len(errors_of(root, strict=True)) == 4
    # A queue that lags behind the others has lost entries.
    cut_queue(root, "Topic0", 1, 3)
    assert kinds_of(root) == {"queue.behind": 3, "queue.missing": 1, "index.none": 1}


def test_our_queues_may_lag_behind_the_log_up_to_the_checkpoint(root: Path, writer: StoreWriter) -> None:
    killed(root)
    entry = [m for m in writer.messages if (m.topic, m.queue_id) == ("Topic0", 1)][12]
    cut_queue(root, "Topic0", 1, 12)

    made_by_ours(root, written=entry.physical_offset)
    assert kinds_of(root) == {"queue.behind": 1}
    made_by_ours(root, written=entry.physical_offset + entry.store_size)
    assert kinds_of(root) == {"queue.missing": 1}
    # After a crash of the machine, only flushed entries must exist.
    (root / "rmq_boot_id").write_text("another boot")
    assert kinds_of(root) == {"queue.behind": 1}
    made_by_ours(root, written=writer.end, flushed=writer.end)
    (root / "rmq_boot_id").write_text("another boot")
    assert kinds_of(root) == {"queue.missing": 1}


def test_a_checkpoint_beyond_the_log(root: Path, writer: StoreWriter) -> None:
    made_by_ours(root, written=writer.end + 1, flushed=writer.end)
    assert kinds_of(root) == {"checkpoint": 1}
    overwrite(root / "rmq_checkpoint", 7, b"x")
    assert (kinds_of(root), errors_of(root)) == ({"checkpoint": 1}, [])


def test_entries_missing_inside_a_queue(root: Path) -> None:
    killed(root)
    overwrite(queue_path(root, "Topic1", 0), 60, bytes(40))
    assert "Topic1/0: 2 entries are missing, 3 to 4 " in "".join(errors_of(root))


def test_a_missing_file_of_a_queue(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for _ in range(35):
        writer.put()
    root = finished(writer)
    queue_path(root, "TopicA", 0, 200).unlink()
    assert kinds_of(root) == {"queue.files": 1, "queue.missing": 1}


def test_a_file_that_was_being_created(root: Path, writer: StoreWriter) -> None:
    queue_path(root, "Topic0", 0, 400).touch()
    log_path(root, writer.end + 4096).touch()
    assert kinds_of(root) == {"queue.files": 1, "log.files": 1}
    killed(root)
    assert errors_of(root) == []


def test_a_queue_ahead_of_the_log(root: Path, writer: StoreWriter) -> None:
    overwrite(queue_path(root, "Topic0", 0, 200), 100, struct.pack(">qiq", writer.end, 200, 5))
    assert kinds_of(root) == {"queue.ahead": 1}
    assert len(errors_of(root)) == 1
    killed(root)
    made_by_ours(root, written=0)
    (root / "rmq_boot_id").write_text("another boot")
    assert errors_of(root) == []


def test_an_entry_of_another_message(root: Path, writer: StoreWriter) -> None:
    other = writer.messages[1]
    overwrite(queue_path(root, "Topic0", 0, 200), 100, struct.pack(">qiq", other.physical_offset, 9, 0))
    (line,) = errors_of(root)
    assert "there is message 0 of Topic1/0" in line


def test_a_queue_shorter_than_at_the_last_clean_stop(root: Path) -> None:
    made_by_ours(root)
    times = list(struct.unpack_from(">qq", (root / "checkpoint").read_bytes()))
    marks = {"checkpoint": times, "ends": {"Topic0": {"0": 15, "1": 15, "2": 4}}, "deleted": {}}
    (root / "rmq_queues.json").write_text(json.dumps(marks))
    assert errors_of(root) == []  # queue 2 is unknown, as it has no folder
    (root / "consumequeue" / "Topic0" / "2").mkdir()
    assert "the queue ends at 0; at the last clean stop it ended at 4" in errors_of(root)[0]


# --- the log ---


def test_a_damaged_message(root: Path, writer: StoreWriter) -> None:
    bad = writer.messages[30]
    overwrite(log_path(root, bad.physical_offset), bad.physical_offset % 4096 + 90, b"?")
    assert kinds_of(root) == {
        "log.body_crc": 1,
        "log.queue_offset": 1,
        "queue.wrong_entry": 1,
        "index.wrong_entry": 3,
    }


def test_a_missing_file_of_the_log(root: Path) -> None:
    log_path(root, 4096).unlink()
    assert kinds_of(root)["log.files"] == 1


def test_a_file_of_another_size(root: Path) -> None:
    with log_path(root, 4096).open("ab") as stream:
        stream.write(b"x")
    assert kinds_of(root)["log.files"] == 1


def test_zeros_inside_the_log(root: Path, writer: StoreWriter) -> None:
    hole = writer.messages[20]
    overwrite(log_path(root, hole.physical_offset), hole.physical_offset % 4096, bytes(hole.store_size))
    assert kinds_of(root)["log.hole"] == 1


def torn(writer: StoreWriter) -> Path:
    """A store whose last message is truncated, and in no queue."""
    root = finished(writer)
    last = writer.put("Topic0", 0, b"never acknowledged" * 10)
    path = log_path(root, last.physical_offset)
    overwrite(path, last.physical_offset % 4096 + 100, bytes(last.store_size - 100))
    return root


def test_a_torn_end_is_normal_after_a_crash(writer: StoreWriter) -> None:
    root = torn(writer)
    assert kinds_of(root) == {"log.lengths": 1}
    killed(root)
    assert kinds_of(root) == {"log.torn_end": 1}
    assert errors_of(root) == []
    assert len(errors_of(root, strict=True)) == 1


def test_properties_that_were_never_written(writer: StoreWriter) -> None:
    root = finished(writer)
    last = writer.put("Topic0", 0, b"x", properties={"a": "b" * 50})
    overwrite(
        log_path(root, last.physical_offset), last.physical_offset % 4096 + last.store_size - 9, bytes(9)
    )
    assert "log.properties" in kinds_of(root)
    killed(root)
    made_by_ours(root, written=last.physical_offset)
    assert errors_of(root) == []


def test_bytes_behind_the_end_of_the_log(root: Path, writer: StoreWriter) -> None:
    assert writer.end % 4096 < 4000
    overwrite(log_path(root, writer.end), 4050, b"rubbish")
    assert (kinds_of(root), errors_of(root)) == ({"log.behind_end": 1}, [])


def test_queue_offsets_in_the_log(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for offset in (0, 1, 5, 5, 2, 3):
        writer.put(queue_offset=offset)
    root = finished(writer)
    report = verify(root, VerifyOptions(jobs=1))
    texts = [finding.text for finding in report.of_kind("log.queue_offset")]
    assert [text.partition(": ")[2] for text in texts] == [
        "messages 2 to 4 are missing before it",
        "the queue offsets 5 to 5 are used twice",
        "the queue offsets 2 to 3 are used twice",
    ]


def test_a_log_whose_old_files_were_deleted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for _ in range(60):
        writer.put(body=b"x" * 200, properties={"KEYS": "k"})
    root = finished(writer)
    log_path(root).unlink()
    report = verify(root, VerifyOptions(jobs=1))
    assert report.findings == []
    assert report.counts["index entries of removed messages"] > 0
    rebuilt = rebuild(root, discard=True)
    assert verify(root, VerifyOptions(jobs=1)).findings == []
    assert rebuilt.queue_entries < 60


# --- topics ---


def test_a_deleted_topic(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for _ in range(5):
        writer.put("Gone")
    end = writer.end
    for offset in range(3):
        writer.put("Gone", queue_offset=offset)
    made_by_ours(writer.root)
    (writer.root / "rmq_queues.json").write_text(
        json.dumps({"checkpoint": [], "ends": {}, "deleted": {"Gone": end}})
    )
    root = finished(writer)
    report = verify(root, VerifyOptions(jobs=1))
    assert (report.kinds, report.counts["queue entries"]) == ({}, 3)


def test_a_topic_that_apache_deleted_and_created_again(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for offset in (0, 1, 2, 0, 1):
        writer.put("Again", queue_offset=offset)
    root = finished(writer)
    assert (kinds_of(root), errors_of(root)) == ({"log.queue_restart": 1}, [])


def test_a_topic_that_apache_deleted(root: Path) -> None:
    for path in (root / "consumequeue" / "Topic1").rglob("0*"):
        if path.is_file():
            path.unlink()
    assert (kinds_of(root), errors_of(root)) == ({"queue.no_topic": 2}, [])
    topics: dict[str, object] = {"topicConfigTable": {"Topic1": {}}}
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    assert kinds_of(root) == {"queue.missing": 2}


def test_delayed_and_half_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for level in (1, 3, 18):
        writer.put("SCHEDULE_TOPIC_XXXX", level - 1, properties={"DELAY": str(level), "TAGS": "T"})
    writer.put("RMQ_SYS_TRANS_HALF_TOPIC", properties={"UNIQ_KEY": "u"})
    writer.put("TopicA", properties={"UNIQ_KEY": "u"}, sys_flag=8, prepared_transaction_offset=10)
    writer.put("TopicA", properties={"UNIQ_KEY": "v"}, sys_flag=4, queue_offset=0)
    writer.put("TopicA", properties={"UNIQ_KEY": "w"}, sys_flag=12, queue_offset=0)
    root = finished(writer)
    report = verify(root, VerifyOptions(jobs=1))
    assert report.findings == []
    assert (report.counts["queue entries"], report.counts["index entries"]) == (5, 3)
    assert kinds_of(root, delay_levels="1s 2s 3s") == {"queue.wrong_entry": 2}


def test_a_body_that_is_not_compressed(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.put(sys_flag=1)
    assert (kinds_of(finished(writer)), errors_of(writer.root)) == ({"log.compression": 1}, [])


def test_extension_files(root: Path, writer: StoreWriter) -> None:
    folder = root / "consumequeue_ext" / "Topic0" / "1"
    folder.mkdir(parents=True)
    messages = [m for m in writer.messages if (m.topic, m.queue_id) == ("Topic0", 1)][:10]
    units = b""
    for number, message in enumerate(messages):
        entry = struct.pack(">q", EXT_ADDRESS_BASE + len(units))
        overwrite(queue_path(root, "Topic0", 1), number * 20 + 12, entry)
        bits = bytes(number)
        code = java_hash(message.properties["TAGS"])
        units += struct.pack(">hqqh", 20 + len(bits), code, message.store_timestamp, len(bits)) + bits
    (folder / f"{0:020d}").write_bytes(units.ljust(1000, b"\0"))
    report = verify(root, VerifyOptions(jobs=1))
    assert (report.findings, report.counts["extension units"]) == ([], 10)
    overwrite(folder / f"{0:020d}", 3, b"x")
    assert kinds_of(root) == {"queue.wrong_entry": 1}
    (folder / f"{0:020d}").unlink()
    assert kinds_of(root) == {"queue.wrong_entry": 10}
    # A repaired queue holds the tags codes in its entries.
    rebuild(root, discard=True)
    assert kinds_of(root) == {}


def test_light_queues(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(4):
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(number)}
        writer.put(properties=properties)
    (writer.root / "consumequeue" / "%LMQ%a" / "0").mkdir(parents=True)
    root = finished(writer)
    path = queue_path(root, "%LMQ%a")
    assert path.exists()
    assert kinds_of(root) == {}
    overwrite(path, 23, b"x")
    assert kinds_of(root) == {"queue.wrong_entry": 1}
    # The tool cannot know whether the broker fills such queues.
    path.unlink()
    path.parent.rmdir()
    assert kinds_of(root) == {}


# --- index ---


def test_a_missing_index_file(root: Path) -> None:
    index_path(root, 1).unlink()
    assert "39 entries are missing, of messages at " in errors_of(root)[0]


def test_duplicate_index_entries(root: Path, writer: StoreWriter) -> None:
    """After a crash, Apache's broker repeats entries of a file's last message; that is no damage."""
    for path in (root / "index").iterdir():
        path.unlink()
    again = StoreWriter(root.parent / "again")
    again.fill(20)
    last = again.messages[-1]
    finished(again)
    (root / "index" / "20231114221320700").write_bytes(index_path(again.root).read_bytes())
    assert last.physical_offset < writer.messages[30].physical_offset
    report = verify(root, VerifyOptions(jobs=1))
    assert set(report.kinds) == {"index.missing"}


@pytest.mark.parametrize("content", [b"", b"short", bytes(40 + 28 + 800)])
def test_invalid_index_files(root: Path, content: bytes) -> None:
    last = sorted((root / "index").iterdir())[-1]
    last.write_bytes(content)
    kinds = kinds_of(root)
    assert ("index.file" in kinds) == (len(content) < 40)
    assert errors_of(root) != []


def test_an_index_file_that_is_being_written(root: Path) -> None:
    last = sorted((root / "index").iterdir())[-1]
    count = int.from_bytes(last.read_bytes()[36:40], "big")
    # The header has not been written since the last two entries.
    overwrite(last, 36, (count - 2).to_bytes(4, "big"))
    assert "index.missing" in kinds_of(root, index_slots=7)
    killed(root)
    made_by_ours(root, written=0)
    assert kinds_of(root, index_slots=7).keys() == {"index.unfinished", "index.behind"}
    assert errors_of(root, index_slots=7) == []


def test_our_index_may_lag_behind_the_log(root: Path, writer: StoreWriter) -> None:
    made_by_ours(root)
    sorted((root / "index").iterdir())[-1].unlink()
    assert kinds_of(root) == {"index.behind": 1}
    (root / "rmq_index.json").write_text(json.dumps({"complete_to": writer.end, "files": []}))
    assert kinds_of(root) == {"index.missing": 1}


def test_after_a_crash_of_the_machine_the_newest_index_file_is_doubtful(root: Path) -> None:
    last = sorted((root / "index").iterdir())[-1]
    overwrite(last, 90, b"\xff" * 8)
    killed(root)
    made_by_ours(root, written=0)
    (root / "rmq_boot_id").write_text("another boot")
    assert errors_of(root) != []
    overwrite(root / "checkpoint", 16, bytes(8))
    assert errors_of(root) == []


def test_foreign_files_are_reported(root: Path) -> None:
    (root / "index" / "readme").touch()
    (root / "commitlog" / "readme").touch()
    assert (kinds_of(root), errors_of(root)) == ({"log.foreign": 1, "index.foreign": 1}, [])


# --- small files ---


def test_json_files(root: Path) -> None:
    path = root / "config" / "topics.json"
    (root / "config" / "topics.json.bak").write_text("{}")
    path.write_text('{"topicConfigTable":')
    (line,) = errors_of(root)
    assert "topics.json.bak can be read" in line
    path.write_text("{}")
    (root / "config" / "topics.json.bak").write_text("")
    (line,) = errors_of(root)
    assert "the file is damaged: it is empty; topics.json can be read" in line


def test_apaches_json_dialect(root: Path) -> None:
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Topic0@group":{0:15,1:15}}}')
    report = verify(root, VerifyOptions(jobs=1))
    assert (report.findings, report.counts["consumer offsets"]) == ([], 2)


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ({"Topic0@group": {"0": 16}}, {"config.offsets": 1}),
        ({"Topic0@group": {"0": -1}}, {"config.offsets": 1}),
        ({"Topic0@group": {"0": "x"}}, {"config.offsets": 1}),
        ({"Topic0@group": 5}, {"config.offsets": 1}),
        ({"Unknown@group": {"0": 16}}, {}),
        ({"%RETRY%group@group": {"0": 0}}, {}),
    ],
)
def test_consumer_offsets(root: Path, table: dict[str, object], kinds: dict[str, int]) -> None:
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    assert kinds_of(root) == kinds
    assert len(errors_of(root)) == len(kinds)


def test_delay_offsets(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.put("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "3"})
    root = finished(writer)
    path = root / "config" / "delayOffset.json"
    path.write_text('{"offsetTable":{3:1,4:0}}')
    assert kinds_of(root) == {}
    path.write_text('{"offsetTable":{3:2,4:1}}')
    assert kinds_of(root) == {"config.offsets": 2}


def test_the_checkpoint(root: Path, writer: StoreWriter) -> None:
    newest_ms = writer.messages[-1].store_timestamp
    overwrite(root / "checkpoint", 0, struct.pack(">q", newest_ms + 1))
    assert "the end of the log is lost" in errors_of(root)[0]
    (root / "checkpoint").write_bytes(b"")
    assert kinds_of(root) == {"checkpoint": 1}
    (root / "checkpoint").unlink()
    assert (kinds_of(root), errors_of(root)) == ({"checkpoint": 1}, [])


# --- whole directories ---


def test_a_store_in_use(root: Path, writer: StoreWriter) -> None:
    killed(root)
    lock = DirectoryLock(root)
    try:
        writer.put("Topic0", 0, b"not in its queue yet")
        report = verify(root, VerifyOptions(jobs=1))
        assert report.facts["left"] == "in use by a broker"
        assert report.is_clean
        # The check has not released the lock.
        assert verify(root).facts["left"] == "in use by a broker"
    finally:
        lock.release()
    assert verify(root).facts["left"] == "killed"


def test_findings_are_bounded(root: Path) -> None:
    overwrite(queue_path(root, "Topic0", 0), 0, b"\x11" * 200)
    report = verify(root, VerifyOptions(jobs=1, limit=3))
    assert (len(report.findings), report.kinds["queue.wrong_entry"], report.errors) == (3, 10, 10)
    assert any("7 more of these" in line for line in report.lines())


def test_verify_changes_nothing(root: Path) -> None:
    killed(root)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}
    verify(root)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")} == before
