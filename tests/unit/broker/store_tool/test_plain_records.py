"""Records that are read in bulk give the same entries as records that are read one by one."""

from __future__ import annotations

import io
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store_tool import log_scan
from rmq_broker.store_tool.expected import Expected, ExpectedEntries
from rmq_broker.store_tool.layout import Record
from rmq_broker.store_tool.log_files import numbered_files
from rmq_broker.store_tool.log_scan import DamagedRange, LogScan
from rmq_broker.store_tool.progress import Progress
from rmq_broker.store_tool.properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmq_remoting.sys_flags import MessageSysFlag
from tests.unit.broker.store_tool.parts import StoreWriter, log_path, overwrite

DELAYS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)
BATCH_TOPICS = frozenset({b"Batches"})


class OneByOne:
    """Collects expected entries, but not in bulk."""

    def __init__(self) -> None:
        self._entries = ExpectedEntries(BATCH_TOPICS, {b"Deleted": 3000}, DELAYS_MS, True)

    def add(self, data: mmap | bytes, record: Record) -> None:
        self._entries.add(data, record)

    def result(self) -> Expected:
        return self._entries.result()


class InBulk(OneByOne):
    """Collects expected entries in bulk; all objects together count the records of both ways."""

    one_by_one = 0
    in_bulk = 0

    def add(self, data: mmap | bytes, record: Record) -> None:
        InBulk.one_by_one += 1
        super().add(data, record)

    def add_plain(self, data: bytes, position: int, until: int, start: int) -> tuple[int, int]:
        behind, records = self._entries.add_plain(data, position, until, start)
        InBulk.in_bulk += records
        return behind, records


def scanned(root: Path, collector: Callable[[], OneByOne], part_bytes: int) -> tuple[Any, ...]:
    """Return everything that a scan finds, in a form that can be compared."""
    scan = LogScan(
        numbered_files(root / "commitlog"),
        collector,
        Progress("test", 0, io.StringIO()),
        jobs=1,
        part_bytes=part_bytes,
    )
    found = [step if isinstance(step, DamagedRange) else (step.records, step.collected) for step in scan]
    return found, scan.end, scan.tail


@pytest.fixture(params=[1024 * 1024, 500, 91, 8])
def window_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Windows that hold many records, some, or less than one."""
    size: int = request.param
    monkeypatch.setattr(log_scan, "_WINDOW_BYTES", size)
    return size


def various_records(writer: StoreWriter) -> None:
    """Write records of every kind that is plain, and of every kind that is not."""
    keys = {"UNIQ_KEY": "0A00000200010000000000000000ABCD"}
    for number in range(4):
        writer.fill(6)
        writer.put("Tagged", number, properties={"TAGS": "a", "KEYS": "x  y é", **keys})
        writer.put("Tagged", number, b"", properties={"UNIQ_KEY": "short", "TAGS": "Ä"})
        writer.put("Crc", 0, checksum=True)
        writer.put("Deleted", 0, properties=keys)
        writer.put("SCHEDULE_TOPIC_XXXX", 1, properties={"DELAY": "2", **keys})
        writer.put("Batches", 0, properties={"INNER_NUM": "1", **keys})
        writer.put("Compressed", 0, sys_flag=MessageSysFlag.COMPRESSED, properties=keys)
        writer.put("V6", 0, born_host=("::1", 4444), properties=keys)
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a,Tagged", "INNER_MULTI_QUEUE_OFFSET": f"{number},{number}"}
        writer.put("Light", 0, properties=light)
        for kind in (
            MessageSysFlag.TRANSACTION_PREPARED,
            MessageSysFlag.TRANSACTION_COMMIT,
            MessageSysFlag.TRANSACTION_ROLLBACK,
        ):
            writer.put("Transactions", 0, sys_flag=kind, properties=keys)
        writer.put("EarlierThanBefore", 0, step_ms=-5000, properties=keys)
        writer.put("x" * 200, 0, properties=keys)


@pytest.mark.parametrize("part_bytes", [100_000, 1000])
def test_the_entries_are_those_of_records_read_one_by_one(
    tmp_path: Path, window_bytes: int, part_bytes: int
) -> None:
    writer = StoreWriter(tmp_path / "store", file_bytes=65536)
    various_records(writer)
    InBulk.one_by_one = InBulk.in_bulk = 0

    assert scanned(writer.root, InBulk, part_bytes) == scanned(writer.root, OneByOne, part_bytes)

    assert InBulk.one_by_one > 0
    if part_bytes == 100_000:
        assert InBulk.in_bulk > len(writer.messages) // 4


def test_every_changed_byte_is_found_as_one_by_one(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    for number in range(5):
        writer.put(body=b"body", properties={"UNIQ_KEY": f"{number:032X}", "TAGS": "t"})
    path, third = log_path(writer.root), writer.messages[2]
    content = path.read_bytes()

    for position in range(third.physical_offset, third.physical_offset + third.store_size):
        for changed in (0, 1, 0x7F, 0x80, 0xFF):
            overwrite(path, position, bytes((changed,)))
            assert scanned(writer.root, InBulk, 100_000) == scanned(writer.root, OneByOne, 100_000), position
        overwrite(path, position, content[position : position + 1])


def test_the_log_is_cut_off_anywhere(tmp_path: Path, window_bytes: int) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(8)
    path = log_path(writer.root)
    content = path.read_bytes()

    for length in range(0, writer.end + 8, 7):
        path.write_bytes(content[:length])
        assert scanned(writer.root, InBulk, 100_000) == scanned(writer.root, OneByOne, 100_000), length
