"""The epochs of a log: which of the group's masters wrote which part of it.

Each master that the controller elects gets a number above those before it, its epoch. A replica compares its
epochs with its master's. Where both have an epoch that begins at the same offset, both logs agree at least up
to there.

The file `epochFileCheckpoint` has the format of Apache RocketMQ 5.3.3 (EpochFileCache, CheckpointFile): the
number of epochs, the CRC of the lines that follow, and a line `epoch-offset` for each.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rmq_remoting.daemon.atomic_file import replace_file

from ..errors import StoreDamaged

_CRC_MASK: Final = 0x7FFFFFFF
_NO_CRC: Final = 0  # such a file is not checked


class Epoch(NamedTuple):
    """A master's number, and the log offset at which its part of the log begins."""

    number: int
    start: int


def encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    """Return the content of the file."""
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode()
    return b"%d\n%d\n%b" % (len(epochs), zlib.crc32(lines) & _CRC_MASK, lines)


def decode_epochs(content: bytes) -> tuple[Epoch, ...]:
    """Return the epochs of a file's content. Raises ValueError."""
    count, crc, *lines = content.decode("ascii").splitlines()
    joined = "".join(f"{line}\n" for line in lines).encode()
    if int(crc) not in (_NO_CRC, zlib.crc32(joined) & _CRC_MASK):
        raise ValueError(f"the CRC of its lines is not {crc}")
    epochs = tuple(_of_line(line) for line in lines)
    if len(epochs) != int(count):
        raise ValueError(f"it has {len(epochs)} epochs instead of {count}")
    if any(later.number <= before.number for before, later in pairwise(epochs)):
        raise ValueError("its epochs are not in order")
    return epochs


def agreeing_end(own: Sequence[Epoch], own_end: int, master: Sequence[Epoch], master_end: int) -> int:
    """Return the log offset up to which two logs agree by their epochs; -1 if they have none in common.

    The newest epoch counts that begins at the same offset in both. (Apache RocketMQ 5.3.3,
    EpochFileCache.findConsistentPoint.)
    """
    ends_of_master = {epoch: end for epoch, end in _with_ends(master, master_end)}
    for epoch, end in reversed(_with_ends(own, own_end)):
        if epoch in ends_of_master:
            return min(end, ends_of_master[epoch])
    return -1


def _with_ends(epochs: Sequence[Epoch], log_end: int) -> list[tuple[Epoch, int]]:
    ends = [epoch.start for epoch in epochs[1:]] + [log_end]
    return list(zip(epochs, ends, strict=False))


def _of_line(line: str) -> Epoch:
    number, start = line.split("-")
    return Epoch(int(number), int(start))


class EpochFile:
    """The epochs of this log; every change is durable on return. Belongs to the loop's thread once loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.epochs: tuple[Epoch, ...] = ()

    @property
    def last(self) -> int:
        """The number of the newest epoch; -1 without any."""
        return self.epochs[-1].number if self.epochs else -1

    def load(self, log_begin: int, log_end: int) -> None:
        """Read the file, and drop epochs of a part that the log does not have. Raises StoreDamaged, OSError.

        A power cut may have left less of the log than the file says.
        """
        self.epochs = self._read()
        self._set(epoch for epoch in self.epochs if epoch.start <= log_end)
        self.drop_deleted(log_begin)

    def at(self, offset: int) -> tuple[Epoch, int | None] | None:
        """Return the epoch that has a log offset, and where it ends: None, if it is the newest.

        None if the offset is before the first epoch.
        """
        index = bisect_right(self.epochs, offset, key=lambda epoch: epoch.start) - 1
        if index < 0:
            return None
        is_last = index + 1 == len(self.epochs)
        return self.epochs[index], None if is_last else self.epochs[index + 1].start

    def begin(self, number: int, log_begin: int, log_end: int) -> None:
        """Note that this broker is the master of an epoch from the end of its log on. Raises OSError; blocks.

        A log without epochs, as of a group that had no controller, is of this epoch as a whole. Apache's
        broker lets the epoch begin at its end there, and cannot send replicas the part before.
        """
        older = [epoch for epoch in self.epochs if epoch.number < number]
        if not older:
            self._set([Epoch(number, max(log_begin, 0))])
        else:
            self._set(older)
            self.received(Epoch(number, log_end))

    def received(self, epoch: Epoch) -> None:
        """Note an epoch that a master sends bytes of. Raises OSError; blocks.

        An epoch in which nothing was written is not kept, as with Apache's broker.
        """
        last = self.epochs[-1] if self.epochs else None
        if last is None or (epoch.number > last.number and epoch.start > last.start):
            self._set([*self.epochs, epoch])

    def follow(self, master: Iterable[Epoch], log_end: int) -> None:
        """Take over the epochs of a master that has this whole log. Raises OSError; blocks."""
        self._set(epoch for epoch in master if epoch.start < log_end)

    def truncate(self, offset: int) -> None:
        """Drop the epochs that begin at `offset` or behind it. Raises OSError; blocks."""
        self._set(epoch for epoch in self.epochs if epoch.start < offset)

    def drop_deleted(self, log_begin: int) -> None:
        """Drop the epochs whose part of the log is deleted. Raises OSError; blocks."""
        keep = max(0, bisect_right(self.epochs, log_begin, key=lambda epoch: epoch.start) - 1)
        self._set(self.epochs[keep:])

    def _set(self, epochs: Iterable[Epoch]) -> None:
        changed = tuple(epochs)
        if changed == self.epochs:
            return
        if changed:
            replace_file(self._path, encode_epochs(changed), keep_backup=True)
        else:
            self._path.unlink(missing_ok=True)
            self._backup.unlink(missing_ok=True)
        self.epochs = changed

    @property
    def _backup(self) -> Path:
        return self._path.with_name(f"{self._path.name}.bak")

    def _read(self) -> tuple[Epoch, ...]:
        problem = ""
        for path in (self._path, self._backup):
            try:
                content = path.read_bytes()
                if content.strip():
                    return decode_epochs(content)
            except FileNotFoundError:
                continue
            except ValueError as error:
                problem = problem or f"{path} is not readable: {error}"
        if problem:
            raise StoreDamaged(
                f"{problem}. Restore it from a backup. Without one, remove it and its .bak file: the log is "
                "then compared with the master's byte by byte"
            )
        return ()
