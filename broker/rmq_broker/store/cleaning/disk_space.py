"""The use of the disk, and its four levels: from which on files are deleted, and messages refused.

The levels and their settings are those of Apache RocketMQ 5.3.3 (DefaultMessageStore's
CleanCommitLogService). Apache's broker, once it is read-only, accepts messages again only below the level at
which files are deleted at any age. A disk that other programs fill, too, may never get there. Here each level
ends at the ratio at which it begins.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ..settings import StoreSettings

log = logging.getLogger("rmq.store.disk")

_CAUSE: Final = "disk space"


class DiskLevel(enum.IntEnum):
    """What the use of the disk requires."""

    ENOUGH = 0  # nothing
    CLEAN = 1  # delete expired files at any hour
    FORCE = 2  # delete the oldest files at any age
    REFUSE = 3  # as FORCE, and refuse messages until there is space


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The use of the disk that a folder is on, as `df` counts it.

    Blocks reserved for root count neither as used nor as available.
    """

    folder: Path
    used_bytes: int
    available_bytes: int

    @classmethod
    def of(cls, folder: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs) -> DiskUse:
        """Return the present use. Raises OSError, FileNotFoundError if the folder does not exist; blocks."""
        disk = statvfs(folder)
        used_blocks = disk.f_blocks - disk.f_bfree
        return cls(folder, used_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    @property
    def ratio(self) -> float:
        """The share in use, from 0 to 1."""
        return self.used_bytes / max(self.used_bytes + self.available_bytes, 1)

    def is_above(self, percent: int) -> bool:
        """Whether more than so much is in use; exact, as Apache's rounding up to whole percents."""
        return self.used_bytes * 100 > percent * (self.used_bytes + self.available_bytes)


class RefusalSwitch(Protocol):
    """Refuses and accepts messages (WriteHealth), from any thread."""

    def refuse(self, cause: str, reason: str) -> None:
        """Refuse messages from now on because of `cause`."""

    def allow(self, cause: str) -> None:
        """Remove `cause`."""


class DiskSpace:
    """The use of the disks of log and queues, as of the last `check`."""

    def __init__(
        self,
        settings: StoreSettings,
        health: RefusalSwitch,
        statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._settings = settings
        self._health = health
        self._statvfs = statvfs
        self._is_unknown = False
        self.level = DiskLevel.ENOUGH
        self.log_use: DiskUse | None = None
        self.queue_use: DiskUse | None = None
        self.refusal: str | None = None
        self.failures = 0

    def check(self) -> DiskLevel:
        """Read the use of the disks, and refuse messages or accept them again.

        If a file system does not answer, nothing changes. One thread at a time; blocks.
        """
        try:
            log_use = self._use_of(self._settings.commit_log_dir)
            queue_use = self._use_of(self._settings.consume_queue_dir)
        except OSError as error:
            self.failures += 1
            if not self._is_unknown:
                log.error("disk use unknown cause=%s; tried again", error)
            self._is_unknown = True
            return self.level
        self._is_unknown = False
        self.log_use, self.queue_use = log_use, queue_use
        # The higher level of the two counts; if both are on one disk, the log's.
        level, use = self._level_of(log_use), log_use
        if self._level_of(queue_use) > level:
            level, use = self._level_of(queue_use), queue_use
        self._enter(level, use)
        return level

    # --- inside ---

    def _use_of(self, folder: Path) -> DiskUse:
        try:
            return DiskUse.of(folder, self._statvfs)
        except FileNotFoundError:
            # The folder does not exist yet: it will be on the disk of its parent.
            if folder == folder.parent:
                raise
            return self._use_of(folder.parent)

    def _level_of(self, use: DiskUse) -> DiskLevel:
        settings = self._settings
        if use.is_above(settings.disk_space_warning_level_ratio):
            return DiskLevel.REFUSE
        if use.is_above(settings.disk_space_clean_forcibly_ratio):
            return DiskLevel.FORCE
        if use.is_above(settings.disk_max_used_space_ratio):
            return DiskLevel.CLEAN
        return DiskLevel.ENOUGH

    def _enter(self, level: DiskLevel, use: DiskUse) -> None:
        before, self.level = self.level, level
        if level is DiskLevel.REFUSE:
            self.refusal = self._refusal(use)
            self._health.refuse(_CAUSE, self.refusal)
            if before is not level:
                log.error("messages refused: %s", self.refusal)
            return
        self.refusal = None
        if before is DiskLevel.REFUSE:
            self._health.allow(_CAUSE)
            log.warning("messages accepted again: %s", _text(use))
        elif level > before:
            log.warning("%s: %s", _text(use), _FOLLOWS[level])
        elif level < before:
            log.info("%s", _text(use))

    def _refusal(self, use: DiskUse) -> str:
        return (
            f"{_text(use)}, more than diskSpaceWarningLevelRatio="
            f"{self._settings.disk_space_warning_level_ratio} allows. Free some space, or let messages be "
            "deleted earlier (fileReservedTime, diskMaxUsedSpaceRatio); messages are accepted again as soon "
            "as there is space"
        )


_FOLLOWS: Final = {
    DiskLevel.CLEAN: "expired files are deleted at any hour (diskMaxUsedSpaceRatio)",
    DiskLevel.FORCE: "the oldest files are deleted at any age (diskSpaceCleanForciblyRatio)",
}


def _text(use: DiskUse) -> str:
    mib = use.available_bytes // (1024 * 1024)
    return f"the disk of {use.folder} is {use.ratio:.1%} full, {mib} MiB are left"
