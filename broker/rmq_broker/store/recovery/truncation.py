"""A truncation of the commit log, which the next start carries out.

The end of a replica's log may differ from its master's: the replica was the master before, or the master lost
messages in a power cut.
A running store keeps offsets of its log in many places, so that only a start cuts the log. The part that is
cut off is kept: its messages may have been acknowledged by a broker that was the master then.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq_remoting.daemon.atomic_file import make_folder, replace_file, sync_folder
from rmq_remoting.daemon.file_errors import read_file

from ..errors import StoreDamaged
from ..log.commit_log import CommitLog
from ..log.mapped_file import file_name
from .fine_checkpoint import FineCheckpoint

log = logging.getLogger("rmq.store.recovery")

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Truncation:
    """A truncation that was carried out.

    offset      the end of the log now
    cut_bytes   how many bytes of the log are gone
    kept_in     the file that has them
    """

    offset: int
    cut_bytes: int
    kept_in: Path


class TruncationFile:
    """The file `rmq_truncation.json`: where the next start ends the log."""

    def __init__(self, root: Path) -> None:
        self._path = root / "rmq_truncation.json"
        self._folder = root / "diverged"

    def request(self, offset: int, log_end: int) -> None:
        """Have the next start end the log, which ends at `log_end` now, at `offset`, where a record ends.

        Durable on return; raises OSError.
        """
        replace_file(self._path, json.dumps({"offset": offset, "logEnd": log_end}).encode())

    def apply(self, commit_log: CommitLog, fine_path: Path, *, after_clean_stop: bool) -> Truncation | None:
        """Cut the loaded log where that is requested; None if it is not.

        `fine_path`: path of `rmq_checkpoint`, which is lowered so that recovery begins at the new end.

        Must be called before recovery, which corrects the queues. A crash between the steps repeats them.
        Raises OSError (also if the disk has no room for the bytes that are kept), StoreDamaged; blocks.
        """
        try:
            content = read_file(self._path)
        except FileNotFoundError:
            return None
        offset, end = self._range(content)
        kept_in = self._folder / f"{file_name(offset)}.log"
        make_folder(self._folder)
        _keep(commit_log, offset, end, kept_in)
        all_known = FineCheckpoint(offset, offset) if after_clean_stop else FineCheckpoint(0, 0)
        known = FineCheckpoint.load(fine_path) or all_known
        lowered = FineCheckpoint(min(known.written, offset), min(known.flushed, offset))
        lowered.save(fine_path, durable=True)
        commit_log.cut(offset)
        self._path.unlink()
        log.warning(
            "commit log truncated to the part that the master has offset=%d cut_bytes=%d kept_in=%s",
            offset,
            end - offset,
            kept_in,
        )
        return Truncation(offset, end - offset, kept_in)

    def _range(self, content: bytes) -> tuple[int, int]:
        try:
            requested = json.loads(content)
            offset, end = requested["offset"], requested["logEnd"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamaged(f"{self._path} is not readable: {error}") from error
        if not (isinstance(offset, int) and isinstance(end, int) and 0 <= offset <= end):
            raise StoreDamaged(f"{self._path}: offset {offset!r} and logEnd {end!r} are no part of a log")
        return offset, end


def _keep(commit_log: CommitLog, offset: int, end: int, path: Path) -> None:
    """Copy the log from `offset` to `end` into a file, durably. Raises OSError; blocks."""
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("wb") as copy:
        for file in commit_log.files:
            position = max(0, offset - file.start)
            file_end = min(file.size, end - file.start)
            while position < file_end:
                size = min(_PIECE_BYTES, file_end - position)
                copy.write(file.read(position, size))
                position += size
        copy.flush()
        os.fsync(copy.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)
