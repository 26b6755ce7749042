"""Files of TLS that are loaded at the start, and again when one of them changes."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from .lifecycle import StartError

if TYPE_CHECKING:
    from .tasks import TaskSupervisor
    from .tls_settings import TlsSettings

log = logging.getLogger("rmq.tls")

_CHECK_SECONDS: Final = 1.0

# What tells that a file was replaced or rewritten: device, inode, size, time of the last change.
_FileState = tuple[int, int, int, int] | None

Loaded = TypeVar("Loaded")


class TlsFilesError(Exception):
    """A certificate, key or list of authorities that cannot be used; the message names setting and file."""


class TlsReloads(ABC, Generic[Loaded]):
    """The certificate of a port, in the form that its library takes. Open connections keep the old one."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._states: list[_FileState] = []
        # Read by the collector of metrics.
        self.reloads = 0
        self.failed_reloads = 0
        self.expires_at: float | None = None  # of the certificate, in seconds since 1970

    @abstractmethod
    def _read(self) -> tuple[Loaded, float | None]:
        """Return what the files hold, and when the certificate expires. Blocks. Raises TlsFilesError."""

    @abstractmethod
    def _use(self, loaded: Loaded, expires_at: float | None) -> None:
        """Use the result of `_read` for the next handshakes."""

    def _load_at_start(self) -> None:
        """Read and use the files. Blocks. Raises StartError."""
        self._states = self._file_states()
        try:
            self._use(*self._read())
        except TlsFilesError as error:
            raise StartError(str(error)) from error

    def _watch_files(self, supervisor: TaskSupervisor, task_name: str) -> None:
        supervisor.every(task_name, _CHECK_SECONDS, self.check)

    async def check(self) -> None:
        """Load the files again if one of them has changed; keep the old ones if that fails."""
        states = await asyncio.to_thread(self._file_states)
        if states == self._states or None in states:  # a file that is being replaced may be missing
            return
        self._states = states
        try:
            self._use(*await asyncio.to_thread(self._read))
        except TlsFilesError as error:
            # Certificate and key are replaced one after the other: between that they do not match.
            self.failed_reloads += 1
            log.warning("TLS files changed and cannot be used, keeping the old ones: %s", error)
        else:
            self.reloads += 1

    def _file_states(self) -> list[_FileState]:
        return [_file_state(path) for path in self._settings.tls_files]


def _file_state(path: Path) -> _FileState:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
