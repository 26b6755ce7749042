"""Room ahead of the log's end, made in a thread: an append never waits for the file system to make some.

Files of the log are large, and space for them is not for nothing: a new file's first pages take milliseconds
to be written, and each page after that microseconds. Here the next megabytes are written with zeros before
the appends get there, and the next file is made while the last part of the current one is filled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from .commit_log import CommitLog
from .mapped_file import MappedFile

log = logging.getLogger("rmq.store.room")

_AHEAD_BYTES: Final = 16 * 1024 * 1024
_FULL_DISK_PAUSE_SECONDS: Final = 1.0


class LogRoom:
    """Keeps the log's appends in reserved, touched space. `ask` is the loop's, the rest runs in a thread."""

    def __init__(
        self,
        commit_log: CommitLog,
        *,
        touch: bool,
        ahead_bytes: int = _AHEAD_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`touch`: write zeros ahead; else only reserve the space.

        What is flushed at once must not be touched before: the file system writes the touched megabytes out
        with the first bytes in them.
        """
        self._log = commit_log
        self._touch = touch
        self._ahead_bytes = ahead_bytes
        self._clock = clock
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="store-room")
        self._under_way = False
        self._not_before = 0.0

    def ask(self, file: MappedFile) -> None:
        """The appends come close to the end of the room."""
        if self._under_way or self._clock() < self._not_before:
            return
        self._under_way = True
        self._executor.submit(self._make, file)

    def close(self) -> None:
        """End the thread; what it has begun it ends."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _make(self, file: MappedFile) -> None:
        try:
            self._reserve(file, max(file.wrote, file.reserved - self._ahead_bytes) + 2 * self._ahead_bytes)
            if file.reserved >= file.size:
                self._log.prepare_next(file, self._first_room)
                file.more_room_at = file.size
            else:
                file.more_room_at = file.reserved - self._ahead_bytes
        except OSError as error:
            # Not the place to refuse anything: an append that finds no room does, and says so.
            log.warning("no room can be made ahead in the commit log: %s", error)
            self._not_before = self._clock() + _FULL_DISK_PAUSE_SECONDS
        except Exception:
            log.exception("no room is made ahead in the commit log")  # nobody asks what became of this task
            self._not_before = self._clock() + _FULL_DISK_PAUSE_SECONDS
        finally:
            self._under_way = False

    def _first_room(self, file: MappedFile) -> None:
        file.sync_name()
        self._reserve(file, self._ahead_bytes)
        # Whoever appends to it first asks for more.
        file.more_room_at = file.reserved - self._ahead_bytes

    def _reserve(self, file: MappedFile, until: int) -> None:
        if self._touch:
            file.touch(until)
        else:
            file.reserve(min(until, file.size))
