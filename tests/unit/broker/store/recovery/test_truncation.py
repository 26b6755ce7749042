"""A requested truncation: the next start ends the log there, and keeps the rest in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.api import StoreDamaged
from tests.support.stores import bodies, opened, put


def _filled(root: Path, count: int) -> list[int]:
    """Offsets of `count` messages in a store that is closed as by a crash."""
    store = opened(root)
    offsets = [put(store, b"%d" % number)[0] for number in range(count)]
    store.request_truncation(offsets[-2])
    store.close()
    return offsets


def test_log_and_queues_end_at_the_offset(tmp_path: Path) -> None:
    offsets = _filled(tmp_path, 5)
    store = opened(tmp_path)
    assert store.max_phy_offset() == offsets[3]
    assert bodies(store) == [b"0", b"1", b"2"]
    assert store.truncation is not None
    kept = store.truncation.kept_in
    assert kept.name == f"{offsets[3]:020d}.log"
    assert kept.stat().st_size == store.truncation.cut_bytes
    assert put(store, b"next") == (offsets[3], 3)


def test_it_is_done_once(tmp_path: Path) -> None:
    _filled(tmp_path, 5)
    opened(tmp_path).close()
    assert opened(tmp_path).truncation is None


def test_an_unreadable_request_refuses_the_start(tmp_path: Path) -> None:
    _filled(tmp_path, 5)
    (tmp_path / "rmq_truncation.json").write_bytes(b'{"offset": -1, "logEnd": 5}')
    with pytest.raises(StoreDamaged, match="offset -1 and logEnd 5 are no part of a log"):
        opened(tmp_path)
