"""Queues of BatchCQ topics: their folder, and the units of batches and single messages."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.store.directory_lock import DirectoryLock
from rmq_broker.store_tool.dump import DumpOptions, as_json, as_table_row, delays_of, dump
from rmq_broker.store_tool.properties import java_hash
from rmq_broker.store_tool.stats import statistics
from rmq_broker.store_tool.verify import VerifyOptions, verify
from rmq_broker.store_tool.verify_queues import QueueCheck
from rmq_remoting.compression import CompressionType, compress
from rmq_remoting.message import MessageExt
from rmq_remoting.message_batch import encode_batch
from tests.support.examples import examples
from tests.unit.broker.store_tool.parts import (
    BATCH_QUEUE_FILE_BYTES,
    StoreWriter,
    errors_of,
    finished,
    killed,
    kinds_of,
    log_path,
    made_by_ours,
    overwrite,
    rebuild,
)

UNIT = struct.Struct(">qiqqqhii")
TOPIC = "Batch"
# Messages of each record, 0 for a single message: units of four files.
COUNTS = (3, 1, 5, 0, 2, 0, 0, 300, 4, 0)
FIRSTS = (0, 3, 4, 9, 10, 12, 13, 14, 314, 318)
END = 319
DELAYS_MS = delays_of(DumpOptions())


def batch_store(folder: Path, counts: tuple[int, ...] = COUNTS) -> StoreWriter:
    """A store with batches, messages, and another topic in between."""
    writer = StoreWriter(folder / "store", file_bytes=65536)
    configure(writer.root, {TOPIC: "BatchCQ", "Plain": None})
    base = 0
    for number, count in enumerate(counts):
        writer.put("Plain", 0, b"plain %d" % number)
        if count == 0:
            writer.put(TOPIC, 0, b"alone %d" % number, properties={"KEYS": f"alone{number}"})
        else:
            put_batch(writer, base, count, {"TAGS": "T", "KEYS": f"all{number}"})
        base += count or 1
    return writer


def put_batch(writer: StoreWriter, base: int, count: int, properties: dict[str, str]) -> None:
    messages = [
        MessageExt(TOPIC, b"m%d" % (base + n), properties={"UNIQ_KEY": f"U{base + n}"}) for n in range(count)
    ]
    said = {"INNER_NUM": str(count), "INNER_BASE": str(base), **properties}
    writer.put(TOPIC, 0, encode_batch(messages), properties=said, sys_flag=0xC0, messages=count)


def configure(root: Path, topics: dict[str, str | None]) -> None:
    table = {
        name: {"attributes": {} if kind is None else {"queue.type": kind}} for name, kind in topics.items()
    }
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def batch_path(root: Path, number: int = 0) -> Path:
    """A file of the queue, by number."""
    return root / "batchconsumequeue" / TOPIC / "0" / f"{number * BATCH_QUEUE_FILE_BYTES:020d}"


def content_of(root: Path) -> dict[Path, bytes]:
    places = (root / "batchconsumequeue", root / "consumequeue")
    return {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """A store that the tests only read."""
    writer = batch_store(tmp_path_factory.mktemp("batches"))
    finished(writer)
    return writer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return finished(batch_store(tmp_path))


def test_a_repaired_store_is_intact(writer: StoreWriter) -> None:
    report = verify(writer.root, VerifyOptions(jobs=1, strict=True))
    assert report.findings == []
    assert report.counts["messages"] == END + len(COUNTS)
    assert report.counts["batches"] == 6
    assert report.counts["queue entries"] == 2 * len(COUNTS)
    assert report.counts["queues"] == 2


def test_units_equal_those_of_the_broker(writer: StoreWriter) -> None:
    assert not (writer.root / "consumequeue" / TOPIC).exists()
    files = sorted((writer.root / "batchconsumequeue" / TOPIC / "0").iterdir())
    assert files == [batch_path(writer.root, number) for number in range(4)]
    assert {path.stat().st_size for path in files} == {BATCH_QUEUE_FILE_BYTES}
    content = b"".join(path.read_bytes() for path in files)
    messages = [message for message in writer.messages if message.topic == TOPIC]
    assert [*UNIT.iter_unpack(content)][: len(messages)] == [
        (
            message.physical_offset,
            message.store_size,
            java_hash("T") if count else 0,
            message.store_timestamp,
            first,
            count or 1,
            -1,
            0,
        )
        for message, first, count in zip(messages, FIRSTS, COUNTS, strict=True)
    ]
    assert not any(content[len(messages) * UNIT.size :])


@given(st.integers(0, len(COUNTS) * UNIT.size - 1), st.integers(0, 7))
@settings(max_examples=examples(120))
def test_every_changed_bit_that_readers_use_is_found(writer: StoreWriter, at: int, bit: int) -> None:
    path, position = batch_path(writer.root, at // BATCH_QUEUE_FILE_BYTES), at % BATCH_QUEUE_FILE_BYTES
    before = path.read_bytes()[position]
    overwrite(path, position, bytes([before ^ 1 << bit]))
    try:
        is_clean = verify(writer.root, VerifyOptions(jobs=1)).is_clean
    finally:
        overwrite(path, position, bytes([before]))
    # Readers do not use the compacted offset and the reserved bytes.
    assert is_clean == (at % UNIT.size >= 38)


@given(st.data())
@settings(max_examples=examples(25))
def test_repair_restores_damaged_units(writer: StoreWriter, data: st.DataObject) -> None:
    before = content_of(writer.root)
    paths = data.draw(st.lists(st.sampled_from(sorted(before)), min_size=1, unique=True))
    changes = [(path, data.draw(st.binary(max_size=BATCH_QUEUE_FILE_BYTES))) for path in paths]
    for path, garbage in changes:
        if garbage:
            overwrite(path, 0, garbage)
        else:
            path.unlink()
    rebuild(writer.root, discard=True)
    assert content_of(writer.root) == before
    assert errors_of(writer.root) == []


def test_repair_finds_the_file_size(root: Path) -> None:
    before = content_of(root)
    overwrite(batch_path(root), 0, b"\xff" * 100)
    rebuild(root, discard=True, batch_queue_file_bytes=None)
    assert content_of(root) == before


@pytest.mark.parametrize(("chosen", "size"), [(None, 13_800_000), (100, 138), (1, 46)])
def test_file_sizes(tmp_path: Path, chosen: int | None, size: int) -> None:
    root = batch_store(tmp_path).root
    rebuild(root, batch_queue_file_bytes=chosen)
    assert batch_path(root).stat().st_size == size


def test_replaced_files_are_kept(root: Path) -> None:
    before = content_of(root)
    report = rebuild(root)
    names = [path.name.partition(".before-repair-")[0] for path in report.kept]
    assert names == ["consumequeue", "batchconsumequeue", "index"]
    assert content_of(root) == before


def test_repair_moves_queues_to_the_folder_of_their_type(root: Path) -> None:
    before = content_of(root)
    (root / "batchconsumequeue").rename(root / "none")
    wrong = root / "consumequeue" / TOPIC / "0"
    wrong.mkdir(parents=True)
    (wrong / f"{0:020d}").write_bytes(bytes(200))
    assert kinds_of(root) == {"queue.type": 1, "queue.missing": 1}
    rebuild(root, discard=True)
    assert content_of(root) == before
    assert kinds_of(root) == {}


def test_a_queue_of_another_type_than_its_topic(root: Path) -> None:
    configure(root, {TOPIC: None, "Plain": None})
    assert kinds_of(root) == {"queue.type": 1}
    # Without topics.json, the folder tells the type.
    (root / "config" / "topics.json").unlink()
    assert errors_of(root) == []
    before = content_of(root)
    rebuild(root, discard=True)
    assert content_of(root) == before


def test_a_missing_queue(root: Path) -> None:
    (root / "batchconsumequeue").rename(root / "none")
    (line,) = errors_of(root)
    assert f"Batch/0: {END} entries are missing, 0 to {END - 1} " in line
    (root / "none").rename(root / "batchconsumequeue")
    batch_path(root, 1).unlink()
    assert kinds_of(root) == {"queue.files": 1, "queue.missing": 1}
    assert "4 entries are missing, 9 to 12 " in "".join(errors_of(root))


def test_units_missing_at_the_end(root: Path) -> None:
    overwrite(batch_path(root, 2), 46, bytes(2 * 46))
    batch_path(root, 3).unlink()
    assert f"305 entries are missing, 14 to {END - 1} " in errors_of(root)[0]
    # A killed broker had not written the units out.
    killed(root)
    made_by_ours(root, written=0)
    assert (kinds_of(root), errors_of(root)) == ({"queue.behind": 1}, [])


def test_a_queue_whose_units_are_not_written_yet(tmp_path: Path) -> None:
    """The unit of the log's first record begins with zeros, like an empty one."""
    writer = StoreWriter(tmp_path / "store")
    configure(writer.root, {TOPIC: "BatchCQ"})
    put_batch(writer, 0, 3, {})
    put_batch(writer, 3, 1, {})
    root = finished(writer)
    assert kinds_of(root) == {}
    before = batch_path(root).read_bytes()
    overwrite(batch_path(root), 0, bytes(46))
    assert "3 entries are missing, 0 to 2 " in errors_of(root)[0]
    overwrite(batch_path(root), 0, bytes(2 * 46))
    assert "4 entries are missing, 0 to 3 " in errors_of(root)[0]
    overwrite(batch_path(root), 0, before)
    assert kinds_of(root) == {}


