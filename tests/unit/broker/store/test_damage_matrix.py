"""Each small file of a store missing, empty, truncated or damaged, after each kind of stop.

(Damage of the last record, byte by byte, and of the middle of the log: `test_recovery_damage.py`.)
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.log.mapped_file import PAGE_BYTES
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.recovery.fine_checkpoint import FineCheckpoint
from rmq_broker.store_tool.verify import verify
from tests.support.rows import each_row
from tests.support.stores import (
    bodies,
    check_agreement,
    copy_of,
    log_file,
    machine_crashed,
    opened,
    put,
    stopped_cleanly,
)

MESSAGES = 200
KEPT_FILES = ("checkpoint", "rmq_checkpoint", "rmq_queues.json", "rmq_index.json", "rmq_boot_id", "lock")
# Several files of each kind. All starts use these sizes, or the files would have a wrong size.
SIZES: dict[str, Any] = {"log_file_bytes": 16 * 1024, "queue_file_bytes": 60 * 20, "maxIndexNum": 60}

Damage = Callable[[Path], object]
Stop = Callable[[Path], None]


def _garble(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size or 10))


DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbled": _garble,
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"\x01" * 100),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores with several files of each kind: `left` in the middle of a run, and `stopped` cleanly."""
    roots = tmp_path_factory.mktemp("written")
    root = roots / "stopped"
    store = opened(root, **SIZES)
    store.index.catch_up()
    _fill(store, 0, MESSAGES // 2)
    store.flush()
    store.index.flush()
    store.queue_state.save_ends(store.queues, store.checkpoint, 0)
    _fill(store, MESSAGES // 2, MESSAGES)
    store.flush()
    copy_of(root, roots / "left")
    store.index.flush()
    store.close()
    return roots


def _copy(written: Path, tmp_path: Path, stop: Stop) -> Path:
    """A copy of the store that stopped in this way."""
    root = copy_of(written / ("stopped" if stop is stopped_cleanly else "left"), tmp_path / "store")
    stop(root)
    return root


def _fill(store: MessageStore, first: int, end: int) -> None:
    for number in range(first, end):
        body = (b"%06d " % number).ljust(300, b"x")
        put(store, body, f"Topic{number % 2}", properties=b"KEYS\x01key%d\x02" % number)
        store.index.catch_up()


def check_whole(root: Path) -> None:
    """All messages exist and are found by key, new ones get the next offsets, and the next start finds
    the same.
    """
    store = opened(root, **SIZES)
    for topic in ("Topic0", "Topic1"):
        assert len(bodies(store, topic)) == MESSAGES // 2
        assert put(store, b"next", topic)[1] == MESSAGES // 2
    assert store.index.catch_up()
    _check_keys(store)
    store.flush()
    store.index.flush()
    store.close()
    assert check_agreement(root) == MESSAGES + 2
    assert [finding for finding in verify(root).findings if finding.is_error] == []
    store = opened(root, **SIZES)
    assert store.max_offset("Topic0", 0) == MESSAGES // 2 + 1
    _check_keys(store)
    store.close()


def _check_keys(store: MessageStore) -> None:
    for number in range(MESSAGES):
        found = store.query_by_key(f"Topic{number % 2}", f"key{number}", 10, 0, 1 << 60).offsets
        assert any(
            (record := store.record_at(offset)) is not None and b"%06d " % number in record
            for offset in found
        ), number


def _killed(root: Path) -> None:
    assert (root / "abort").exists()


@each_row("stop", [stopped_cleanly, _killed, machine_crashed])
@each_row("damage", DAMAGES)
@each_row("name", KEPT_FILES)
def test_small_files_are_not_needed(
    written: Path, tmp_path: Path, name: str, damage: str, stop: Stop
) -> None:
    """The content of these files is not needed: it makes a start faster."""
    root = _copy(written, tmp_path, stop)
    DAMAGES[damage](root / name)
    check_whole(root)


@each_row("stop", [stopped_cleanly, _killed, machine_crashed])
@each_row("damage", [damage for damage in DAMAGES if damage != "missing"])
def test_the_content_of_the_abort_file_does_not_matter(
    written: Path, tmp_path: Path, damage: str, stop: Stop
) -> None:
    root = _copy(written, tmp_path, stop)
    if (root / "abort").exists():
        DAMAGES[damage](root / "abort")
    check_whole(root)


@each_row("stop", [stopped_cleanly, _killed, machine_crashed])
@each_row("damage", DAMAGES)
@each_row("index", [0, 1, -1])
def test_a_damaged_index_file_is_rebuilt(
    written: Path, tmp_path: Path, index: int, damage: str, stop: Stop
) -> None:
    """It is rebuilt from the log; the last file from messages since the progress file was written."""
    root = _copy(written, tmp_path, stop)
    files = sorted((root / "index").iterdir())
    assert len(files) > 3
    DAMAGES[damage](files[index])
    check_whole(root)


@pytest.mark.parametrize("stop", [stopped_cleanly, _killed, machine_crashed])
def test_all_small_files_missing(written: Path, tmp_path: Path, stop: Stop) -> None:
    root = _copy(written, tmp_path, stop)
    for name in KEPT_FILES:
        (root / name).unlink()
    check_whole(root)


@pytest.mark.parametrize("offset", [0, 1, 1 << 40, -1])
@pytest.mark.parametrize("stop", [_killed, machine_crashed])
def test_a_fine_checkpoint_with_wrong_offsets(written: Path, tmp_path: Path, offset: int, stop: Stop) -> None:
    """An offset where no record begins, or beyond the log, is not used."""
    root = _copy(written, tmp_path, stop)
    FineCheckpoint(offset, offset).save(root / "rmq_checkpoint", durable=False)
    check_whole(root)


@pytest.mark.parametrize("change", [-1, 1, -PAGE_BYTES, PAGE_BYTES])
def test_a_log_file_of_another_size_is_refused(written: Path, tmp_path: Path, change: int) -> None:
    """A file between others is refused with advice, and not changed."""
    root = copy_of(written / "left", tmp_path / "store")
    file = log_file(root, 1)
    content = file.read_bytes()
    wrong = content[:change] if change < 0 else content + bytes(change)
    file.write_bytes(wrong)
    with pytest.raises(StoreDamaged, match=f"{file.name} has {len(wrong)} bytes instead of {len(content)}"):
        opened(root, **SIZES)
    assert file.read_bytes() == wrong
    file.write_bytes(content)
    check_whole(root)


def test_a_queue_state_file_with_impossible_values(written: Path, tmp_path: Path) -> None:
    nonsense: list[object] = [{}, {"ends": 1}, [], "text", None]
    nonsense.append({"checkpoint": [], "ends": {"Topic0": {"x": 1}}, "deleted": {}})
    for number, content in enumerate(nonsense):
        root = copy_of(written / "left", tmp_path / str(number))
        (root / "rmq_queues.json").write_text(json.dumps(content))
        check_whole(root)
