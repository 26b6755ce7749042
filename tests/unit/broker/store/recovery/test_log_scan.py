"""Reading the log part by part."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.recovery import log_scan
from tests.support.stores import check_agreement, fill, opened


@pytest.mark.parametrize("part_bytes", [1, 300, 4096, 10_000])
def test_records_at_the_ends_of_parts_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(log_scan, "_READ_BYTES", part_bytes)
    store = opened(tmp_path)
    for size in (50, 1, 900, 20_000, 5):
        fill(store, 20, size=size)
    store.close()
    (tmp_path / "rmq_checkpoint").unlink(missing_ok=True)
    store = opened(tmp_path)
    assert store.recovery is not None and store.recovery.records_read == 100
    store.close()
    assert check_agreement(tmp_path) == 100
