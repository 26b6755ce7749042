"""Index files that Apache RocketMQ 5.3.3 wrote, and its results of look-ups in them."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.index.index_file import IndexFile
from rmq_broker.store.index.message_index import MessageIndex
from rmq_broker.store.index.state import IndexState
from rmq_broker.store.log.record import RecordSummary
from rmq_broker.store.log.record_walk import RecordWalk
from rmq_broker.store.recovery.checkpoint import Checkpoint
from tests.support.broker_settings import broker_settings
from tests.support.golden import json_file
from tests.support.golden_store import NAMES, SETTINGS, look_ups, unpack
from tests.unit.broker.store.index.parts import EVER, check_sound


class FilesLog:
    """The log files of a directory, read as recovery reads them."""

    def __init__(self, root: Path) -> None:
        self.min_offset = 0
        self.records: list[RecordSummary] = []
        self._contents: dict[int, bytes] = {}
        for path in sorted((root / "commitlog").iterdir()):
            with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as data:
                self.records += RecordWalk(data, 0, int(path.name))
                self._contents[int(path.name)] = data[:]
        self.max_offset = self.records[-1].physical_offset + self.records[-1].size

    def records_from(self, offset: int) -> Iterator[RecordSummary]:
        return (record for record in self.records if record.physical_offset >= offset)

    def chunk(self, offset: int) -> bytes:
        start = max(start for start in self._contents if start <= offset)
        return self._contents[start][offset - start : self.max_offset - start]

    def warm(self, offset: int, size: int) -> None:
        pass


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories without the timer wheel, which the index does not use."""
    roots = {}
    for name in NAMES:
        root = unpack(name, tmp_path_factory.mktemp(name))
        shutil.rmtree(root / "timerwheel", ignore_errors=True)
        roots[name] = root
    return roots


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, originals: dict[str, Path], tmp_path: Path) -> tuple[str, Path]:
    name = request.param
    root = tmp_path / name
    for part in ("commitlog", "index"):
        shutil.copytree(originals[name] / part, root / part)
    shutil.copy(originals[name] / "checkpoint", root)
    return name, root


def index_of(root: Path) -> MessageIndex:
    sizes = {key: SETTINGS[key] for key in ("maxHashSlotNum", "maxIndexNum")}
    settings = broker_settings(storePathRootDir=str(root), **sizes)
    return MessageIndex(settings, settings, FilesLog(root))


def summary(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json_file(f"store/{name}.summary.json")
    return found


def open_golden(name: str, root: Path, *, same_boot: bool = False) -> MessageIndex:
    index = index_of(root)
    index.open(
        after_clean_stop=name == "clean",
        same_boot=same_boot,
        checkpoint_index_ms=Checkpoint.load(root / "checkpoint").index_timestamp_ms,
    )
    return index


def check_look_ups(name: str, index: MessageIndex) -> None:
    rows = look_ups(name)
    for row in rows:
        asked = (row.get("max", 64), row.get("begin", 0), row.get("end", EVER))
        assert index.query(row["topic"], row["key"], *asked).offsets == row["phyOffsets"], row
    assert len(rows) == {"clean": 628, "killed": 97, "damaged": 97}[name]


def test_files_of_apache_are_read(originals: dict[str, Path]) -> None:
    for row in summary("clean")["index_files"]:
        file = IndexFile(originals["clean"] / "index" / row["file"], 2000, 1000)
        assert (file.begin_timestamp_ms, file.end_timestamp_ms) == (
            row["beginTimestamp"],
            row["endTimestamp"],
        )
        assert (file.begin_offset, file.end_offset) == (row["beginPhyOffset"], row["endPhyOffset"])
        assert (file.slots_used, file.count) == (row["hashSlotCount"], row["indexCount"])
        check_sound(file.path, 2000, 1000)


def test_every_look_up(golden: tuple[str, Path]) -> None:
    name, root = golden
    index = open_golden(name, root)
    assert index.catch_up()
    check_look_ups(name, index)
    index.close()


def test_every_look_up_after_a_crash_of_the_process(golden: tuple[str, Path]) -> None:
    name, root = golden
    before = len(list((root / "index").iterdir()))
    index = open_golden("killed", root, same_boot=True)
    assert index.statistics().files == before
    assert index.catch_up()
    check_look_ups(name, index)
    index.close()


def test_the_index_is_rebuilt_from_the_log(golden: tuple[str, Path]) -> None:
    name, root = golden
    files = sorted((root / "index").iterdir())
    newest_of_apache = files[0].read_bytes()
    shutil.rmtree(root / "index")
    index = open_golden(name, root)
    assert index.statistics().state is IndexState.CATCHING_UP
    assert index.catch_up()
    check_look_ups(name, index)
    index.flush()
    index.close()
    built = sorted((root / "index").iterdir())
    if name == "clean":
        assert len(built) == len(files)
    # The first file holds the same, byte for byte.
    assert built[0].read_bytes() == newest_of_apache
    for path in built:
        check_sound(path, 2000, 1000)


def test_a_clean_directory_is_not_changed(originals: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "clean"
    shutil.copytree(originals["clean"], root)
    before = {path.name: path.read_bytes() for path in (root / "index").iterdir()}
    index = open_golden("clean", root)
    assert index.catch_up()
    index.flush()
    index.close()
    assert {path.name: path.read_bytes() for path in (root / "index").iterdir()} == before


def test_after_a_kill_full_files_before_the_checkpoint_stay(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "clean"
    shutil.copytree(originals["clean"], root)
    files = [row["file"] for row in summary("clean")["index_files"]]
    index = open_golden("killed", root)
    assert sorted(path.name for path in (root / "index").iterdir()) == files[:-1]
    assert index.catch_up()
    check_look_ups("clean", index)
    index.close()
