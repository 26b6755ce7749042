"""Power cuts: each unflushed page of each file may or may not have reached the disk."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_broker.store.log.mapped_file import PAGE_BYTES
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.checkpoint import Checkpoint
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.power_loss import SyncedMemory
from tests.support.power_loss import cut_power as cut_only_flushed
from tests.support.rows import each_seed
from tests.support.stores import (
    Clock,
    bodies,
    check_agreement,
    content_of,
    copy_of,
    machine_crashed,
    opened,
    overwrite,
    put,
    put_batch,
    records_on_disk,
)

LOG_FILE_BYTES = 128 * 1024
QUEUE_FILE_BYTES = 600 * 20
_SECTOR_BYTES = 512


def write(store: MessageStore, chance: random.Random, messages: int) -> None:
    """Messages and batches of all sizes, into few queues and many."""
    for _ in range(messages):
        topic = f"Topic{chance.randrange(3)}"
        size = chance.choice((0, 20, 100, 300, 5000))
        if chance.random() < 0.2:
            put_batch(store, [chance.randbytes(size // 3) for _ in range(chance.randrange(1, 12))], topic)
        else:
            properties = b"name\x01" + b"v" * chance.choice((3, 50, 6000)) + b"\x02"
            put(store, chance.randbytes(size), topic, chance.randrange(2), properties=properties)


def cut_power(root: Path, flushed: dict[str, bytes], chance: random.Random) -> None:
    """Change a directory as a power cut may: each page is as flushed, or as written.

    In half of the power cuts pages are torn: each sector of a page is as flushed, or as written.
    """
    unit = chance.choice((_SECTOR_BYTES, PAGE_BYTES))
    share_written = chance.choice((0.05, 0.5, 0.95))
    for folder in ("commitlog", "consumequeue"):
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file():
                continue
            written = path.read_bytes()
            before = flushed.get(str(path.relative_to(root)))
            if before is None and chance.random() < 0.2 and folder == "consumequeue":
                path.unlink()  # without its name, too
                continue
            pages = bytearray(before or bytes(len(written)))
            for at in range(0, len(written), unit):
                if chance.random() < share_written:
                    pages[at : at + unit] = written[at : at + unit]
            path.write_bytes(pages)
    (root / "checkpoint").write_bytes(flushed["checkpoint"])
    machine_crashed(root)


def appended(root: Path) -> list[bytes]:
    return [stored.raw for stored in records_on_disk(root)]


@each_seed(25)
def test_flushed_messages_stay_and_the_rest_is_a_prefix(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = Clock(step_ms=chance.choice((1, 40, 1000)))
    root = tmp_path / "store"

    def open_again() -> MessageStore:
        return opened(root, log_file_bytes=LOG_FILE_BYTES, queue_file_bytes=QUEUE_FILE_BYTES, clock=clock)

    for _ in range(3):
        store = open_again()
        write(store, chance, chance.randrange(1, 120))
        store.flush()
        flushed = content_of(root)
        certain = appended(root)
        write(store, chance, chance.randrange(1, 120))
        store.close()
        everything = appended(root)
        cut_power(root, flushed, chance)

        open_again().close()
        found = appended(root)
        assert found == everything[: len(found)]
        assert len(found) >= len(certain)
        assert check_agreement(root) == len(found)

        once_more = content_of(root)
        machine_crashed(root)
        open_again().close()
        once_more["rmq_boot_id"] = (root / "rmq_boot_id").read_bytes()
        assert content_of(root) == once_more


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_during_recovery(tmp_path: Path, seed: int) -> None:
    """Recovery changes files, too, and none of that was flushed."""
    chance = random.Random(100 + seed)
    clock = Clock(step_ms=40)
    root = tmp_path / "store"

    def open_again() -> MessageStore:
        return opened(root, log_file_bytes=LOG_FILE_BYTES, queue_file_bytes=QUEUE_FILE_BYTES, clock=clock)

    store = open_again()
    write(store, chance, 80)
    store.flush()
    flushed = content_of(root)
    certain = appended(root)
    write(store, chance, 80)
    store.close()
    everything = appended(root)
    cut_power(root, flushed, chance)
    for _ in range(3):
        on_disk = content_of(root)
        open_again().close()
        cut_power(root, on_disk, chance)
    shutil.copytree(root, tmp_path / "before")
    open_again().close()
    found = appended(root)
    assert found == everything[: len(found)]
    assert len(found) >= len(certain)
    assert check_agreement(root) == len(found)


# --- flushed data alone ---


class Watched:
    """A store on a disk that keeps flushed data alone."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "store"
        self.memory = SyncedMemory(self.root, home / "memory", strict_names=True)
        self.failing = ""  # flushes of paths with this text fail
        self.store = self.open()

    def open(self) -> MessageStore:
        self.store = opened(self.root, log_file_bytes=8192, queue_file_bytes=QUEUE_FILE_BYTES)
        return self.store

    def flushed(self, call: FlushCall) -> bool:
        if self.failing and self.failing in call.path:
            self.memory.lost(call)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.memory.flushed(call)
        return False

    def killed_before_cleanup(self) -> MessageStore:
        """Continue in the directory after a kill; nothing is written before the next start."""
        self.store.close()
        return self.open()

    def killed(self) -> MessageStore:
        """Continue in the directory in its present state."""
        before = copy_of(self.root, self.home / "before")
        self.store.close()
        for path in before.rglob("*"):
            if path.is_file():
                overwrite(self.root / path.relative_to(before), 0, path.read_bytes())
        for path in self.root.rglob("*"):
            if path.is_file() and not (before / path.relative_to(self.root)).exists():
                path.unlink()
        return self.open()

    def power_lost(self) -> MessageStore:
        left = self.home / "left"
        cut_only_flushed(self.root, self.home / "memory", left, random.Random(1))
        self.store.close()
        shutil.rmtree(self.root)
        left.rename(self.root)
        machine_crashed(self.root)
        return self.open()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    machines: list[Watched] = []
    with intercepted_flushes(
        lambda call: machines[0].flushed(call) if machines else False,
        on_write=lambda call: machines[0].memory.written(call) if machines else None,
    ):
        machine = Watched(tmp_path)
        machines.append(machine)
        yield machine
    machine.store.close()


