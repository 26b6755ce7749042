"""The file `rmq_checkpoint`."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from rmq_broker.store.recovery.fine_checkpoint import FineCheckpoint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "rmq_checkpoint"
    FineCheckpoint(1 << 40, 12345).save(path, durable=False)
    return path


@pytest.mark.parametrize("durable", [False, True])
def test_a_saved_file_is_loaded(path: Path, durable: bool) -> None:
    assert FineCheckpoint.load(path) == FineCheckpoint(1 << 40, 12345)
    with mock.patch.object(os, "fsync") as fsync:
        FineCheckpoint(7, 0).save(path, durable=durable)
    assert fsync.called is durable
    assert FineCheckpoint.load(path) == FineCheckpoint(7, 0)


def test_a_missing_file(tmp_path: Path) -> None:
    assert FineCheckpoint.load(tmp_path / "rmq_checkpoint") is None


def test_any_damage_is_detected(path: Path) -> None:
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        assert FineCheckpoint.load(path) is None
        path.write_bytes(content[:position])
        assert FineCheckpoint.load(path) is None
    path.write_bytes(content + b"\0")
    assert FineCheckpoint.load(path) is None
