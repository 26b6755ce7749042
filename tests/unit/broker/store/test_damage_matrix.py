"""Every small file of a store missing, empty, cut off or garbled, after each kind of stop.

(Damage of the last record, byte by byte, and of the middle of the log: `test_recovery_damage.py`.)
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_broker.store.errors import StoreDamaged
from rmq_broker.store.fine_checkpoint import FineCheckpoint
from rmq_broker.store.log.mapped_file import PAGE_BYTES
from tests.unit.broker.store.parts import (
    bodies,
    check_agreement,
    copy_of,
    fill,
    log_file,
    machine_crashed,
    opened,
    put,
    stopped_cleanly,
)

MESSAGES = 700
KEPT_FILES = ("checkpoint", "rmq_checkpoint", "rmq_queues.json", "rmq_boot_id")

Damage = Callable[[Path], object]


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
    """A store with several files of each kind, stopped cleanly once and then left in the middle."""
    root = tmp_path_factory.mktemp("written")
    store = opened(root)
    fill(store, MESSAGES // 2, topics=2, size=300)
    store._flusher.flush()
    store._marks.stopped(store.queues, store._checkpoint, 0)
    fill(store, MESSAGES - MESSAGES // 2, topics=2, size=300)
    store._flusher.flush()
    store.close()
    return root


def check_whole(root: Path) -> None:
    """All messages are there, new ones get the next offsets, and the next start finds the same."""
    store = opened(root)
    for topic in ("Topic0", "Topic1"):
        assert len(bodies(store, topic)) == MESSAGES // 2
        assert put(store, b"next", topic)[1] == MESSAGES // 2
    store.close()
    assert check_agreement(root) == MESSAGES + 2
    store = opened(root)
    assert store.max_offset("Topic0", 0) == MESSAGES // 2 + 1
    store.close()


def _killed(root: Path) -> None:
    assert (root / "abort").exists()


@pytest.mark.parametrize("stop", [stopped_cleanly, _killed, machine_crashed])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", KEPT_FILES)
def test_a_file_beside_the_log(
    written: Path, tmp_path: Path, name: str, damage: str, stop: Callable[[Path], None]
) -> None:
    """Nothing of what these files say is needed: it makes a start quicker."""
    root = copy_of(written, tmp_path / "store")
    stop(root)
    DAMAGES[damage](root / name)
    check_whole(root)


@pytest.mark.parametrize("stop", [stopped_cleanly, _killed, machine_crashed])
def test_all_of_them_missing(written: Path, tmp_path: Path, stop: Callable[[Path], None]) -> None:
    root = copy_of(written, tmp_path / "store")
    stop(root)
    for name in KEPT_FILES:
        (root / name).unlink()
    check_whole(root)


@pytest.mark.parametrize("offset", [0, 1, 1 << 40, -1])
@pytest.mark.parametrize("stop", [_killed, machine_crashed])
def test_a_checkpoint_of_other_offsets(
    written: Path, tmp_path: Path, offset: int, stop: Callable[[Path], None]
) -> None:
    """A place where no record begins, or none at all, is no place to start at."""
    root = copy_of(written, tmp_path / "store")
    stop(root)
    FineCheckpoint(offset, offset).save(root / "rmq_checkpoint", durable=False)
    check_whole(root)


@pytest.mark.parametrize("change", [-1, 1, -PAGE_BYTES, PAGE_BYTES])
def test_a_log_file_of_another_size(written: Path, tmp_path: Path, change: int) -> None:
    """One between others is refused with what to do, and not touched."""
    root = copy_of(written, tmp_path / "store")
    file = log_file(root, 1)
    content = file.read_bytes()
    wrong = content[:change] if change < 0 else content + bytes(change)
    file.write_bytes(wrong)
    with pytest.raises(StoreDamaged, match=f"{file.name} has {len(wrong)} bytes instead of {len(content)}"):
        opened(root)
    assert file.read_bytes() == wrong
    file.write_bytes(content)
    check_whole(root)


def test_marks_of_queues_that_say_nonsense(written: Path, tmp_path: Path) -> None:
    nonsense: list[object] = [{}, {"ends": 1}, [], "text", None]
    nonsense.append({"checkpoint": [], "ends": {"Topic0": {"x": 1}}, "deleted": {}})
    for number, content in enumerate(nonsense):
        root = copy_of(written, tmp_path / str(number))
        (root / "rmq_queues.json").write_text(json.dumps(content))
        check_whole(root)
