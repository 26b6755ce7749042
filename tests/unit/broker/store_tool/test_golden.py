"""Directories written by Apache RocketMQ 5.3.3, read with the same result as by Apache's classes."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from rmq_broker.store_tool.dump import DumpOptions, as_line, delays_of, dump
from rmq_broker.store_tool.index_files import IndexFile, index_paths
from rmq_broker.store_tool.layout import INDEX_ENTRY, QUEUE_ENTRY, body_of
from rmq_broker.store_tool.log_files import numbered_files, record_at
from rmq_broker.store_tool.properties import index_hash
from rmq_broker.store_tool.queue_files import QueueFiles
from rmq_broker.store_tool.repair import RepairOptions, repair
from rmq_broker.store_tool.verify import VerifyOptions, verify
from rmq_remoting.compression import CompressionType
from tests.support.compressions import HAS_LZ4
from tests.support.golden import json_file
from tests.support.golden_store import NAMES, look_ups, manifest, unpack
from tests.unit.broker.store_tool.parts import killed

SOUND = ("clean", "killed")
LOOK_UP_LIMIT = 64  # maxMsgsNumBatch


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """All three directories, which the tests only read."""
    return {name: unpack(name, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", SOUND)
def test_verify_finds_nothing(name: str, strict: bool, stores: dict[str, Path]) -> None:
    report = verify(stores[name], VerifyOptions(strict=strict, jobs=1))

    assert report.findings == []
    assert report.is_clean
    summary = json_file(f"store/{name}.summary.json")
    assert report.counts["messages"] == report.counts["queue entries"] == summary["messages"]
    assert report.facts["log"] == f"0 to {summary['commit_log_max_offset']}"
    queues = sum(len(of_topic) for of_topic in json_file(f"store/{name}.queues.json").values())
    assert report.counts["queues"] == queues
    if name == "clean":  # of the other the summary tells what its recovery made
        entries = sum(file["indexCount"] - 1 for file in summary["index_files"])
        assert report.counts["index entries"] == entries


def test_verify_checks_timer_and_offsets(stores: dict[str, Path]) -> None:
    counts = verify(stores["clean"], VerifyOptions(jobs=1)).counts
    assert (counts["timer log entries"], counts["timer slots"]) == (16, 7)
    assert counts["consumer offsets"] == 29


def test_verify_finds_the_damage(stores: dict[str, Path]) -> None:
    report = verify(stores["damaged"], VerifyOptions(jobs=1))

    found = {(finding.kind, finding.place): finding for finding in report.findings}
    # The last 300 bytes of the last record were zeroed; its queue still has an entry for the record.
    assert ("log.torn_end", "log at 2305993") in found
    assert found["queue.ahead", "TopicPlain/3"].is_error
    # The last 50 entries were zeroed; the last file was removed.
    assert found["queue.missing", "TopicPlain/1"].text.startswith("50 entries are missing, 137 to 186 ")
    assert found["queue.missing", "TopicSingle/0"].text.startswith("156 entries are missing, 600 to 755 ")
    # The last index file was removed.
    assert found["index.missing", "index"].is_error
    assert found["index.missing", "index"].text.startswith("113 entries are missing at the end")
    assert len(found) == 5
    assert not report.is_clean
    assert report.counts["messages"] == json_file("store/damaged.summary.json")["messages"]


_READ = ("uncompressedBodySha256", "uncompressedBodySize")
_STORED = ("bodySha256", "bodySize")


@pytest.mark.parametrize("name", NAMES)
def test_dump_shows_every_message(name: str, stores: dict[str, Path]) -> None:
    options = DumpOptions(body=True)
    delays_ms = delays_of(options)
    problems: list[str] = []
    rows = [json.loads(as_line(stored, delays_ms)) for stored in dump(stores[name], options, problems.append)]

    expected = manifest(name)
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        body = base64.b64decode(row.pop("bodyBase64")) if "bodyBase64" in row else row.pop("body").encode()
        # Without the package for its compression a body is shown as it is stored.
        is_readable = HAS_LZ4 or CompressionType.of_sys_flag(wanted["sysFlag"]) is not CompressionType.LZ4
        assert ("bodyProblem" in row) != is_readable
        row.pop("bodyProblem", None)
        sha256, size = _READ if is_readable else _STORED
        assert (hashlib.sha256(body).hexdigest(), len(body)) == (wanted[sha256], wanted[size])
        assert row == {key: wanted[key] for key in row}
        assert wanted.keys() - row.keys() == {
            "bodySha256",
            "uncompressedBodySha256",
            "uncompressedBodySize",
            "inConsumeQueue",
            "consumeQueueMatches",
            "consumeQueueTagsCode",
            "rawSha256",
        }
    assert len(problems) == (name == "damaged")


@pytest.mark.parametrize("name", SOUND)
def test_records_and_queues_equal_apaches(name: str, stores: dict[str, Path]) -> None:
    log = numbered_files(stores[name] / "commitlog")
    contents = {}
    for file in log.files:
        contents[file.start] = file.path.read_bytes()
    queues: dict[tuple[str, int], QueueFiles] = {}
    for row in manifest(name):
        record = record_at(log, row["phyOffset"])
        data = contents[row["phyOffset"] - row["phyOffset"] % log.file_bytes]
        at = row["phyOffset"] % log.file_bytes
        assert hashlib.sha256(data[at : at + record.size]).hexdigest() == row["rawSha256"]
        assert hashlib.sha256(body_of(data, record)).hexdigest() == row["bodySha256"]
        key = row["topic"], row["queueId"]
        if key not in queues:
            queues[key] = QueueFiles(stores[name] / "consumequeue" / key[0] / str(key[1]))
        entry = QUEUE_ENTRY.unpack(queues[key].read(row["queueOffset"], 1))
        assert entry == (row["phyOffset"], row["size"], row["consumeQueueTagsCode"])
    for topic, of_topic in json_file(f"store/{name}.queues.json").items():
        for queue_id, queue in of_topic.items():
            files = queues[topic, int(queue_id)]
            assert files.end_of_entries() == queue["max"]
            assert [file.path.name for file in files.numbered.files] == queue["files"]


@pytest.mark.parametrize("name", SOUND)
def test_index_queries_equal_apaches(name: str, stores: dict[str, Path]) -> None:
    offsets: dict[int, list[int]] = defaultdict(list)
    for path in index_paths(stores[name] / "index")[0]:
        file = IndexFile(path)
        slots = file.find_slots()
        assert slots == 2000
        file.slots = slots
        assert file.capacity == 1000
        for _, packed in file.blocks():
            for hashed, offset, _, _ in INDEX_ENTRY.iter_unpack(packed):
                offsets[hashed].insert(0, offset)
        file.close()
    looked_up = [row for row in look_ups(name) if not row.keys() & {"begin", "max"}]
    assert looked_up
    for row in looked_up:
        found = offsets[index_hash(row["topic"].encode(), row["key"].encode())]
        assert found[:LOOK_UP_LIMIT] == row["phyOffsets"]


@pytest.mark.parametrize("name", NAMES)
def test_repair_builds_what_apache_built(name: str, tmp_path: Path, stores: dict[str, Path]) -> None:
    root = unpack(name, tmp_path)
    log_before = [file.path.read_bytes() for file in numbered_files(root / "commitlog").files]
    shutil.rmtree(root / "consumequeue")

    report = repair(root, RepairOptions(jobs=1))

    verified = verify(root, VerifyOptions(jobs=1))
    assert verified.is_clean
    assert report.messages == report.queue_entries == len(manifest(name))
    assert [file.path.read_bytes() for file in numbered_files(root / "commitlog").files] == log_before
    if name == "damaged":
        return
    built = content_of(root / "consumequeue") if report.queues else {}
    # Without old files, the default size is used.
    wanted = content_of(stores[name] / "consumequeue")
    assert {queue_of(path) for path in built} == {queue_of(path) for path in wanted}
    assert by_queue(built) == by_queue(wanted)
    assert list(content_of(root / "index").values()) == list(content_of(stores[name] / "index").values())


@pytest.mark.parametrize("name", SOUND)
def test_repaired_queues_equal_apaches_byte_for_byte(
    name: str, tmp_path: Path, stores: dict[str, Path]
) -> None:
    root = unpack(name, tmp_path)
    for path in (root / "consumequeue").glob("*/*/*"):
        path.write_bytes(bytes(path.stat().st_size))

    report = repair(root, RepairOptions(jobs=1))

    assert content_of(root / "consumequeue") == content_of(stores[name] / "consumequeue")
    assert sorted(path.name.partition(".before-repair-")[0] for path in report.kept) == [
        "consumequeue",
        "index",
    ]


def test_the_index_of_a_running_broker_may_lag(tmp_path: Path) -> None:
    root = unpack("killed", tmp_path)
    index_paths(root / "index")[0][-1].unlink()
    (root / "rmq_queues.json").write_text("{}")
    killed(root)

    report = verify(root, VerifyOptions(jobs=1))

    assert dict(report.kinds) == {"index.behind": 1}
    assert report.is_clean
    assert not verify(root, VerifyOptions(jobs=1, strict=True)).is_clean


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def queue_of(path: str) -> str:
    return str(Path(path).parent)


def by_queue(content: dict[str, bytes]) -> dict[str, bytes]:
    queues: dict[str, bytes] = {}
    for path, data in content.items():
        queues[queue_of(path)] = queues.get(queue_of(path), b"") + data
    return {queue: data.rstrip(b"\0") for queue, data in queues.items()}
