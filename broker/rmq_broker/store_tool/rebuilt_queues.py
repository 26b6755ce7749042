"""Consume queues rebuilt from the log in a separate folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .expected import Expected, Run
from .layout import BATCH_UNIT, LARGEST_BATCH, PLACEHOLDER, QUEUE_ENTRY
from .plain_records import QueueKey
from .verify_queues import place_of

DEFAULT_FILE_ENTRIES: Final = 300_000
_MIN_RECORD_BYTES: Final = 91
# A queue with this many pending bytes is written; all queues are when the sum reaches the second bound.
_QUEUE_BYTES: Final = 256 * 1024
_ALL_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Queue:
    folder: Path
    file_bytes: int
    written_to: int  # position in the queue, in bytes
    next: int  # queue offset behind the last message
    end: int  # log offset behind the last message
    pending: bytearray = field(default_factory=bytearray)


class RebuiltQueues:
    """Adds the expected entries of each part of the log, in order; then `finish`."""

    def __init__(
        self,
        folder: Path,
        batch_folder: Path,
        *,
        file_bytes: Callable[[bool], int],
        light_queues: Iterable[QueueKey],
        complain: Callable[[str], None],
        dry_run: bool,
    ) -> None:
        """`batch_folder` is for queues of batches. `file_bytes` returns the size of a queue's files; its
        argument is whether the entries are units of batches. `light_queues` are the existing light message
        queues (LMQ); others are not created. `complain` receives problems of the log.
        """
        self.entries = 0
        self._folder = folder
        self._batch_folder = batch_folder
        self._file_bytes = file_bytes
        self._light_queues = frozenset(light_queues)
        self._complain = complain
        self._dry_run = dry_run
        self._queues: dict[QueueKey, _Queue] = {}
        self._pending_bytes = 0

    def __len__(self) -> int:
        return len(self._queues)

    def add(self, expected: Expected) -> None:
        """Add the entries of one part. Raises OSError."""
        for key, run in expected.runs:
            if not run.is_light or key in self._light_queues:
                self._add_run(key, run)
        if self._pending_bytes > _ALL_BYTES:
            self._write_all()

    def finish(self) -> None:
        """Write the pending entries. Raises OSError."""
        self._write_all()

    def _add_run(self, key: QueueKey, run: Run) -> None:
        size = BATCH_UNIT.size if run.is_batch else QUEUE_ENTRY.size
        first_physical, _, _ = QUEUE_ENTRY.unpack_from(run.entries)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._begin(key, run)
        elif run.first != queue.next and not self._close_gap(key, queue, run, first_physical):
            return
        queue.pending += run.entries
        self.entries += len(run.entries) // size
        self._pending_bytes += len(run.entries)
        queue.next = run.next
        physical, length, _ = QUEUE_ENTRY.unpack_from(run.entries, len(run.entries) - size)
        queue.end = physical + length
        if len(queue.pending) >= _QUEUE_BYTES:
            self._write(queue)

    def _begin(self, key: QueueKey, run: Run) -> _Queue:
        place = self._batch_folder if run.is_batch else self._folder
        folder = place / os.fsdecode(key[0]) / str(key[1])
        file_bytes = self._file_bytes(run.is_batch)
        start = 0
        pending = bytearray()
        if not run.is_batch:
            at = run.first * QUEUE_ENTRY.size
            start = at - at % file_bytes
            pending += PLACEHOLDER * ((at - start) // QUEUE_ENTRY.size)
        return _Queue(folder, file_bytes, start, run.first, 0, pending)

    def _close_gap(self, key: QueueKey, queue: _Queue, run: Run, first_physical: int) -> bool:
        """Fill the queue up to the start of a run; return False if the run gets no entries."""
        if run.first == 0:
            # The topic was deleted and created again.
            self._drop(queue)
            return True
        if run.first < queue.next:
            self._complain(
                f"log at {first_physical}: the queue offsets {run.first} to "
                f"{min(run.next, queue.next) - 1} of {place_of(key)} are used twice; the later messages "
                "get no entries"
            )
            return False
        missing = run.first - queue.next
        records = -(-missing // (LARGEST_BATCH if run.is_batch else 1))
        if records * _MIN_RECORD_BYTES > first_physical - queue.end:
            self._complain(
                f"log at {first_physical}: the message has the queue offset {run.first} in {place_of(key)}, "
                f"after {queue.next - 1}: the messages between them do not fit into the log; it gets no entry"
            )
            return False
        self._complain(
            f"log at {first_physical}: messages {queue.next} to {run.first - 1} of {place_of(key)} are "
            f"missing before it"
        )
        if not run.is_batch:
            queue.pending += PLACEHOLDER * missing
            self._pending_bytes += QUEUE_ENTRY.size * missing
        return True

    def _drop(self, queue: _Queue) -> None:
        self._pending_bytes -= len(queue.pending)
        queue.pending.clear()
        queue.written_to = queue.next = 0
        if queue.folder.is_dir():
            for path in queue.folder.iterdir():
                path.unlink()

    def _write_all(self) -> None:
        for queue in self._queues.values():
            self._write(queue)

    def _write(self, queue: _Queue) -> None:
        content = memoryview(bytes(queue.pending))
        self._pending_bytes -= len(content)
        queue.pending.clear()
        if self._dry_run:
            return
        while content:
            start = queue.written_to - queue.written_to % queue.file_bytes
            part = content[: start + queue.file_bytes - queue.written_to]
            queue.folder.mkdir(parents=True, exist_ok=True)
            _write_at(queue.folder / f"{start:020d}", queue.written_to - start, part, queue.file_bytes)
            queue.written_to += len(part)
            content = content[len(part) :]


def _write_at(path: Path, position: int, content: memoryview, file_bytes: int) -> None:
    """Write into a file of the size of all files."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if position == 0:
            os.ftruncate(descriptor, file_bytes)
        while content:
            written = os.pwrite(descriptor, content, position)
            position += written
            content = content[written:]
    finally:
        os.close(descriptor)
