"""Folders on a disk: file systems in memory do not support reads that do not block (RWF_NOWAIT)."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("disk")
