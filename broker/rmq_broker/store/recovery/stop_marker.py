"""How the broker that wrote a store directory stopped: the files `abort` and `rmq_boot_id`.

`abort` exists while a broker runs (Apache RocketMQ 5.3.3, DefaultMessageStore.isTempFileExist).
`rmq_boot_id` names the boot of the machine that it ran in; Apache's broker ignores it.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import replace_file
from rmq_remoting.daemon.file_errors import read_file

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class StopKind(Enum):
    """How the broker that wrote a directory stopped."""

    CLEAN = "clean stop"
    PROCESS_KILLED = "crash of the process"
    MACHINE_CRASHED = "crash of the machine"


class StopMarker:
    """Marks a store directory as in use, and tells how the broker before this one stopped."""

    def __init__(self, root: Path) -> None:
        self._abort_path = root / "abort"
        self._boot_path = root / "rmq_boot_id"

    def stop_kind(self) -> StopKind:
        """Return how the last broker stopped. Raises OSError."""
        if not self._abort_path.exists():
            return StopKind.CLEAN
        boot = boot_id()
        if boot and _read_text(self._boot_path) == boot:
            return StopKind.PROCESS_KILLED
        return StopKind.MACHINE_CRASHED

    def running(self) -> None:
        """Mark the directory as in use, durably, before the first message is stored. Raises OSError.

        Otherwise the directory would look cleanly stopped after a power cut.
        """
        replace_file(self._boot_path, boot_id().encode())
        replace_file(self._abort_path, str(os.getpid()).encode())

    def stopped(self) -> None:
        """Mark the directory as cleanly stopped. Raises OSError."""
        self._abort_path.unlink(missing_ok=True)


def boot_id() -> str:
    """Return an id that changes with each boot of the machine; empty if the system does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _read_text(path: Path) -> str:
    try:
        return read_file(path).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
