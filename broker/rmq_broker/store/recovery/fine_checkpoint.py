"""How far the queues' files go, as an offset in the log: `rmq_checkpoint`, which Apache's broker ignores.

Apache's checkpoint holds times, which lead to the file of the log that is to be read again; this leads to the
record.
"""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

log = logging.getLogger("rmq.store")

_CONTENT: Final = Struct(">4sqq")
_CRC: Final = Struct(">I")
_MAGIC: Final = b"RMQ1"


@dataclass(frozen=True, slots=True)
class FineCheckpoint:
    """Offsets in the log, each the end of a record."""

    written: int  # every message before it has its queue entry in the file: good after a crash of the process
    flushed: int  # log and entries before it are on the disk: good after a crash of the machine

    @classmethod
    def load(cls, path: Path) -> FineCheckpoint | None:
        """What the file says; None where there is none, or none that is whole."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != _CONTENT.size + _CRC.size:
            log.warning("%s has %d bytes and is left out of account", path, len(data))
            return None
        magic, written, flushed = _CONTENT.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _CONTENT.size)
        if magic != _MAGIC or crc != zlib.crc32(data[: _CONTENT.size]):
            log.warning("%s is damaged and left out of account", path)
            return None
        return cls(written, flushed)

    def save(self, path: Path, *, durable: bool) -> None:
        """Write the file; `durable`: and wait until it is on the disk. Raises OSError.

        In place: so few bytes of one block are written as a whole, and what is not shows in the CRC.
        """
        content = _CONTENT.pack(_MAGIC, self.written, self.flushed)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, content + _CRC.pack(zlib.crc32(content)), 0)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def distrust_written(path: Path) -> None:
    """After a failed flush: from now on the file says of nothing that it was written but what was flushed.

    The kernel drops pages that it could not write, in the same boot as well: the next start has to make all
    entries anew that are not known to be on the disk. A file that cannot be written is logged; blocks.
    """
    try:
        known = FineCheckpoint.load(path)
        if known is not None:
            FineCheckpoint(min(known.written, known.flushed), known.flushed).save(path, durable=True)
    except OSError as error:
        log.error("%s is not true any more, remove it before the next start: %s", path, error)
