"""State of a store directory: how and by which broker it was left, and whether a broker uses it now."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from rmq_remoting.bodies import fastjson
from rmq_remoting.errors import JsonError

from .layout import CHECKPOINT, FINE_CHECKPOINT, crc32

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LOCKS: Final = Path("/proc/locks")
# type, whence, start, length, process (Linux, 64 bit)
_FLOCK: Final = struct.Struct("hhqqi4x")


class StoreState(Enum):
    """How the last broker left a directory, or that a broker uses it."""

    STOPPED = "stopped cleanly"
    KILLED = "killed"
    MACHINE_CRASHED = "the machine crashed"
    IN_USE = "in use by a broker"


class DirectoryUnusable(Exception):
    """The folder is no store directory, cannot be read, or is in use where it must not be."""


@dataclass(slots=True)
class Directory:
    """Facts of a store's root folder that decide which defects of the other files are errors."""

    root: Path
    state: StoreState
    is_ours: bool  # whether this project's broker used it; Apache's leaves no such marks
    checkpoint: (
        tuple[int, int, int] | None
    )  # store times in ms of log, queues, index; None: missing or damaged
    # Messages before `written` have their entries in the files; entries before `flushed` are on the disk.
    written: int | None = None
    flushed: int | None = None
    index_complete_to: int | None = None  # offset in the log, as noted by this project's broker
    batch_topics: frozenset[bytes] = frozenset()  # by their attributes or by their folders
    configured_batch_topics: frozenset[bytes] = frozenset()
    configured_topics: frozenset[bytes] | None = None  # None: unknown
    deleted: Mapping[bytes, int] = field(
        default_factory=dict
    )  # topics, and the end of the log at their deletion
    queue_ends: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)  # at the last clean stop

    @property
    def commit_log(self) -> Path:
        return self.root / "commitlog"

    @property
    def queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def batch_queues(self) -> Path:
        return self.root / "batchconsumequeue"

    @property
    def queue_extensions(self) -> Path:
        return self.root / "consumequeue_ext"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def config(self) -> Path:
        return self.root / "config"

    def queue_folder(self, topic: bytes, queue_id: int) -> Path:
        """Return the folder of a queue's files; queues of topics of batches have their own parent."""
        place = self.batch_queues if topic in self.batch_topics else self.queues
        return place / os.fsdecode(topic) / str(queue_id)


def queue_folders(place: Path) -> Iterator[tuple[bytes, int]]:
    """Yield topic and id of every queue that has a folder below `place`. Raises OSError."""
    for topic in _subfolders(place):
        for queue in _subfolders(topic):
            if queue.name.isascii() and queue.name.isdecimal():
                yield os.fsencode(topic.name), int(queue.name)


def open_directory(root: Path) -> Directory:
    """Read the state of a directory; nothing is changed. Raises DirectoryUnusable."""
    try:
        if not (root / "commitlog").is_dir():
            raise DirectoryUnusable(f"{root} is no store directory: it has no folder 'commitlog'")
        marks = _marks(root / "rmq_queues.json")
        index_marks = _marks(root / "rmq_index.json")
        topics = _topics(root / "config" / "topics.json")
        batch_topics = {topic for topic, _ in queue_folders(root / "batchconsumequeue")}
        found = Directory(
            root,
            _how_left(root),
            (root / "rmq_boot_id").exists() or (root / "rmq_queues.json").exists(),
            _checkpoint(root / "checkpoint"),
        )
    except OSError as error:
        raise DirectoryUnusable(f"{error.filename} cannot be read: {error.strerror}") from error
    found.written, found.flushed = _fine_checkpoint(root / "rmq_checkpoint") or (None, None)
    if isinstance(complete_to := index_marks.get("complete_to"), int):
        found.index_complete_to = complete_to
    if topics is not None:
        found.configured_topics = frozenset(name.encode() for name in topics)
        found.configured_batch_topics = frozenset(
            name.encode() for name, kind in topics.items() if kind == "BatchCQ"
        )
    found.batch_topics = found.configured_batch_topics | batch_topics
    found.deleted = {topic.encode(): end for topic, end in marks.get("deleted", {}).items()}
    if found.state is StoreState.STOPPED and marks.get("checkpoint") == list((found.checkpoint or ())[:2]):
        found.queue_ends = {
            topic.encode(): {int(queue): end for queue, end in ends.items()}
            for topic, ends in marks.get("ends", {}).items()
        }
    return found


def read_json(path: Path) -> Any:
    """Read a JSON file in the dialect of Apache's brokers. Raises ValueError, OSError."""
    content = path.read_bytes()
    if not content.strip():
        raise ValueError("it is empty")
    try:
        return fastjson.loads(content)
    except JsonError as error:
        raise ValueError(str(error)) from error


def read_json_or_backup(path: Path) -> Any:
    """Read a JSON file or else its `.bak`; None if neither can be read."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with suppress(OSError, ValueError):
            return read_json(candidate)
    return None


def is_locked(root: Path) -> bool:
    """Return whether a process, also this one, holds the directory's lock. Raises OSError.

    /proc/locks is read first, because closing a descriptor of the file would release a lock of this process.
    """
    path = root / "lock"
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    with suppress(OSError):
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "POSIX" and fields[5].rpartition(":")[2] == str(inode):
                return True
    with path.open("rb") as stream:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(stream, fcntl.F_GETLK, wanted)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def _how_left(root: Path) -> StoreState:
    if is_locked(root):
        return StoreState.IN_USE
    if not (root / "abort").exists():
        return StoreState.STOPPED
    with suppress(OSError):
        if (root / "rmq_boot_id").read_text().strip() != _BOOT_ID.read_text().strip():
            return StoreState.MACHINE_CRASHED
    return StoreState.KILLED


def _checkpoint(path: Path) -> tuple[int, int, int] | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < CHECKPOINT.size:
        return None
    log, queues, index, _, _ = CHECKPOINT.unpack_from(content)
    return log, queues, index


def _fine_checkpoint(path: Path) -> tuple[int, int] | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) != FINE_CHECKPOINT.size:
        return None
    _, written, flushed, crc = FINE_CHECKPOINT.unpack(content)
    return (written, flushed) if crc == crc32(content[:-4]) else None


def _marks(path: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError):
        marks = json.loads(path.read_bytes())
        if isinstance(marks, dict):
            return marks
    return {}


def _topics(path: Path) -> dict[str, str | None] | None:
    """Return the topics of topics.json with their attribute queue.type; None if the file cannot be read."""
    content = read_json_or_backup(path)
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    if not isinstance(table, dict):
        return None
    topics: dict[str, str | None] = {}
    for name, topic in table.items():
        attributes = topic.get("attributes") if isinstance(topic, dict) else None
        kind = attributes.get("queue.type") if isinstance(attributes, dict) else None
        topics[str(name)] = kind if isinstance(kind, str) else None
    return topics
