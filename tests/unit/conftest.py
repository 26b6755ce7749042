"""Folders of unit tests in memory: on a disk, the store's tests spend most of their time on flushes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_MEMORY: Final = Path("/dev/shm")
# More than any test stores. Containers often have 64 MiB, and systems other than Linux have no such folder.
_NEEDED_BYTES: Final = 2 << 30

_HERE: Final = Path(__file__).parent
# File systems in memory do not support reads that do not block (RWF_NOWAIT).
_ON_DISK: Final = (_HERE / "broker" / "pulling", _HERE / "broker" / "store" / "reading")

if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _NEEDED_BYTES:

    @pytest.fixture
    def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
        """A folder in memory, except in `_ON_DISK`. A test that needs a disk asks for `tmp_path_factory`."""
        if request.path.parent in _ON_DISK:
            yield tmp_path_factory.mktemp("disk")
            return
        with tempfile.TemporaryDirectory(dir=_MEMORY, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
