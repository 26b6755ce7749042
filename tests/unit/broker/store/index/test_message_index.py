"""The index as a whole: entries, stops of all kinds, full disks, catching up during appends."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.index.batch_keys import BatchKeys
from rmq_broker.store.index.index_files import IndexFiles
from rmq_broker.store.index.keys import KeyHasher
from rmq_broker.store.index.message_index import IndexPace
from rmq_broker.store.index.state import IndexState
from tests.support.clock import START_MS
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.rows import each_row, each_seed
from tests.support.stores import new_store, put
from tests.support.waiting import until
from tests.unit.broker.store.index.parts import (
    Indexed,
    answer,
    check_sound,
    places,
    unique,
    unique_of_one_head,
)


def state(indexed: Indexed) -> IndexState:
    return indexed.index.statistics().state


def stop(indexed: Indexed) -> None:
    indexed.index.flush()
    indexed.index.close()


def some(indexed: Indexed, count: int, seed: int = 0) -> None:
    """Messages of all forms."""
    chance = random.Random(seed + indexed.log.max_offset)
    for _ in range(count):
        topic = chance.choice(["T", "主题"])
        key = unique(indexed.log.max_offset // 100)
        keys = " ".join(f"k{chance.randrange(6)}é" for _ in range(chance.choice([0, 0, 0, 1, 3])))
        form = chance.random()
        if form < 0.1:
            indexed.append(topic)
        elif form < 0.2:
            own = [chance.choice(["", "b1 b2"]) for _ in range(3)]
            indexed.append_batch(topic, key, chance.choice([None, own]), 3)
        elif form < 0.25:
            count = chance.choice([2, 20, 40])
            indexed.append_messages(topic, unique_of_one_head(indexed.log.max_offset, count))
        else:
            indexed.append(topic, chance.choice([key, key, ""]), keys)


@asynccontextmanager
async def running(indexed: Indexed) -> AsyncIterator[None]:
    task = asyncio.create_task(indexed.index.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def live(indexed: Indexed) -> None:
    await until(lambda: state(indexed) is IndexState.LIVE)


def full(descriptor: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- putting ---


def test_entries_are_found(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path, maxIndexNum=10_000, maxHashSlotNum=100).open()
    some(indexed, 1)
    assert indexed.index.catch_up()
    some(indexed, 1000)
    assert state(indexed) is IndexState.LIVE
    indexed.check()
    assert indexed.find("T", "nobody's") == []
    assert indexed.index.end_offset == indexed.log.max_offset
    stop(indexed)
    check_sound(indexed.files()[0], 100, 10_000)


def test_messages_of_a_batch_are_entered_together(tmp_path: Path) -> None:
    """Also if the file ends within the batch, and without space for it all."""
    indexed = Indexed(tmp_path, maxIndexNum=100).open()
    indexed.append_messages("T", ["U1", "U2"])
    assert indexed.index.catch_up()
    for number in range(40):
        indexed.append_messages("T", unique_of_one_head(number, 30))
        assert indexed.index.catch_up()  # creates the next file if there is none
    indexed.check()
    assert len(indexed.files()) > 10
    stop(indexed)
    for path in indexed.files():
        check_sound(path, 7, 100)


def test_no_file_exists_before_the_first_key(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    indexed.append("T")
    indexed.append_batch("T", "", None, 3)
    assert state(indexed) is IndexState.LIVE
    assert indexed.index.end_offset == 400
    stop(indexed)
    assert not (tmp_path / "index").exists()
    assert state(indexed.open()) is IndexState.LIVE


def test_a_query_is_limited_by_the_settings(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path, maxMsgsNumBatch=3).open()
    for _ in range(5):
        indexed.append("T", "", "key")
    indexed.index.catch_up()
    assert indexed.find("T", "key") == [400, 300, 200]
    assert indexed.find("T", "key", limit=2) == [400, 300]
    found = answer(indexed.index, "key", begin=START_MS + 500)
    assert (found.offsets, found.last_offset, found.last_timestamp_ms) == ([], 400, START_MS + 400)


def test_messages_entered_by_the_catch_up_are_not_put_again(tmp_path: Path) -> None:
    """With SYNC_FLUSH a message is put once it is flushed, but is in the log before."""
    indexed = Indexed(tmp_path).open()
    indexed.append("T", "", "a")
    assert state(indexed) is IndexState.CATCHING_UP
    records = [indexed.log.append("T", "", "a b") for _ in range(3)]
    assert indexed.index.catch_up()
    for record in records:
        indexed.index.put("T", b"", b"a b", record.physical_offset, record.store_timestamp_ms)
    indexed.index.put_batch("T", b"a", places([100, 200, 300]), START_MS)
    indexed.index.put("T", b"a", b"", 300, START_MS)
    batch = BatchKeys([b""] * 3, b"", b"a", has_keys=False)
    indexed.index.put_messages("T", batch, [100, 200, 300], START_MS)
    assert indexed.find("T", "a") == [300, 200, 100, 0]


def test_the_index_can_be_switched_off(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 30)
    indexed.index.catch_up()
    stop(indexed)
    before = dict(indexed.model)
    indexed.keys = {"messageIndexEnable": "false"}
    indexed.open()
    indexed.append("T", "U9")
    indexed.append_batch("T", "U9", None, 3)
    indexed.append_messages("T", ["U9"])
    assert indexed.find("T", "U9") == []
    assert state(indexed) is IndexState.OFF
    stop(indexed)
    indexed.keys = {}
    indexed.open()
    assert indexed.index.catch_up()
    assert len(indexed.model) > len(before)
    indexed.check()


# --- stops ---


@pytest.mark.parametrize("seed", range(5))
def test_clean_stops_and_restarts(tmp_path: Path, seed: int) -> None:
    indexed = Indexed(tmp_path)
    for _ in range(4):
        indexed.open()
        some(indexed, 40, seed)
        indexed.index.catch_up()
        some(indexed, 10, seed)
        indexed.check() if state(indexed) is IndexState.LIVE else None
        stop(indexed)
        indexed.open()
        assert state(indexed) is IndexState.LIVE  # a stop catches up
        indexed.check()
        stop(indexed)
        for path in indexed.files():
            check_sound(path, 7, 20)


@each_row("same_boot", [True, False])
@each_seed(12)
def test_a_kill_after_any_message(tmp_path: Path, seed: int, same_boot: bool) -> None:
    """The directory is copied while messages are put, as a killed process leaves it."""
    chance = random.Random(seed)
    indexed = Indexed(tmp_path / "0", maxIndexNum=chance.choice([20, 75, 500])).open()
    for turn in range(1, 5):
        some(indexed, chance.randrange(1, 50), seed)
        if chance.random() < 0.7:
            indexed.index.catch_up()
        some(indexed, chance.randrange(1, 100), seed)
        flushed_ms = indexed.index.flushed_timestamp_ms
        shutil.copytree(indexed.root, tmp_path / str(turn))
        indexed.index.close()
        indexed.root = tmp_path / str(turn)
        indexed.open(clean=False, same_boot=same_boot, checkpoint_ms=flushed_ms)
        assert indexed.index.catch_up()
        indexed.check()


def test_the_removal_of_files_is_flushed_before_the_progress_file(tmp_path: Path) -> None:
    """Without the entry there, no start notices that a file is missing before another."""
    indexed = Indexed(tmp_path).open()
    some(indexed, 60)
    indexed.index.catch_up()
    stop(indexed)
    flushed: list[str] = []

    def note(call: FlushCall) -> bool:
        flushed.append(Path(call.path).name)
        return False

    with intercepted_flushes(note):
        indexed.open(clean=False, same_boot=False)
    assert indexed.files() == [] and flushed[:2] == ["index", "rmq_index.json.tmp"]


class _CopiedHashes(list[int]):
    """Hashes of a message; the directory is copied after each of its entries."""

    def __init__(self, hashes: Iterable[int], copy: Callable[[], None]) -> None:
        super().__init__(hashes)
        self._copy = copy

    def __iter__(self) -> Iterator[int]:
        for key_hash in super().__iter__():
            yield key_hash
            self._copy()


def test_a_kill_within_a_message(tmp_path: Path) -> None:
    """After each single entry."""
    indexed = Indexed(tmp_path / "0")
    copies: list[Path] = []

    def copy() -> None:
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "0", copies[-1])

    files = IndexFiles(tmp_path / "0/index", 7, 20, lambda: START_MS / 1000)
    for number in range(15):
        record = indexed.log.append("T", unique(number), "a b a")
        indexed.note("T", unique(number), "a b a", record.physical_offset)
        hashes = KeyHasher().all_keys("T", unique(number).encode(), b"a b a")
        files.prepare()
        assert files.put(_CopiedHashes(hashes, copy), record.physical_offset, record.store_timestamp_ms)
    files.close()
    assert len(copies) == 15 * 4
    for root in copies:
        indexed.root = root
        indexed.open(clean=False)
        assert indexed.index.catch_up()
        indexed.check()
        stop(indexed)
        for path in indexed.files():
            check_sound(path, 7, 20)


def test_a_log_that_lost_its_end(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 60)
    indexed.index.catch_up()
    stop(indexed)
    indexed.log.max_offset = end = 3000
    indexed.model = {key: [offset for offset in all_ if offset < end] for key, all_ in indexed.model.items()}
    indexed.open(clean=False)
    assert json.loads((tmp_path / "rmq_index.json").read_bytes())["complete_to"] <= end
    indexed.index.catch_up()
    indexed.check()
    some(indexed, 60, seed=5)  # the same offsets with other messages
    indexed.index.catch_up()
    indexed.check()
    stop(indexed)
    indexed.log.max_offset = 0
    indexed.model = {key: [] for key in indexed.model}
    indexed.open(clean=False)
    assert indexed.files() == [] and state(indexed) is IndexState.LIVE
    indexed.check()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_file_is_rebuilt(tmp_path: Path, lost: int) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 100)
    indexed.index.catch_up()
    stop(indexed)
    indexed.files()[lost].unlink()
    indexed.open()
    assert indexed.index.statistics().files == lost
    assert indexed.index.catch_up()
    indexed.check()


def test_missing_files_of_deleted_messages_are_not_rebuilt(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 100)
    indexed.index.catch_up()
    stop(indexed)
    indexed.log.min_offset = 4000
    indexed.open()
    files = indexed.index.statistics().files
    assert indexed.index.delete_before(4000) > 0
    left = indexed.index.statistics().files
    assert left < files
    indexed.index.close()  # as after a kill: the progress file still names them
    indexed.open(clean=False)
    assert indexed.index.statistics().files == left
    indexed.model = {
        key: [offset for offset in all_ if offset >= 4000] for key, all_ in indexed.model.items()
    }
    indexed.index.catch_up()
    for (topic, key), offsets in indexed.model.items():
        assert [offset for offset in indexed.find(topic, key) if offset >= 4000] == offsets[::-1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"complete_to": "x", "files": []}', b'{"files": 3}'])
def test_an_unreadable_progress_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 100)
    indexed.index.catch_up()
    stop(indexed)
    (tmp_path / "rmq_index.json").write_bytes(content)
    reads = indexed.log.reads
    indexed.open()
    assert indexed.index.catch_up()
    indexed.check()
    assert indexed.log.reads - reads < 30  # from the last file's end on


def test_messages_without_keys_are_not_read_again(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 5)
    indexed.index.catch_up()
    for _ in range(100):
        indexed.append("T")
    stop(indexed)
    reads = indexed.log.reads
    assert state(indexed.open()) is IndexState.LIVE
    indexed.index.close()
    assert state(indexed.open(clean=False)) is IndexState.LIVE
    assert indexed.log.reads == reads


def test_the_index_is_rebuilt_without_files(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 100)
    indexed.index.catch_up()
    indexed.index.delete_all()
    assert indexed.files() == [] and not (tmp_path / "rmq_index.json").exists()
    assert indexed.index.catch_up()
    indexed.check()


def test_changed_sizes_in_the_settings(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 100)
    stop(indexed)
    indexed.keys = {"maxIndexNum": 30, "maxHashSlotNum": 9}
    indexed.open()
    assert indexed.index.catch_up()
    indexed.check()
    stop(indexed)
    for path in indexed.files():
        check_sound(path, 9, 30)


# --- full and broken disks ---


def test_a_full_disk_of_the_index_refuses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 10)
    indexed.index.catch_up()
    monkeypatch.setattr(os, "posix_fallocate", full)
    some(indexed, 60)
    assert state(indexed) is IndexState.CATCHING_UP
    with pytest.raises(OSError, match="No space left"):
        indexed.index.catch_up()
    stop(indexed)
    assert "index not written" in caplog.text and "No space left" in caplog.text
    failed = indexed.index.statistics()
    assert failed.failure is not None and failed.behind_bytes > 0
    indexed.open()  # still full
    some(indexed, 5)
    indexed.index.close()
    indexed.open(clean=False)
    monkeypatch.undo()
    assert indexed.index.catch_up()
    assert indexed.index.statistics().failure is None
    indexed.check()
    stop(indexed)
    for path in indexed.files():
        check_sound(path, 7, 20)


@pytest.mark.parametrize("calls", range(12))
def test_a_disk_that_is_full_at_any_reservation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    indexed = Indexed(tmp_path, maxIndexNum=100).open()
    monkeypatch.setattr("rmq_broker.store.index.index_file.ENTRY_STEP", 16)
    plain = os.posix_fallocate
    left = calls

    def fallocate(descriptor: int, offset: int, length: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            full(descriptor, offset, length)
        plain(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    for _ in range(10):
        some(indexed, 20)
        with suppress(OSError):
            indexed.index.catch_up()
    assert state(indexed) is IndexState.CATCHING_UP
    for (topic, key), offsets in indexed.model.items():
        found = indexed.find(topic, key)
        assert found == [offset for offset in offsets[::-1] if offset < indexed.index.end_offset]
    left = 1000
    assert indexed.index.catch_up()
    indexed.check()


def test_a_progress_file_that_cannot_be_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 50)
    stop(indexed)

    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rmq_broker.store.index.progress_file.replace_file", fail)
    indexed.open()
    some(indexed, 50)
    stop(indexed)
    assert not (tmp_path / "rmq_index.json").exists()
    indexed.open()
    indexed.index.catch_up()
    indexed.check()


class _FailingFlushes:
    """Flushes of index files fail while `are_failing` is set; `tried` are the names of their files."""

    def __init__(self) -> None:
        self.are_failing = False
        self.tried: list[str] = []

    def __call__(self, call: FlushCall) -> bool:
        name = Path(call.path).name
        if self.are_failing and name.isdigit():
            self.tried.append(name)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return False


@pytest.fixture
def flushes() -> Iterator[_FailingFlushes]:
    flushes = _FailingFlushes()
    with intercepted_flushes(flushes):
        yield flushes


def test_a_flush_that_fails_in_a_stop(tmp_path: Path, flushes: _FailingFlushes) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 50)
    indexed.index.catch_up()
    flushes.are_failing = True
    stop(indexed)
    assert indexed.files() == []
    flushes.are_failing = False
    indexed.open()
    assert indexed.index.catch_up()
    indexed.check()


# --- on the event loop ---


@pytest.mark.parametrize("seed", range(3))
async def test_catching_up_while_messages_are_appended(tmp_path: Path, seed: int) -> None:
    indexed = Indexed(tmp_path).open()
    some(indexed, 150, seed)
    async with running(indexed):
        for _ in range(30):
            some(indexed, 5, seed)
            await asyncio.sleep(0)
        await live(indexed)
        some(indexed, 5, seed)
        await live(indexed)
        indexed.check()
    stop(indexed)
    assert state(indexed.open()) is IndexState.LIVE
    indexed.check()


async def test_the_next_file_is_created_in_advance(tmp_path: Path) -> None:
    """The index does not lag until the event loop creates the file."""
    indexed = Indexed(tmp_path).open()
    async with running(indexed):
        indexed.append("T", "", "key")
        await live(indexed)
        for _ in range(200):
            indexed.append("T", "", "key")
            assert state(indexed) is IndexState.LIVE
            await until(lambda: not indexed.index.needs_file)
        indexed.check()
        await until(lambda: indexed.index.flushed_timestamp_ms >= START_MS + 189 * 100)
    stop(indexed)
    assert len(indexed.files()) == 11


async def test_the_index_recovers_when_there_is_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = Indexed(tmp_path).open()
    indexed.index.pace = IndexPace(retry_seconds=0.01)
    async with running(indexed):
        with monkeypatch.context() as patch:
            patch.setattr(os, "posix_fallocate", full)
            some(indexed, 20)
            await until(lambda: indexed.index.failure is not None)
        await live(indexed)
    assert indexed.index.failure is None
    indexed.check()


async def test_a_full_file_whose_flush_failed_is_rebuilt(
    tmp_path: Path, flushes: _FailingFlushes, caplog: pytest.LogCaptureFixture
) -> None:
    indexed = Indexed(tmp_path).open()
    indexed.index.pace = IndexPace(retry_seconds=0.01)
    flushes.are_failing = True
    async with running(indexed):
        some(indexed, 60)
        await until(lambda: flushes.tried)
        flushes.are_failing = False
        await until(lambda: indexed.index.failure is None and state(indexed) is IndexState.LIVE)
    assert f"index files removed files={flushes.tried[0]}" in caplog.text
    indexed.check()


async def test_a_failed_flush_of_a_file_that_cannot_be_removed(
    tmp_path: Path,
    flushes: _FailingFlushes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file is not flushed again: its removal is tried again."""
    indexed = Indexed(tmp_path).open()
    indexed.index.pace = IndexPace(retry_seconds=0.01)
    removals: list[Path] = []
    unlink = Path.unlink

    def fail_removal(path: Path, missing_ok: bool = False) -> None:
        removals.append(path)
        if len(removals) < 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flushes.are_failing = False
        monkeypatch.undo()
        unlink(path, missing_ok=missing_ok)

    async with running(indexed):
        await live(indexed)
        await until(lambda: not indexed.index.needs_file)
        flushes.are_failing = True
        monkeypatch.setattr(Path, "unlink", fail_removal)
        some(indexed, 60)
        await until(lambda: len(removals) == 3)
        await until(lambda: indexed.index.failure is None and state(indexed) is IndexState.LIVE)
    assert len(flushes.tried) == 1
    assert f"index files removed files={flushes.tried[0]}" in caplog.text
    indexed.check()


