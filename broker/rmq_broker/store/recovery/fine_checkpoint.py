"""The file `rmq_checkpoint`: log offsets up to which queue entries are in their files.

Apache's broker ignores it. Apache's checkpoint holds times, which lead recovery to a commit log file. These
offsets lead to a record.
"""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from rmq_remoting.daemon.descriptor_reserve import open_file
from rmq_remoting.daemon.file_errors import read_file

log = logging.getLogger("rmq.store")

_CONTENT: Final = Struct(">4sqq")
_CRC: Final = Struct(">I")
_MAGIC: Final = b"RMQ1"


@dataclass(frozen=True, slots=True)
class FineCheckpoint:
    """Offsets in the log, each the end of a record.

    written  every message before it has its entry in a queue's file: valid after a crash of the process
    flushed  log and entries before it are on disk: valid after a crash of the machine
    """

    written: int
    flushed: int

    @classmethod
    def load(cls, path: Path) -> FineCheckpoint | None:
        """Return the file's content; None if the file is missing or damaged."""
        try:
            data = read_file(path)
        except FileNotFoundError:
            return None
        if len(data) != _CONTENT.size + _CRC.size:
            log.warning("damaged file ignored path=%s size_bytes=%d", path, len(data))
            return None
        magic, written, flushed = _CONTENT.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _CONTENT.size)
        if magic != _MAGIC or crc != zlib.crc32(data[: _CONTENT.size]):
            log.warning("damaged file ignored path=%s cause=checksum", path)
            return None
        return cls(written, flushed)

    def save(self, path: Path, *, durable: bool) -> None:
        """Write the file; with `durable` also fsync it. Raises OSError.

        The file is written in place: so few bytes of one block are written as a whole, and the CRC shows it
        if they were not.
        """
        content = _CONTENT.pack(_MAGIC, self.written, self.flushed)
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(descriptor, content + _CRC.pack(zlib.crc32(content)), 0)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def invalidate_written(path: Path) -> None:
    """Lower `written` to `flushed`, after a failed flush; blocks.

    The kernel drops pages that it could not write, also within one boot. The next start has to rebuild all
    entries that are not known to be on disk. If the file cannot be written, that is logged.
    """
    try:
        known = FineCheckpoint.load(path)
        if known is not None:
            FineCheckpoint(min(known.written, known.flushed), known.flushed).save(path, durable=True)
    except OSError as error:
        log.error(
            "rmq_checkpoint outdated, not corrected path=%s cause=%s; remove it before the next start",
            path,
            error,
        )