@pytest.mark.parametrize("state", ["in use", "killed"])
def test_units_written_after_their_comparison(
    root: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A running broker may write them between the scan of the log and the check of the remaining units."""
    killed(root)
    made_by_ours(root, written=0)
    complete = batch_path(root, 2).read_bytes()
    overwrite(batch_path(root, 2), 46, bytes(2 * 46))
    finish = QueueCheck.finish

    def write_and_finish(check: QueueCheck, log_end: int) -> None:
        batch_path(root, 2).write_bytes(complete)
        finish(check, log_end)

    monkeypatch.setattr(QueueCheck, "finish", write_and_finish)
    lock = DirectoryLock(root) if state == "in use" else None
    try:
        errors = errors_of(root)
        assert all("queue.wrong_entry" in line for line in errors)
        assert len(errors) == (0 if state == "in use" else 2)
    finally:
        if lock is not None:
            lock.release()


def test_a_unit_with_a_wrong_queue_offset(root: Path) -> None:
    overwrite(batch_path(root), 2 * 46 + 36, b"\0\4")
    (line,) = errors_of(root)
    assert "queue.wrong_entry" in line


def test_a_queue_shorter_than_at_the_last_clean_stop(root: Path) -> None:
    made_by_ours(root)
    times = list(struct.unpack_from(">qq", (root / "checkpoint").read_bytes()))
    for end, kinds in ((END, {}), (END + 1, {"queue.short": 1})):
        marks = {"checkpoint": times, "ends": {TOPIC: {"0": end}}, "deleted": {}}
        (root / "rmq_queues.json").write_text(json.dumps(marks))
        assert kinds_of(root) == kinds


def test_consumer_offsets_count_messages(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"Batch@group": {"0": END}}}))
    assert kinds_of(root) == {}
    path.write_text(json.dumps({"offsetTable": {"Batch@group": {"0": END + 1}}}))
    assert kinds_of(root) == {"config.offsets": 1}


def test_a_log_whose_old_files_were_deleted(tmp_path: Path) -> None:
    writer = batch_store(tmp_path, (200,) * 40)
    root = finished(writer)
    log_path(root, 0, 65536).unlink()
    assert errors_of(root) == []
    first = next(m for m in writer.messages if m.topic == TOPIC and m.physical_offset >= 65536)
    rebuild(root, discard=True)
    unit = UNIT.unpack_from(batch_path(root).read_bytes())
    assert (unit[0], unit[4]) == (first.physical_offset, first.queue_offset)
    assert errors_of(root) == []


def test_lost_messages_leave_a_gap(tmp_path: Path) -> None:
    writer = batch_store(tmp_path)
    bad = [message for message in writer.messages if message.topic == TOPIC][4]
    overwrite(log_path(writer.root, 0, 65536), bad.physical_offset + 4, b"?")
    report = rebuild(writer.root)
    assert "messages 10 to 11 of Batch/0 are missing before it" in "".join(report.problems)
    assert report.queue_entries == 2 * len(COUNTS) - 1
    assert set(kinds_of(writer.root)) == {"log.magic", "log.queue_offset", "checkpoint"}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"INNER_NUM": "3"}, "the inner batch has 2 messages, INNER_NUM says 3"),
        ({"INNER_BASE": "7"}, "the queue offset is 319, INNER_BASE says 7"),
        ({"INNER_NUM": "40000"}, "the inner batch lacks INNER_NUM or INNER_BASE"),
        ({"INNER_BASE": "x"}, "the inner batch lacks INNER_NUM or INNER_BASE"),
    ],
)
def test_invalid_batches(tmp_path: Path, properties: dict[str, str], text: str) -> None:
    writer = batch_store(tmp_path)
    put_batch(writer, END, 2, properties)
    (line,) = errors_of(finished(writer))
    assert "log.inner_batch" in line and text in line


def test_only_the_flag_marks_a_batch(tmp_path: Path) -> None:
    writer = batch_store(tmp_path)
    writer.put(TOPIC, 0, b"x", properties={"INNER_NUM": "9", "INNER_BASE": "0"})
    writer.put(TOPIC, 0, b"y")
    assert errors_of(finished(writer)) == []


# --- dump and statistics ---


def rows_of(root: Path, **options: object) -> list[dict[str, object]]:
    wanted = DumpOptions(topic=TOPIC, **options)  # type: ignore[arg-type]
    return [as_json(stored, DELAYS_MS) for stored in dump(root, wanted)]


def test_dump_shows_the_number_of_messages(writer: StoreWriter) -> None:
    rows = rows_of(writer.root)
    assert [row["queueOffset"] for row in rows] == list(FIRSTS)
    assert [row.get("messages", 0) for row in rows] == list(COUNTS)
    lines = [as_table_row(stored).split() for stored in dump(writer.root, DumpOptions(topic=TOPIC))]
    numbers = ["0-2", "3", "4-8", "9", "10-11", "12", "13", "14-313", "314-317", "318"]
    assert [line[5] for line in lines] == numbers, "the time has two columns"


def test_dump_shows_the_messages_of_a_batch(writer: StoreWriter) -> None:
    rows = rows_of(writer.root, body=True)
    shown = [
        (inner["queueOffset"], inner["body"], inner["uniqKey"])
        for row in rows
        for inner in row.get("innerMessages", [])  # type: ignore[attr-defined]
    ]
    wanted = [first + n for first, count in zip(FIRSTS, COUNTS, strict=True) for n in range(count)]
    assert shown == [(number, f"m{number}", f"U{number}") for number in wanted]
    assert rows[3]["body"] == "alone 3" and "innerMessages" not in rows[3]
    row, *_ = [as_table_row(stored) for stored in dump(writer.root, DumpOptions(topic=TOPIC, body=True))]
    assert row.splitlines()[1:] == [f"    {number} body: m{number}" for number in range(3)]


def test_dump_of_a_batch_that_is_compressed_or_broken(tmp_path: Path) -> None:
    writer = batch_store(tmp_path, ())
    said = {"INNER_NUM": "1", "INNER_BASE": "0"}
    body = encode_batch([MessageExt(TOPIC, b"inside")])
    packed = compress(body, CompressionType.ZSTD)
    writer.put(TOPIC, 0, packed, properties=said, sys_flag=0xC0 | CompressionType.ZSTD.sys_flag)
    writer.put(TOPIC, 0, b"broken", properties=said, sys_flag=0xC0)
    compressed, broken = rows_of(writer.root, body=True)
    assert [inner["body"] for inner in compressed["innerMessages"]] == ["inside"]  # type: ignore[attr-defined]
    assert broken["body"] == "broken" and "innerMessages" not in broken


@pytest.mark.parametrize("place", ["as it is", "removed", "garbled"])
def test_dump_from_an_offset(tmp_path: Path, place: str) -> None:
    root = finished(batch_store(tmp_path))
    if place == "removed":
        (root / "batchconsumequeue").rename(root / "none")
    elif place == "garbled":
        overwrite(batch_path(root, 1), 0, bytes(range(138)))
    for wanted, first in ((0, 0), (2, 0), (3, 1), (8, 2), (9, 3), (200, 7), (313, 7), (318, 9), (319, 10)):
        rows = rows_of(root, queue=0, from_offset=wanted)
        assert [row["queueOffset"] for row in rows] == list(FIRSTS[first:]), wanted


def test_dump_by_a_key_inside_a_batch(writer: StoreWriter) -> None:
    assert [row["queueOffset"] for row in rows_of(writer.root, message_id="U200")] == [14]
    assert [row["queueOffset"] for row in rows_of(writer.root, key="all4")] == [10]
    assert [row["queueOffset"] for row in rows_of(writer.root, key="alone9")] == [318]
    assert rows_of(writer.root, message_id="U12") == []


def test_statistics(writer: StoreWriter) -> None:
    found = statistics(writer.root, jobs=1).as_json()
    assert found["topics"][TOPIC]["messages"] == END
    assert found["topics"]["Plain"]["messages"] == len(COUNTS)
    assert sum(found["messagesBySizeBelow"].values()) == END + len(COUNTS)
    before = found["diskBytes"]["queues"]
    (writer.root / "batchconsumequeue" / "more").write_bytes(bytes(8192))
    try:
        assert statistics(writer.root, jobs=1).as_json()["diskBytes"]["queues"] == before + 8192
    finally:
        (writer.root / "batchconsumequeue" / "more").unlink()
