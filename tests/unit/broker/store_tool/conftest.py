"""A store of sixty messages, for the tests of all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.broker.store_tool.parts import StoreWriter, finished


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store")
    writer.fill(60)
    return writer


@pytest.fixture
def root(writer: StoreWriter) -> Path:
    return finished(writer)
