"""Directories that Apache RocketMQ 5.3.3 wrote: stopped cleanly, killed, and damaged afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.checkpoint import Checkpoint
from rmq_broker.store.recovery.stop_marker import StopKind
from rmq_remoting.message_codec import decode_stored_message
from tests.support.golden import DATA, json_file
from tests.support.stores import content_of, opened, put

NAMES = ("clean", "killed", "damaged")
Unpack = Callable[[str], Path]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three directories, unpacked once, without the timer wheel of 38 MB of zeros."""
    folder = tmp_path_factory.mktemp("golden")
    for name in NAMES:
        with tarfile.open(DATA / "store" / f"{name}.tar.xz") as archive:
            members = [m for m in archive.getmembers() if not m.name.startswith("store/timer")]
            archive.extractall(folder / name, members=members, filter="data")
    return folder


@pytest.fixture
def unpack(originals: Path, tmp_path: Path) -> Unpack:
    def copy(name: str) -> Path:
        return shutil.copytree(originals / name / "store", tmp_path / name)

    return copy


@cache
def manifest(name: str) -> list[dict[str, Any]]:
    """The directory's messages once it has been opened, in physical order."""
    if name == "damaged":
        return manifest("killed")[:-1]
    with lzma.open(DATA / "store" / f"{name}.manifest.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def summary(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json_file(f"store/{name}.summary.json")
    return found


def open_golden(root: Path) -> MessageStore:
    return opened(root, log_file_bytes=1048576, queue_file_bytes=6000, maxHashSlotNum=2000, maxIndexNum=1000)


def queues_of(name: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for topic, queues in json_file(f"store/{name}.queues.json").items():
        for queue_id, queue in queues.items():
            yield topic, int(queue_id), queue


def check_messages(store: MessageStore, name: str) -> None:
    """The store holds exactly the manifest's messages, as Apache's decoder reads them."""
    for row in manifest(name):
        result = store.get(row["topic"], row["queueId"], row["queueOffset"], 1, None)
        assert (result.count, len(result.body)) == (1, row["size"])
        assert hashlib.sha256(result.body).hexdigest() == row["rawSha256"]
        message = decode_stored_message(result.body, check_crc=True, decompress_body=False)
        assert (message.physical_offset, message.queue_offset) == (row["phyOffset"], row["queueOffset"])
        assert message.properties == row["properties"]
        assert hashlib.sha256(message.body).hexdigest() == row["bodySha256"]
        assert message.store_timestamp == row["storeTimestamp"]
        entry = store.queues.get_or_create(row["topic"], row["queueId"]).entry(row["queueOffset"])
        assert entry == (row["phyOffset"], row["size"], row["consumeQueueTagsCode"])
    lengths: dict[tuple[str, int], int] = {}
    for row in manifest(name):
        key = row["topic"], row["queueId"]
        lengths[key] = lengths.get(key, 0) + 1
    assert {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues} == lengths


def check_offsets(store: MessageStore, name: str) -> None:
    for topic, queue_id, queue in queues_of(name):
        assert store.min_offset(topic, queue_id) == queue["min"]
        assert store.max_offset(topic, queue_id) == queue["max"]
        for row in queue["offset_by_time"]:
            time_ms = row["timestamp"]
            assert store.offset_by_time(topic, queue_id, time_ms) == row["lower"], (topic, time_ms)
            assert store.offset_by_time(topic, queue_id, time_ms, upper=True) == row["upper"], (
                topic,
                time_ms,
            )


@pytest.mark.parametrize("name", NAMES)
def test_stores_of_apache_are_read(name: str, unpack: Unpack) -> None:
    store = open_golden(unpack(name))
    assert store.commit_log.max_offset == summary(name)["commit_log_max_offset"]
    assert store.commit_log.min_offset == summary(name)["commit_log_min_offset"]
    check_messages(store, name)
    check_offsets(store, name)
    store.close()


@pytest.mark.parametrize("name", NAMES)
def test_rebuilt_queues_equal_those_of_apache(name: str, unpack: Unpack) -> None:
    root = unpack(name)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "consumequeue")
    store = open_golden(root)
    check_messages(store, name)
    store.close()
    for topic, queue_id, queue in queues_of(name):
        folder = root / "consumequeue" / topic / str(queue_id)
        assert sorted(path.name for path in folder.iterdir()) == queue["files"]


@pytest.mark.parametrize("name", NAMES)
def test_opening_again_gives_the_same_result(name: str, unpack: Unpack) -> None:
    root = unpack(name)
    open_golden(root).close()
    first = without_index(root)
    store = open_golden(root)
    check_messages(store, name)
    store.close()
    assert without_index(root) == first


def without_index(root: Path) -> dict[str, bytes]:
    """The content without the index, which may be rebuilt in the background."""
    return {path: content for path, content in content_of(root).items() if not path.startswith("index/")}


async def test_a_clean_directory_is_not_changed(unpack: Unpack) -> None:
    root = unpack("clean")
    before = content_of(root)
    for _ in range(2):
        store = open_golden(root)
        assert store.recovery is not None
        assert (store.recovery.stop, store.recovery.records_read) == (StopKind.CLEAN, 0)
        store.start()
        await store.stop()
    after = content_of(root)
    ours = {"rmq_boot_id", "rmq_checkpoint", "rmq_index.json", "rmq_queues.json"}
    assert after.keys() - ours == before.keys()
    assert [path for path in before if after[path] != before[path]] == []


@pytest.mark.parametrize("name", NAMES)
def test_checkpoint(name: str, unpack: Unpack) -> None:
    expected = summary(name)["checkpoint"]
    path = unpack(name) / "checkpoint"
    checkpoint = Checkpoint.load(path)
    assert checkpoint == Checkpoint(
        log_timestamp_ms=expected["physicMsgTimestamp"],
        queue_timestamp_ms=expected["logicsMsgTimestamp"],
        index_timestamp_ms=expected["indexMsgTimestamp"],
        master_flushed_offset=expected["masterFlushedOffset"],
        confirm_offset=expected["confirmPhyOffset"],
    )
    assert max(0, checkpoint.safe_timestamp_ms) == expected["minTimestamp"]
    before = path.read_bytes()
    checkpoint.save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_appends_continue_where_apache_stopped(name: str, unpack: Unpack) -> None:
    root = unpack(name)
    store = open_golden(root)
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues}
    log_end = store.commit_log.max_offset
    for (topic, queue_id), end in ends.items():
        physical_offset, queue_offset = put(store, b"one more", topic, queue_id)
        assert queue_offset == end
        assert physical_offset >= log_end
    asyncio.run(store.stop())
    store = open_golden(root)
    for (topic, queue_id), end in ends.items():
        result = store.get(topic, queue_id, end, 1, None)
        assert decode_stored_message(result.body, check_crc=True).body == b"one more"
        assert store.max_offset(topic, queue_id) == end + 1
    store.close()
