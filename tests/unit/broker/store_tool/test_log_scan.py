"""Walking a log in parts finds what walking it in one piece finds, also where it is damaged."""

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
from rmq_broker.store_tool.log_scan import Damage, LogWalk
from rmq_broker.store_tool.progress import Progress
from rmq_remoting.message_codec import encode_stored_message
from tests.unit.broker.store_tool.parts import StoreWriter, log_path, overwrite


class Offsets:
    """Collects where records are."""

    def __init__(self) -> None:
        self._offsets: list[int] = []

    def add(self, data: mmap | bytes, record: Record) -> None:
        self._offsets.append(record.physical_offset)

    def result(self) -> list[int]:
        return self._offsets


class Walked:
    """A walk's outcome."""

    def __init__(self, root: Path, part_bytes: int, jobs: int = 1) -> None:
        log = numbered_files(root / "commitlog")
        walk = LogWalk(log, Offsets, Progress("test", 0, io.StringIO()), jobs=jobs, part_bytes=part_bytes)
        self.offsets: list[int] = []
        self.damages: list[tuple[int, int]] = []
        for step in walk:
            if isinstance(step, Damage):
                self.damages.append((step.problem.at, step.until))
            else:
                assert step.records == len(step.collected)
                self.offsets += step.collected
        self.end = walk.end
        self.tail = walk.tail

    def key(self) -> object:
        return self.offsets, self.damages, self.end, self.tail


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(60)
    return writer


def walks(root: Path) -> Iterator[Walked]:
    for part_bytes in (100_000, 4096, 1000, 333, 97):
        yield Walked(root, part_bytes)


def test_all_records_whatever_the_parts(writer: StoreWriter) -> None:
    for walked in walks(writer.root):
        assert walked.offsets == [message.physical_offset for message in writer.messages]
        assert walked.damages == []
        assert walked.end == writer.end
        assert walked.tail is not None
        assert walked.tail.is_empty


def test_several_processes(writer: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_scan, "_ALONE_BYTES", 0)
    assert Walked(writer.root, 1000, jobs=2).key() == Walked(writer.root, 100_000).key()


def test_a_body_that_looks_like_records(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", file_bytes=16384)
    writer.fill(3)
    # What a record at the place would look like that this very body has in the file.
    inner = writer.messages[0]
    for _ in range(4):
        head = 88
        inner.physical_offset = writer.end + head + 500
        writer.put("TopicB", 0, b"." * 500 + encode_stored_message(inner) + b"." * 500)
    inner.physical_offset = 0

    for walked in walks(writer.root):
        assert walked.offsets == [message.physical_offset for message in writer.messages]
        assert walked.damages == []


def test_damage_is_passed_over(writer: StoreWriter) -> None:
    bad = writer.messages[20]
    path = log_path(writer.root, bad.physical_offset)
    overwrite(path, bad.physical_offset % 4096 + 4, b"\0\0\0\0")

    for walked in walks(writer.root):
        assert walked.offsets == [m.physical_offset for m in writer.messages if m is not bad]
        assert walked.damages == [(bad.physical_offset, bad.physical_offset + bad.store_size)]
        assert walked.end == writer.end


def test_damage_up_to_the_end_of_a_file(writer: StoreWriter) -> None:
    first_file = [m for m in writer.messages if m.physical_offset < 4096]
    bad = first_file[5]
    overwrite(log_path(writer.root), bad.physical_offset, bytes(4096 - bad.physical_offset))

    for walked in walks(writer.root):
        assert walked.damages == [(bad.physical_offset, 4096)]
        assert len(walked.offsets) == len(writer.messages) - len(first_file) + 5


def test_a_torn_end(writer: StoreWriter) -> None:
    last = writer.messages[-1]
    path = log_path(writer.root, last.physical_offset)
    overwrite(path, last.physical_offset % 4096 + last.store_size - 200, bytes(200))

    for walked in walks(writer.root):
        assert walked.end == last.physical_offset
        assert walked.tail is not None
        assert (walked.tail.at, walked.tail.is_empty) == (last.physical_offset, False)
        assert walked.damages == []


def test_a_file_is_missing(writer: StoreWriter) -> None:
    log_path(writer.root, 4096).unlink()

    for walked in walks(writer.root):
        assert walked.offsets == [
            m.physical_offset for m in writer.messages if m.physical_offset // 4096 != 1
        ]


def test_a_full_last_file_and_one_made_ahead(writer: StoreWriter) -> None:
    while writer.end % 4096 == 0 or 4096 - writer.end % 4096 > 400:
        writer.fill(1)
    last = writer.messages[-1]
    writer.put("TopicB", 0, b"x" * 500)  # rolls
    new = writer.messages.pop()
    log_path(writer.root, new.physical_offset).write_bytes(bytes(4096))

    for walked in walks(writer.root):
        assert walked.offsets[-1] == last.physical_offset
        assert walked.end == new.physical_offset
        assert walked.tail is not None
        assert walked.tail.is_empty


@pytest.mark.parametrize("part_bytes", [4096, 1000])
def test_a_broker_writes_meanwhile(
    writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    """The first part is read before the rest of the log has been written."""
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
    walked = Walked(writer.root, part_bytes)

    assert walked.offsets == [message.physical_offset for message in writer.messages]
    assert (walked.damages, walked.end) == ([], writer.end)
    assert calls[0].records < 10


def test_a_file_vanishes(writer: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    log = numbered_files(writer.root / "commitlog")
    log_path(writer.root).unlink()
    walk = LogWalk(log, Offsets, Progress("test", 0, io.StringIO()), jobs=1)

    steps = list(walk)

    assert isinstance(steps[0], Damage)
    assert (steps[0].problem.kind, steps[0].until) == ("log.vanished", 4096)


def test_no_log_at_all(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    walked = Walked(tmp_path, 1000)
    assert walked.key() == ([], [], 0, None)
