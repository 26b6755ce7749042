"""A scan of a log in parts has the same result as a scan in one piece, also with damage."""

from __future__ import annotations

import io
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store_tool import log_scan
from rmq_broker.store_tool.layout import Record
from rmq_broker.store_tool.log_files import numbered_files
from rmq_broker.store_tool.log_scan import DamagedRange, LogScan
from rmq_broker.store_tool.progress import Progress
from rmq_remoting.message_codec import encode_stored_message
from tests.unit.broker.store_tool.parts import StoreWriter, log_path, overwrite


class Offsets:
    """Collects the offsets of records."""

    def __init__(self) -> None:
        self._offsets: list[int] = []

    def add(self, data: mmap | bytes, record: Record) -> None:
        self._offsets.append(record.physical_offset)

    def result(self) -> list[int]:
        return self._offsets


class Scanned:
    """Result of a scan."""

    def __init__(self, root: Path, part_bytes: int, jobs: int = 1) -> None:
        log = numbered_files(root / "commitlog")
        scan = LogScan(log, Offsets, Progress("test", 0, io.StringIO()), jobs=jobs, part_bytes=part_bytes)
        self.offsets: list[int] = []
        self.damages: list[tuple[int, int]] = []
        for step in scan:
            if isinstance(step, DamagedRange):
                self.damages.append((step.problem.at, step.until))
            else:
                assert step.records == len(step.collected)
                self.offsets += step.collected
        self.end = scan.end
        self.tail = scan.tail

    def key(self) -> object:
        return self.offsets, self.damages, self.end, self.tail


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(60)
    return writer


def scans(root: Path) -> Iterator[Scanned]:
    for part_bytes in (100_000, 4096, 1000, 333, 97):
        yield Scanned(root, part_bytes)


def test_all_records_whatever_the_parts(writer: StoreWriter) -> None:
    for scanned in scans(writer.root):
        assert scanned.offsets == [message.physical_offset for message in writer.messages]
        assert scanned.damages == []
        assert scanned.end == writer.end
        assert scanned.tail is not None
        assert scanned.tail.is_empty


# Packages that other tests import may have started threads.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_several_processes(writer: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scan, "_SINGLE_PROCESS_BYTES", 0)
    assert Scanned(writer.root, 1000, jobs=2).key() == Scanned(writer.root, 100_000).key()


def test_a_body_that_looks_like_records(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", file_bytes=16384)
    writer.fill(3)
    # The body contains a record whose own offset is the position of the body in the file.
    inner = writer.messages[0]
    for _ in range(4):
        head = 88
        inner.physical_offset = writer.end + head + 500
        writer.put("TopicB", 0, b"." * 500 + encode_stored_message(inner) + b"." * 500)
    inner.physical_offset = 0

    for scanned in scans(writer.root):
        assert scanned.offsets == [message.physical_offset for message in writer.messages]
        assert scanned.damages == []


def test_damaged_ranges_are_skipped(writer: StoreWriter) -> None:
    bad = writer.messages[20]
    path = log_path(writer.root, bad.physical_offset)
    overwrite(path, bad.physical_offset % 4096 + 4, b"\0\0\0\0")

    for scanned in scans(writer.root):
        assert scanned.offsets == [m.physical_offset for m in writer.messages if m is not bad]
        assert scanned.damages == [(bad.physical_offset, bad.physical_offset + bad.store_size)]
        assert scanned.end == writer.end


def test_damage_up_to_the_end_of_a_file(writer: StoreWriter) -> None:
    first_file = [m for m in writer.messages if m.physical_offset < 4096]
    bad = first_file[5]
    overwrite(log_path(writer.root), bad.physical_offset, bytes(4096 - bad.physical_offset))

    for scanned in scans(writer.root):
        assert scanned.damages == [(bad.physical_offset, 4096)]
        assert len(scanned.offsets) == len(writer.messages) - len(first_file) + 5


def test_a_torn_end(writer: StoreWriter) -> None:
    last = writer.messages[-1]
    path = log_path(writer.root, last.physical_offset)
    overwrite(path, last.physical_offset % 4096 + last.store_size - 200, bytes(200))

    for scanned in scans(writer.root):
        assert scanned.end == last.physical_offset
        assert scanned.tail is not None
        assert (scanned.tail.at, scanned.tail.is_empty) == (last.physical_offset, False)
        assert scanned.damages == []


def test_a_file_is_missing(writer: StoreWriter) -> None:
    log_path(writer.root, 4096).unlink()

    for scanned in scans(writer.root):
        assert scanned.offsets == [
            m.physical_offset for m in writer.messages if m.physical_offset // 4096 != 1
        ]


def test_a_full_last_file_and_one_created_ahead(writer: StoreWriter) -> None:
    while writer.end % 4096 == 0 or 4096 - writer.end % 4096 > 400:
        writer.fill(1)
    last = writer.messages[-1]
    writer.put("TopicB", 0, b"x" * 500)  # rolls
    new = writer.messages.pop()
    log_path(writer.root, new.physical_offset).write_bytes(bytes(4096))

    for scanned in scans(writer.root):
        assert scanned.offsets[-1] == last.physical_offset
        assert scanned.end == new.physical_offset
        assert scanned.tail is not None
        assert scanned.tail.is_empty


@pytest.mark.parametrize("part_bytes", [4096, 1000])
def test_a_broker_writes_during_the_scan(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """The first part is read before the rest of the log is written."""
    contents = {path: path.read_bytes() for path in (writer.root / "commitlog").iterdir()}
    for path in contents:
        overwrite(path, 700 if int(path.name) == 0 else 0, bytes(4096 - (700 if int(path.name) == 0 else 0)))
    scan = log_scan._scan
    calls: list[Any] = []

    def scan_then_write(*arguments: Any) -> Any:
        part = scan(*arguments)
        if not calls:
            for path, content in contents.items():
                path.write_bytes(content)
        calls.append(part)
        return part

    monkeypatch.setattr(log_scan, "_scan", scan_then_write)
    scanned = Scanned(writer.root, part_bytes)

    assert scanned.offsets == [message.physical_offset for message in writer.messages]
    assert (scanned.damages, scanned.end) == ([], writer.end)
    assert calls[0].records < 10


def test_a_file_vanishes(writer: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    log = numbered_files(writer.root / "commitlog")
    log_path(writer.root).unlink()
    scan = LogScan(log, Offsets, Progress("test", 0, io.StringIO()), jobs=1)

    steps = list(scan)

    assert isinstance(steps[0], DamagedRange)
    assert (steps[0].problem.kind, steps[0].until) == ("log.vanished", 4096)


def test_no_log_at_all(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    scanned = Scanned(tmp_path, 1000)
    assert scanned.key() == ([], [], 0, None)
