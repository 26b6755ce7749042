"""The checkpoint file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.store.recovery.checkpoint import Checkpoint
from tests.support.rows import each_row


def test_a_saved_checkpoint_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(1, 2, 3, 4, 5)
    checkpoint.save(path)
    content = path.read_bytes()
    assert len(content) == 4096
    assert content[:40] == b"".join(value.to_bytes(8, "big") for value in (1, 2, 3, 4, 5))
    assert Checkpoint.load(path) == checkpoint
    Checkpoint(6, 7, 8, 9, 10).save(path)
    assert Checkpoint.load(path) == Checkpoint(6, 7, 8, 9, 10)


@pytest.mark.parametrize("content", [None, b"", b"\1" * 39])
def test_a_missing_or_short_file_counts_as_zero(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)
    assert Checkpoint.load(path) == Checkpoint()
    assert Checkpoint.load(path).safe_timestamp_ms < 0


@each_row("field", ["log_timestamp_ms", "queue_timestamp_ms", "index_timestamp_ms"])
@each_row("time_ms", [-1, -(1 << 63), (1 << 43) + 1, (1 << 63) - 1])
def test_impossible_times_count_as_zero(
    tmp_path: Path, field: str, time_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = Checkpoint(1_700_000_000_000, 1_700_000_000_000, 0, 5, 6)
    checkpoint.save(path)
    assert Checkpoint.load(path) == checkpoint
    setattr(checkpoint, field, time_ms)
    checkpoint.save(path)
    assert Checkpoint.load(path) == Checkpoint()
    assert f"damaged file ignored path={path}" in caplog.text and str(time_ms) in caplog.text


def test_the_safe_time_is_the_older_time_minus_3_seconds() -> None:
    assert Checkpoint(log_timestamp_ms=10_000, queue_timestamp_ms=9_000).safe_timestamp_ms == 6_000
    assert (
        Checkpoint(log_timestamp_ms=9_000, queue_timestamp_ms=10_000, index_timestamp_ms=1).safe_timestamp_ms
        == 6_000
    )
