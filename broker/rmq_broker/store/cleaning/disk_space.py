"""How full the disk is, and what follows from it.

The four levels and their settings are those of Apache RocketMQ 5.3.3 (DefaultMessageStore's
CleanCommitLogService). There, a broker that has become read-only accepts messages again only when the disk is
used less than the level at which files are deleted by force, which a disk that others fill too may never be:
here each level ends where it begins.
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
    """What has to be done, the harder the more."""

    ENOUGH = 0  # nothing
    CLEAN = 1  # delete the files that are too old, whatever the hour
    FORCE = 2  # delete the oldest files, whatever their age
    REFUSE = 3  # the same, and take no more messages until there is space


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The use of the disk that a folder is on, as `df` counts it.

    What is reserved for root counts neither as used nor as there.
    """

    folder: Path
    used_bytes: int
    available_bytes: int

    @classmethod
    def of(cls, folder: Path, statvfs: Callable[[Path], os.statvfs_result] = os.statvfs) -> DiskUse:
        """The use now. Raises OSError, FileNotFoundError where there is no such folder; blocks."""
        disk = statvfs(folder)
        used_blocks = disk.f_blocks - disk.f_bfree
        return cls(folder, used_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    @property
    def ratio(self) -> float:
        """Share in use, from 0 to 1."""
        return self.used_bytes / max(self.used_bytes + self.available_bytes, 1)

    def is_above(self, percent: int) -> bool:
        """Whether more than so much is in use; exact, as Apache's rounding up to whole percents is."""
        return self.used_bytes * 100 > percent * (self.used_bytes + self.available_bytes)


class TakesRefusals(Protocol):
    """Who keeps messages from being accepted (`health.WriteHealth`); both may be called from any thread."""

    def refuse(self, cause: str, reason: str) -> None:
        """Accept nothing from now on."""

    def allow(self, cause: str) -> None:
        """`cause` is no reason any more."""


class DiskSpace:
    """Knows how full the disks of log and queues are, as of the last `check`."""

    def __init__(
        self,
        settings: StoreSettings,
        health: TakesRefusals,
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
        """Ask the file systems, refuse messages or allow them again; blocks for as long as they take.

        Where they do not answer all stays as it was. One thread at a time.
        """
        try:
            log_use = self._use_of(self._settings.commit_log_dir)
            queue_use = self._use_of(self._settings.consume_queue_dir)
        except OSError as error:
            self.failures += 1
            if not self._is_unknown:
                log.error("how full the disk is cannot be found out, it is tried again: %s", error)
            self._is_unknown = True
            return self.level
        self._is_unknown = False
        self.log_use, self.queue_use = log_use, queue_use
        # Of the two the one that asks for more; on one disk, the log's.
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
            # Not made yet: it will be on the disk of the folder that it is to be in.
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
                log.error("no more messages are accepted: %s", self.refusal)
            return
        self.refusal = None
        if before is DiskLevel.REFUSE:
            self._health.allow(_CAUSE)
            log.warning("messages are accepted again: %s", _text(use))
        elif level > before:
            log.warning("%s: %s", _text(use), _FOLLOWS[level])
        elif level < before:
            log.info("%s", _text(use))

    def _refusal(self, use: DiskUse) -> str:
        return (
            f"{_text(use)}, more than diskSpaceWarningLevelRatio="
            f"{self._settings.disk_space_warning_level_ratio} allows. Free some space, or have old messages "
            "deleted earlier (fileReservedTime, diskMaxUsedSpaceRatio); messages are accepted again as soon "
            "as there is space"
        )


_FOLLOWS: Final = {
    DiskLevel.CLEAN: "files that are too old are deleted whatever the hour (diskMaxUsedSpaceRatio)",
    DiskLevel.FORCE: "the oldest files are deleted whatever their age (diskSpaceCleanForciblyRatio)",
}


def _text(use: DiskUse) -> str:
    mib = use.available_bytes // (1024 * 1024)
    return f"the disk of {use.folder} is {use.ratio:.1%} full, {mib} MiB are left"
