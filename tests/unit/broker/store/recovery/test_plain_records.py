"""Queues and index that are rebuilt from plain records in bulk are those that are rebuilt one by one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmq_broker.store.index.live_entries import LiveEntries
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.dispatcher import Dispatcher
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.broker_settings import broker_settings
from tests.unit.broker.store_tool.parts import StoreWriter, log_path, overwrite

LOG_FILE_BYTES = 64 * 1024
UNIQUE_KEY = "0A00000200010000000000000000%04X"


def fill(writer: StoreWriter) -> None:
    """Write plain records, and of every kind that is not plain."""
    for number in range(120):
        keys = {"UNIQ_KEY": UNIQUE_KEY % number}
        writer.put(
            f"Topic{number % 3}", number % 2, b"x" * number, properties={"TAGS": f"T{number % 5}", **keys}
        )
        if number % 4 == 0:
            writer.put("Keys", 0, properties={"KEYS": f"a b{number} ä", **keys})
            writer.put("NoKeys", 0, b"", step_ms=-900)
            writer.put("Crc", 0, checksum=True, properties=keys)
        if number % 16 == 0:
            writer.put("V6", 0, born_host=("::1", 4444), properties=keys)
            writer.put("SCHEDULE_TOPIC_XXXX", 1, properties={"DELAY": "2", **keys})
            writer.put("x" * 200, 0, properties=keys)
            for kind in (
                MessageSysFlag.TRANSACTION_PREPARED,
                MessageSysFlag.TRANSACTION_COMMIT,
                MessageSysFlag.TRANSACTION_ROLLBACK,
            ):
                writer.put("Transactions", 0, sys_flag=kind, properties=keys)


def rebuilt(root: Path) -> dict[str, bytes]:
    """Rebuild queues and index, and return the content of their files; index files by their number."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
    for path in [*root.glob("rmq_*"), root / "abort", root / "checkpoint"]:
        path.unlink(missing_ok=True)
    settings = broker_settings(
        storePathRootDir=str(root),
        mappedFileSizeCommitLog=LOG_FILE_BYTES,
        mappedFileSizeConsumeQueue=2000,
        maxHashSlotNum=50,
        maxIndexNum=100,
    )
    store = MessageStore(settings, settings, settings)
    store.open()
    assert store.index.catch_up()
    store.index.flush()
    store.close()
    queues = sorted((root / "consumequeue").rglob("?" * 20))
    index = sorted((root / "index").iterdir())
    contents = {str(path.relative_to(root)): path.read_bytes() for path in queues}
    return contents | {f"index {number}": path.read_bytes() for number, path in enumerate(index)}


def compare(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Compare both ways; return how many records and messages were taken in bulk."""
    taken = [0, 0]
    take, enter = Dispatcher.dispatch_plain, LiveEntries.enter_plain

    def counted_take(
        self: Dispatcher, data: bytes, begin: int, offset: int, *, check_crc: bool
    ) -> tuple[int, int]:
        behind, records = take(self, data, begin, offset, check_crc=check_crc)
        taken[0] += records
        return behind, records

    def counted_enter(self: LiveEntries, data: bytes, begin: int, offset: int) -> int:
        behind = enter(self, data, begin, offset)
        taken[1] += behind - begin
        return behind

    monkeypatch.setattr(Dispatcher, "dispatch_plain", counted_take)
    monkeypatch.setattr(LiveEntries, "enter_plain", counted_enter)
    in_bulk = rebuilt(root)
    monkeypatch.setattr(
        Dispatcher, "dispatch_plain", lambda self, data, begin, offset, *, check_crc: (begin, 0)
    )
    monkeypatch.setattr(LiveEntries, "enter_plain", lambda self, data, begin, offset: begin)
    assert in_bulk == rebuilt(root)
    return taken[0], taken[1]


def test_queues_and_index_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = StoreWriter(tmp_path, file_bytes=LOG_FILE_BYTES)
    fill(writer)

    records, index_bytes = compare(tmp_path, monkeypatch)

    assert records > len(writer.messages) // 4
    assert index_bytes > writer.end // 4


@pytest.mark.parametrize("number", (20, 21))
def test_damage_is_found_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    writer = StoreWriter(tmp_path, file_bytes=LOG_FILE_BYTES)
    fill(writer)
    damaged = writer.messages[number]
    path = log_path(tmp_path, damaged.physical_offset, LOG_FILE_BYTES)
    content = path.read_bytes()
    begin = damaged.physical_offset % LOG_FILE_BYTES

    for position in range(begin, begin + damaged.store_size, 9):
        overwrite(path, position, bytes((content[position] ^ 0x41,)))
        compare(tmp_path, monkeypatch)
        overwrite(path, position, content[position : position + 1])
        monkeypatch.undo()
