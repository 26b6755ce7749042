"""Tests of the test tools: the ledger finds each kind of loss, a power cut takes unflushed data."""

from __future__ import annotations

import mmap
import os
import random
from pathlib import Path

import pytest

from rmq_remoting.message import MessageExt
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.ledger import Ledger, Queue
from tests.support.power_loss import SyncedMemory, cut_power

QUEUE: Queue = ("T", 0)


def message(offset: int, body: bytes, place: int | None = None) -> MessageExt:
    return MessageExt(
        topic="T",
        body=body,
        queue_id=0,
        queue_offset=offset,
        physical_offset=100 * offset if place is None else place,
        store_host=("127.0.0.1", 10911),
    )


def kept(*bodies: bytes) -> list[MessageExt]:
    return [message(offset, body) for offset, body in enumerate(bodies)]


@pytest.fixture
def ledger() -> Ledger:
    """A ledger: `a` and `b` are acknowledged, `c` is refused, `d` and `e` are undecided."""
    ledger = Ledger()
    bodies = [b"a", b"b", b"c", b"d", b"e"]
    ledger.sending(bodies)
    ledger.acknowledged(QUEUE, 0, [each.offset_msg_id for each in kept(b"a", b"b")], bodies[:2])
    ledger.refused([b"c"])
    ledger.unknown([b"d"])
    return ledger