async def test_the_index_recovers_from_a_failure_of_its_progress_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is cleared although the index did not lag."""
    indexed = Indexed(tmp_path).open()
    indexed.index.pace = IndexPace(retry_seconds=0.01, idle_seconds=0.01, save_every_bytes=1000)
    async with running(indexed):
        await live(indexed)
        with monkeypatch.context() as patch:
            patch.setattr(
                "rmq_broker.store.index.progress_file.replace_file", lambda path, content: full(0, 0, 0)
            )
            for _ in range(20):
                indexed.append("T")
            await until(lambda: indexed.index.failure is not None)
            assert state(indexed) is IndexState.LIVE
        await until(lambda: indexed.index.failure is None)
        assert state(indexed) is IndexState.LIVE


async def test_progress_is_written_at_intervals(tmp_path: Path) -> None:
    indexed = Indexed(tmp_path).open()
    indexed.index.pace = IndexPace(idle_seconds=0.01, save_every_bytes=1000)
    async with running(indexed):
        for _ in range(9):
            indexed.append("T")
        await asyncio.sleep(0.05)
        assert not (tmp_path / "rmq_index.json").exists()
        indexed.append("T")
        await until((tmp_path / "rmq_index.json").exists)
    assert json.loads((tmp_path / "rmq_index.json").read_bytes()) == {"complete_to": 1000, "files": []}


async def test_a_lost_file_with_some_keys_of_a_message(tmp_path: Path) -> None:
    """The entries in the first file do not prove that the others exist."""
    sizes: dict[str, Any] = {"maxHashSlotNum": 20, "maxIndexNum": 11}  # ten entries a file, three a message
    store = new_store(tmp_path, **sizes)
    store.open()
    store.start()
    for number in range(12):
        put(store, properties=b"UNIQ_KEY\x01U%032d\x02KEYS\x01a%d b%d\x02" % (number, number, number))
        await until(lambda: not store.index.statistics().behind_bytes)
    await store.stop()
    second = sorted(path for path in (tmp_path / "index").iterdir() if path.name.isdigit())[1]
    second.unlink()
    store = new_store(tmp_path, **sizes)
    store.open()
    store.start()
    await until(lambda: not store.index.statistics().behind_bytes)
    keys = [key for number in range(12) for key in (f"U{number:032d}", f"a{number}", f"b{number}")]
    lost = [key for key in keys if not store.query_by_key("TopicA", key, 10, 0, 2**62).offsets]
    assert lost == []
    await store.stop()
