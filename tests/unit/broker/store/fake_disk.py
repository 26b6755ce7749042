"""A file system whose use a test sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

_BLOCK_BYTES = 4096
_BLOCKS = 100_000


class FakeDisk:
    """Answers `statvfs`; `percent` of it is in use, and a tenth in addition is reserved for root."""

    def __init__(self, percent: float | Callable[[], float] = 10) -> None:
        self.percent = percent
        self.by_folder: dict[Path, float] = {}
        self.error: OSError | None = None
        self.asked: list[Path] = []

    def statvfs(self, folder: Path) -> os.statvfs_result:
        self.asked.append(folder)
        if self.error is not None:
            raise self.error
        default = self.percent() if callable(self.percent) else self.percent
        used = round(_BLOCKS * self.by_folder.get(folder, default) / 100)
        free = _BLOCKS - used
        reserved = _BLOCKS // 10
        blocks = _BLOCKS + reserved
        return os.statvfs_result((1, _BLOCK_BYTES, blocks, free + reserved, free, 1, 1, 1, 0, 255))


class Health:
    """Records the causes of refusals."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.changes: list[str] = []

    def refuse(self, cause: str, reason: str) -> None:
        self.refusal = reason
        self.changes.append("refuse")

    def allow(self, cause: str) -> None:
        self.refusal = None
        self.changes.append("allow")