def test_undecided_messages_may_be_stored_or_not(ledger: Ledger) -> None:
    verdict = ledger.check({QUEUE: kept(b"a", b"b", b"d")})
    assert (verdict.stored, verdict.undecided_found, verdict.undecided_gone) == (3, 1, 1)
    with pytest.raises(AssertionError, match="lost"):  # a found message must stay
        ledger.check({QUEUE: kept(b"a", b"b")})
    with pytest.raises(AssertionError, match="refused, or was gone before"):
        ledger.check({QUEUE: kept(b"a", b"b", b"d", b"e")})


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (kept(b"a"), "lost: .* offset 1, acknowledged"),
        (kept(b"b", b"a"), "is another message"),
        (kept(b"a", b"b", b"c"), "refused"),
        (kept(b"a", b"b", b"x"), "never sent"),
        (kept(b"a", b"b", b"a"), "stored twice"),
        ([message(0, b"a"), message(0, b"b")], "gaps or duplicates"),
        ([message(0, b"a"), message(2, b"b")], "gaps or duplicates"),
        ([message(0, b"a"), message(1, b"b", place=7)], "elsewhere in the log"),
    ],
)
def test_violations_are_found(ledger: Ledger, stored: list[MessageExt], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        ledger.check({QUEUE: stored})


def test_an_offset_used_twice_is_found(ledger: Ledger) -> None:
    with pytest.raises(AssertionError, match="used twice"):
        ledger.acknowledged(QUEUE, 1, ["id"], [b"d"])


def test_messages_seen_by_a_consumer_must_stay(ledger: Ledger) -> None:
    ledger.saw(message(2, b"e"))
    with pytest.raises(AssertionError, match="saw two messages"):
        ledger.saw(message(2, b"d"))
    with pytest.raises(AssertionError, match="a consumer saw another message"):
        ledger.saw(message(1, b"e"))
    with pytest.raises(AssertionError, match="seen by a consumer, is another message"):
        ledger.check({QUEUE: kept(b"a", b"b", b"d")})


def test_losses_that_are_allowed_are_dropped(ledger: Ledger) -> None:
    ledger.saw(message(2, b"d"))
    assert ledger.forget_lost({QUEUE: kept(b"a")}) == 1
    ledger.check({QUEUE: kept(b"a")})
    with pytest.raises(AssertionError, match="gone before"):
        ledger.check({QUEUE: kept(b"a", b"b")})


def test_deleted_messages_may_be_missing(ledger: Ledger) -> None:
    ledger.check({QUEUE: [message(1, b"b")]})
    ledger.forget_cleaned({QUEUE: 1})
    with pytest.raises(AssertionError, match="lost"):
        ledger.check({QUEUE: []})


# --- power cuts ---


class Disk:
    """A directory whose flushes are recorded; `after_cut` makes the directory that a power cut leaves."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._folder = folder
        self._cuts = 0
        self.memory = SyncedMemory(self.root, folder / "memory", strict_names=True)

    def handle(self, call: FlushCall) -> bool:
        self.memory.flushed(call)
        return False

    def after_cut(self, share_kept: float = 0.0) -> Path:
        self._cuts += 1
        left = self._folder / f"left{self._cuts}"
        cut_power(self.root, self._folder / "memory", left, random.Random(self._cuts), share_kept)
        return left

    def flush_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_mapped_writes_without_a_flush_are_lost(disk: Disk) -> None:
    with intercepted_flushes(disk.handle, disk.memory.pin):
        path = disk.root / "log"
        with path.open("w+b") as file:
            os.ftruncate(file.fileno(), 3 * mmap.PAGESIZE)
            content = mmap.mmap(file.fileno(), 3 * mmap.PAGESIZE)
            os.fsync(file.fileno())
        assert not (disk.after_cut() / "log").exists()  # its name was not flushed
        disk.flush_folder(disk.root)
        content[:2] = b"ab"
        content[2 * mmap.PAGESIZE :] = b"c" * mmap.PAGESIZE
        assert not any((disk.after_cut() / "log").read_bytes())
        content.flush(0, mmap.PAGESIZE)
        content[0:1] = b"x"
        assert (disk.after_cut() / "log").read_bytes() == b"ab" + bytes(3 * mmap.PAGESIZE - 2)
        assert (disk.after_cut(1.0) / "log").read_bytes() == path.read_bytes()
        content.close()


def test_a_files_flush_covers_its_name_unless_names_are_strict(tmp_path: Path) -> None:
    for strict in (False, True):
        folder = tmp_path / str(strict)
        memory = SyncedMemory(folder / "root", folder / "memory", strict_names=strict)

        def handle(call: FlushCall, memory: SyncedMemory = memory) -> bool:
            memory.flushed(call)
            return False

        path = folder / "root" / "a" / "b"
        path.parent.mkdir()
        with intercepted_flushes(handle), path.open("w") as file:
            file.write("c")
            file.flush()
            os.fsync(file.fileno())
        cut_power(folder / "root", folder / "memory", folder / "left", random.Random(1))
        assert (folder / "left" / "a").exists() is not strict
        assert strict or (folder / "left" / "a" / "b").read_text() == "c"


def test_a_rename_is_durable_after_its_folders_flush(disk: Disk) -> None:
    with intercepted_flushes(disk.handle):
        for text in ("old", "new"):
            temporary = disk.root / "file.tmp"
            with temporary.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(disk.root / "file")
            if text == "old":
                disk.flush_folder(disk.root)
        assert (disk.after_cut() / "file").read_text() == "old"
        disk.flush_folder(disk.root)
        (disk.root / "file").unlink()
        left = disk.after_cut()
        assert (left / "file").read_text() == "new"
        assert [path.name for path in left.iterdir()] == ["file"]
        disk.flush_folder(disk.root)
        assert not (disk.after_cut() / "file").exists()


def test_a_file_without_a_flush_is_empty(disk: Disk) -> None:
    with intercepted_flushes(disk.handle):
        (disk.root / "folder").mkdir()
        (disk.root / "folder" / "file").write_text("content")
        disk.flush_folder(disk.root / "folder")
        assert not (disk.after_cut() / "folder").exists()
        disk.flush_folder(disk.root)
        assert not (disk.after_cut() / "folder" / "file").read_bytes().strip(b"\0")


def test_existing_files_count_as_flushed(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "b").write_text("c")
    assert (Disk(tmp_path).after_cut() / "a" / "b").read_text() == "c"
