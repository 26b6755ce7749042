"""`rmq-store repair`: rebuild of queues and index from the log, and replacement of the old ones."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rmq_broker.store.directory_lock import DirectoryLock
from rmq_broker.store.errors import StoreDamaged
from rmq_remoting.daemon.atomic_file import replace_file, sync_folder

from .directory import Directory, DirectoryUnusable, open_directory, queue_folders
from .expected import expected_entries
from .findings import DEFAULT_LIMIT
from .index_files import DEFAULT_SLOTS, IndexFile, index_paths
from .layout import BATCH_UNIT, CHECKPOINT, QUEUE_ENTRY
from .log_files import FileReader, NumberedFile, NumberedFiles, numbered_files
from .log_scan import PART_BYTES, DamagedRange, LogScan
from .mapped_file import data_blocks, mapped
from .plain_records import QueueKey
from .progress import Progress
from .properties import DEFAULT_DELAY_LEVELS, parse_delay_levels
from .rebuilt_index import RebuiltIndex
from .rebuilt_queues import DEFAULT_FILE_ENTRIES, RebuiltQueues

_LIGHT_PREFIX: Final = b"%LMQ%"
_DEFAULT_INDEX_CAPACITY: Final = 20_000_000
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """Options of a repair."""

    truncate_at: int | None = None  # new end of the log
    dry_run: bool = False
    discard: bool = False  # do not keep the replaced files
    with_index: bool = True
    delay_levels: str = DEFAULT_DELAY_LEVELS
    index_slots: int | None = None
    index_entries: int | None = None
    queue_file_bytes: int | None = None
    batch_queue_file_bytes: int | None = None
    jobs: int | None = None
    part_bytes: int = PART_BYTES


@dataclass(slots=True)
class RepairReport:
    """Result of a repair."""

    messages: int = 0
    log_end: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    newest_ms: int = 0
    problems: list[str] = field(default_factory=list)  # unusable parts of the log: the first ones
    problem_count: int = 0
    kept: list[Path] = field(default_factory=list)  # folders with the replaced files

    def complain(self, text: str) -> None:
        """Note an unusable part of the log."""
        self.problem_count += 1
        if len(self.problems) < DEFAULT_LIMIT:
            self.problems.append(text)

    def lines(self, *, dry_run: bool) -> list[str]:
        """Return the report for people."""
        lines = list(self.problems)
        if self.problem_count > len(lines):
            lines.append(f"{self.problem_count - len(lines)} more of these")
        lines.append(
            f"{'would build' if dry_run else 'built'} {self.queues} queues with {self.queue_entries} "
            f"entries, {self.index_files} index files with {self.index_entries} entries, "
            f"from {self.messages} messages; the log ends at {self.log_end}"
        )
        return [*lines, *(f"kept {path}" for path in self.kept)]


def repair(
    root: Path, options: RepairOptions | None = None, clock: Callable[[], float] = time.time
) -> RepairReport:
    """Rebuild queues and index of a directory that no broker uses. Blocks.

    Files are replaced only after all new ones are flushed. The log is changed only with `truncate_at`. Raises
    DirectoryUnusable, also if a broker uses the directory; ValueError for an invalid `truncate_at`; OSError.
    """
    options = options or RepairOptions()
    directory = open_directory(root)
    if options.dry_run:
        return _Repair(directory, options, clock).run()
    try:
        lock = DirectoryLock(root, directory.commit_log)
    except StoreDamaged as error:
        raise DirectoryUnusable(f"{error}; stop that broker first") from error
    try:
        return _Repair(directory, options, clock).run()
    finally:
        lock.release()


class _Repair:
    """One run of the command."""

    def __init__(self, directory: Directory, options: RepairOptions, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._options = options
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(clock()))
        self._old_suffix = f".before-repair-{stamp}"
        self._new_suffix = f".repair-{stamp}"
        self._report = RepairReport()
        self._file_bytes: Counter[tuple[bool, int]] = Counter()
        self._light: list[QueueKey] = []
        self._index_marks: dict[str, object] = {}

    def run(self) -> RepairReport:
        options, directory, report = self._options, self._directory, self._report
        log = numbered_files(directory.commit_log)
        kept = log if options.truncate_at is None else _log_until(log, options.truncate_at)
        self._look_at_old_queues()
        new_queues = directory.root / f"consumequeue{self._new_suffix}"
        new_batch_queues = directory.root / f"batchconsumequeue{self._new_suffix}"
        new_index = directory.root / f"index{self._new_suffix}"
        try:
            self._build(kept, new_queues, new_batch_queues, new_index)
            if options.dry_run:
                return report
            new_queues.mkdir(exist_ok=True)
            if directory.batch_queues.exists():
                new_batch_queues.mkdir(exist_ok=True)
            os.sync()
            if options.truncate_at is not None:
                self._cut_log(log, options.truncate_at)
            self._replace(directory.queues, new_queues)
            if new_batch_queues.exists():
                self._replace(directory.batch_queues, new_batch_queues)
            if options.with_index:
                new_index.mkdir(exist_ok=True)
                self._replace(directory.index, new_index)
                # Without this, this project's broker would report the former files as missing.
                marks = directory.root / "rmq_index.json"
                if marks.exists():
                    replace_file(marks, json.dumps(self._index_marks).encode())
            # The new entries hold the tags codes that the old ones had in extension files.
            if directory.queue_extensions.is_dir():
                self._put_away(directory.queue_extensions)
        finally:
            shutil.rmtree(new_queues, ignore_errors=True)
            shutil.rmtree(new_batch_queues, ignore_errors=True)
            shutil.rmtree(new_index, ignore_errors=True)
        sync_folder(directory.root)
        return report

    def _build(self, log: NumberedFiles, new_queues: Path, new_batch_queues: Path, new_index: Path) -> None:
        options, report = self._options, self._report
        queues = RebuiltQueues(
            new_queues,
            new_batch_queues,
            file_bytes=self._queue_file_bytes,
            light_queues=self._light,
            complain=report.complain,
            dry_run=options.dry_run,
        )
        slots, capacity = self._index_layout()
        index = RebuiltIndex(new_index, slots=slots, capacity=capacity, dry_run=options.dry_run)
        progress = Progress("repair", sum(file.size for file in log.files))
        make = expected_entries(
            self._directory, parse_delay_levels(options.delay_levels), with_index=options.with_index
        )
        scan = LogScan(log, make, progress, jobs=options.jobs, part_bytes=options.part_bytes)
        try:
            for step in scan:
                if isinstance(step, DamagedRange):
                    report.complain(
                        f"log at {step.problem.at}: {step.problem.text}; the next valid record begins at "
                        f"{step.until}"
                    )
                    continue
                report.messages += step.records - step.collected.batches + step.collected.batched
                report.newest_ms = max(report.newest_ms, step.collected.last_ms)
                queues.add(step.collected)
                index.add(step.collected)
            queues.finish()
        finally:
            index.finish()
            progress.close()
        if scan.tail is not None and not scan.tail.is_empty:
            report.complain(f"log at {scan.tail.at}: {scan.tail.text}; the log ends here")
        report.log_end = scan.end
        report.queues, report.queue_entries = len(queues), queues.entries
        report.index_files, report.index_entries = len(index.files), index.entries
        self._index_marks = {"complete_to": scan.end, "files": index.files}

    # --- layout of the new files ---

    def _look_at_old_queues(self) -> None:
        """Note the file sizes of the old queues, and the light message queues (LMQ) among them."""
        for is_batch, place in ((False, self._directory.queues), (True, self._directory.batch_queues)):
            for topic, queue_id in queue_folders(place):
                size = numbered_files(place / os.fsdecode(topic) / str(queue_id)).file_bytes
                if size and size % _entry_bytes(is_batch) == 0:
                    self._file_bytes[is_batch, size] += 1
                if not is_batch and topic.startswith(_LIGHT_PREFIX):
                    self._light.append((topic, queue_id))

    def _queue_file_bytes(self, is_batch: bool) -> int:
        options, entry_bytes = self._options, _entry_bytes(is_batch)
        chosen = options.batch_queue_file_bytes if is_batch else options.queue_file_bytes
        if chosen is not None:
            return -(-chosen // entry_bytes) * entry_bytes
        sizes = [(count, size) for (batch, size), count in self._file_bytes.items() if batch is is_batch]
        return max(sizes)[1] if sizes else DEFAULT_FILE_ENTRIES * entry_bytes

    def _index_layout(self) -> tuple[int, int]:
        """Return slots and entries of an index file, as in the existing files."""
        slots, capacity = self._options.index_slots, self._options.index_entries
        for path in reversed(index_paths(self._directory.index)[0]):
            try:
                file = IndexFile(path)
            except (OSError, ValueError):
                continue
            try:
                found = self._options.index_slots or file.find_slots()
                if found is not None and slots in (None, found):
                    file.slots = found
                    slots, capacity = found, capacity or file.capacity
                    break
            finally:
                file.close()
        return slots or DEFAULT_SLOTS, capacity or _DEFAULT_INDEX_CAPACITY

    # --- replacement ---

    def _replace(self, place: Path, new: Path) -> None:
        """Replace an old folder by a new one, atomically where the system supports it."""
        if not place.exists():
            new.rename(place)
            return
        if _exchange(place, new):
            self._keep(new, place)
            return
        self._put_away(place)
        new.rename(place)

    def _put_away(self, place: Path) -> None:
        self._keep(place, place)

    def _keep(self, old: Path, place: Path) -> None:
        if self._options.discard:
            shutil.rmtree(old)
            return
        kept = place.with_name(place.name + self._old_suffix)
        old.rename(kept)
        self._report.kept.append(kept)

    def _cut_log(self, log: NumberedFiles, end: int) -> None:
        """Cut the log off at `end`; the removed part goes to another folder unless it is discarded."""
        kept = self._directory.root / f"commitlog{self._old_suffix}"
        for file in log.files:
            if file.end <= end:
                continue
            if not self._options.discard:
                kept.mkdir(exist_ok=True)
            if file.start >= end:
                if self._options.discard:
                    file.path.unlink()
                else:
                    file.path.rename(kept / file.path.name)
                continue
            if not self._options.discard:
                _copy_sparse(file.path, kept / file.path.name)
            descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, end - file.start)
                os.ftruncate(descriptor, file.size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if kept.exists():
            self._report.kept.append(kept)
        sync_folder(self._directory.commit_log)
        self._lower_checkpoints()

    def _lower_checkpoints(self) -> None:
        """Lower the checkpoints, which must not claim removed records."""
        root, newest_ms = self._directory.root, self._report.newest_ms
        (root / "rmq_checkpoint").unlink(missing_ok=True)
        path = root / "checkpoint"
        if self._directory.checkpoint is not None:
            content = path.read_bytes()
            values = CHECKPOINT.unpack_from(content)
            lower = CHECKPOINT.pack(*(min(value, newest_ms) for value in values[:3]), *values[3:])
            replace_file(path, lower + content[CHECKPOINT.size :])


def _entry_bytes(is_batch: bool) -> int:
    return BATCH_UNIT.size if is_batch else QUEUE_ENTRY.size


def _log_until(log: NumberedFiles, end: int) -> NumberedFiles:
    """Return the part of a log before an offset. Raises ValueError unless it is the boundary of a record."""
    if not log.start <= end <= log.end:
        raise ValueError(f"the log reaches from {log.start} to {log.end}; it cannot be cut off at {end}")
    files: list[NumberedFile] = []
    for file in log.files:
        if file.end <= end:
            files.append(file)
        elif file.start < end:
            _check_boundary(file, end - file.start)
            files.append(NumberedFile(file.path, file.start, end - file.start))
    return NumberedFiles(files, log.file_bytes)


def _check_boundary(file: NumberedFile, position: int) -> None:
    with mapped(file.path) as content:
        reader = FileReader(content, file.start)
        found: int | None = 0
        while found is not None and found < position:
            for record in reader.records(found, position):
                found = record.physical_offset - file.start
            if reader.position >= position or reader.is_full:
                break
            found = reader.next_valid(reader.position + 1, position)
        if reader.position == position:
            return
        before = file.start + (found if found is not None and reader.position > position else reader.position)
        raise ValueError(
            f"no record begins or ends at {file.start + position}; the nearest boundary before it is {before}"
        )


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders atomically; return False if the system does not support it."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(code, os.strerror(code), str(one))


def _copy_sparse(source: Path, target: Path) -> None:
    """Copy a file; blocks of zeros become holes."""
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        size = os.fstat(reading.fileno()).st_size
        for begin, end in data_blocks(reading.fileno(), 0, size):
            writing.seek(begin)
            writing.write(os.pread(reading.fileno(), end - begin, begin))
        writing.truncate(size)
        os.fsync(writing.fileno())
