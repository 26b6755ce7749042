"""The locks that let one broker at a time use a store directory, and the folder of its commit log."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path
from typing import Final

from .errors import StoreDamaged

log = logging.getLogger("rmq.store")

_IN_USE: Final = (errno.EAGAIN, errno.EACCES)
# NFS wants a descriptor for writing, which a folder cannot have.
_NO_FOLDER_LOCKS: Final = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
# Device and inode of the folders that stores of this process have locked.
_held_here: Final[set[tuple[int, int]]] = set()


class DirectoryLock:
    """Held from construction until `release`, or the end of the process.

    The first byte of the file `lock` is locked, as by Apache's broker (FileChannel.tryLock, a POSIX record
    lock). Such a lock does not exclude its own process, and is lost as soon as the process closes any
    descriptor of the file. So a second store in this process is refused before it opens the file.
    """

    def __init__(self, folder: Path, log_folder: Path | None = None) -> None:
        """Lock the directory, and the folder of its commit log, which may be elsewhere.

        That folder itself is locked (flock): a file of ours among those of the log would be in Apache's way.
        Some network file systems cannot do that, which is logged. Raises StoreDamaged if either is locked
        already, OSError if it cannot be locked.
        """
        self._log_descriptor = -1
        status = folder.stat()
        self._key = (status.st_dev, status.st_ino)
        if self._key in _held_here:
            raise _in_use(folder)
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in _IN_USE:
                raise _in_use(folder) from error
            raise
        _held_here.add(self._key)
        if log_folder is not None:
            try:
                self._lock_folder(log_folder)
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Release the locks."""
        _held_here.discard(self._key)
        if self._log_descriptor >= 0:
            os.close(self._log_descriptor)
            self._log_descriptor = -1
        os.close(self._descriptor)

    def _lock_folder(self, folder: Path) -> None:
        self._log_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._log_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _IN_USE:
                raise StoreDamaged(
                    f"the commit log {folder} is in use by another broker; give each broker its own "
                    "storePathCommitLog"
                ) from error
            if error.errno not in _NO_FOLDER_LOCKS:
                raise
            log.warning(
                "commit log not locked path=%s cause=%s; no other broker may have it as storePathCommitLog",
                folder,
                error,
            )


def _in_use(folder: Path) -> StoreDamaged:
    return StoreDamaged(f"{folder} is in use by another broker; give each broker its own storePathRootDir")