def test_exactly_the_flushed_messages_survive(watched: Watched) -> None:
    put(watched.store, b"flushed")
    watched.store.flush()
    put(watched.store, b"not flushed")
    assert bodies(watched.power_lost()) == [b"flushed"]


def test_a_new_file_that_was_not_flushed_before_a_kill_is_flushed_after_it(watched: Watched) -> None:
    """And its name, too: the next process does not know that the file is new."""
    put(watched.store, b"flushed")
    store = watched.killed()
    store.flush()
    assert bodies(watched.power_lost()) == [b"flushed"]


@pytest.mark.parametrize("failing", ["/commitlog/", "/consumequeue/"])
def test_messages_of_a_failed_flush_survive_a_restart_and_a_power_cut(watched: Watched, failing: str) -> None:
    """Linux keeps the pages of a failed flush in memory as if they were on the disk."""
    for number in range(300):  # more than a page of entries
        put(watched.store, b"%d" % number)
    watched.store.flush()
    for number in range(300, 700):
        put(watched.store, b"%d" % number)
    watched.failing = failing
    with pytest.raises(OSError, match="Input/output error"):
        watched.store.flush()
    watched.failing = ""
    store = watched.killed_before_cleanup()
    store.flush()
    store = watched.power_lost()
    assert bodies(store) == [b"%d" % number for number in range(700)]
    store.close()
    assert check_agreement(watched.root) == 700
    watched.open()


def test_with_sync_flush_a_restart_shows_only_flushed_messages(tmp_path: Path) -> None:
    flushes: list[str] = []

    def noted(call: FlushCall) -> bool:
        flushes.append(call.path)
        return True

    with intercepted_flushes(noted):
        store = opened(tmp_path, flushDiskType="SYNC_FLUSH")
        put(store, b"stored, not flushed")
        store.close()
        flushes.clear()
        store = opened(tmp_path, flushDiskType="SYNC_FLUSH")
        assert any("/commitlog/" in path for path in flushes)
        assert bodies(store) == [b"stored, not flushed"]
        store.close()


def test_offsets_of_deleted_messages_are_not_reused(watched: Watched) -> None:
    """A log file is deleted once its messages' entries are flushed: nothing else holds their offsets then."""
    store = watched.store
    put(store, bytes(7900), "Quiet")
    put(store, bytes(1800), "Busy")
    store.flush_log()
    if store.commit_log.oldest_file is not None:
        store.commit_log.oldest_file.unlink()
        store.commit_log.remove_oldest()
    assert watched.killed().max_offset("Quiet", 0) == 1


def test_a_topic_deleted_behind_the_end_that_a_power_cut_leaves(watched: Watched) -> None:
    """The topic's new messages are at log offsets of lost ones: they do not count as deleted."""
    put(watched.store, b"flushed", "Other")
    watched.store.flush()
    put(watched.store, bytes(3000), "TopicA")
    watched.store.delete_topics(["TopicA"]).result()
    assert watched.power_lost().max_offset("TopicA", 0) == 0
    put(watched.store, b"new")
    watched.store.flush_log()
    assert bodies(watched.killed()) == [b"new"]


# --- the index (more in `index/test_power_cut.py`) ---


def test_a_power_cut_while_an_index_is_rebuilt_that_an_operator_removed(tmp_path: Path) -> None:
    """Its new files end at the times of the removed ones, which the checkpoint knew as flushed."""

    def open_again() -> MessageStore:
        store = opened(tmp_path, maxIndexNum=450)
        assert store.index.catch_up()
        return store

    store = open_again()
    for number in range(1000):
        put(store, b"", properties=b"KEYS\x01k%d\x02" % number)
    store.index.catch_up()
    store.index.flush()
    store.flush()
    store.close()
    assert Checkpoint.load(tmp_path / "checkpoint").index_timestamp_ms > 0
    shutil.rmtree(tmp_path / "index")
    open_again().close()
    for path in (tmp_path / "index").iterdir():
        overwrite(path, PAGE_BYTES, bytes(2 * PAGE_BYTES))  # not header, first and last entries
    machine_crashed(tmp_path)
    store = open_again()
    found = [len(store.query_by_key("TopicA", f"k{number}", 9, 0, 1 << 60).offsets) for number in range(1000)]
    assert found == [1] * 1000
    store.close()
