"""Small store directories for the tests of `rmq-store`: a log, and the files derived from it."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from rmq_broker.store_tool.repair import RepairOptions, RepairReport, repair
from rmq_broker.store_tool.verify import VerifyOptions, verify
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import encode_stored_message

START_MS = 1_700_000_000_000
LOG_FILE_BYTES = 4096
QUEUE_FILE_BYTES = 10 * 20
BATCH_QUEUE_FILE_BYTES = 3 * 46
INDEX_SLOTS = 7
INDEX_ENTRIES = 40
BLANK_MAGIC = 0xCBD43194
CONFIG: dict[str, dict[str, object]] = {
    "topics.json": {"dataVersion": {}, "topicConfigTable": {}},
    "consumerOffset.json": {"offsetTable": {}},
    "delayOffset.json": {"offsetTable": {}},
}


class StoreWriter:
    """Writes messages into a store's log as a broker does: in order, with a blank record ending each file."""

    def __init__(self, root: Path, *, file_bytes: int = LOG_FILE_BYTES, start: int = 0) -> None:
        self.root = root
        self.file_bytes = file_bytes
        self.end = start
        self.messages: list[MessageExt] = []
        self._next: dict[tuple[str, int], int] = {}
        self._now_ms = START_MS
        (root / "commitlog").mkdir(parents=True)
        (root / "config").mkdir()
        for name, content in CONFIG.items():
            (root / "config" / name).write_text(json.dumps(content))

    def put(
        self,
        topic: str = "TopicA",
        queue_id: int = 0,
        body: bytes = b"hello",
        *,
        properties: dict[str, str] | None = None,
        checksum: bool = False,
        step_ms: int = 700,
        messages: int = 1,
        queue_offset: int | None = None,
        **fields: object,
    ) -> MessageExt:
        """Append one message; `messages` is the number of queue offsets that it takes."""
        key = topic, queue_id
        self._now_ms += step_ms
        message = MessageExt(
            topic,
            body,
            properties=dict(properties or {}),
            queue_id=queue_id,
            queue_offset=self._next.get(key, 0) if queue_offset is None else queue_offset,
            born_timestamp=self._now_ms - 3,
            born_host=("10.0.0.2", 4444),
            store_timestamp=self._now_ms,
            store_host=("10.0.0.1", 10911),
        )
        for name, value in fields.items():
            setattr(message, name, value)
        self._next[key] = message.queue_offset + messages
        size = len(encode_stored_message(message, append_checksum=checksum))
        room = self.file_bytes - self.end % self.file_bytes
        if size + 8 > room:
            self._write(struct.pack(">iI", room, BLANK_MAGIC))
            self.end += room - 8
        message.physical_offset = self.end
        message.store_size = size
        self._write(encode_stored_message(message, append_checksum=checksum))
        self.messages.append(message)
        return message

    def fill(self, count: int, *, checksum: bool = False) -> None:
        """Append messages of several topics and queues, with tags, keys, and different sizes."""
        for number in range(count):
            self.put(
                f"Topic{number % 2}",
                number // 2 % 2,
                b"%04d " % number + b"x" * (number * 37 % 300),
                properties={
                    "UNIQ_KEY": f"0A0000020001{number:020X}",
                    "KEYS": f"K{number} even" if number % 2 == 0 else f"K{number}",
                    "TAGS": f"T{number % 3}",
                },
                checksum=checksum,
            )

    def _write(self, content: bytes) -> None:
        start = self.end - self.end % self.file_bytes
        path = self.root / "commitlog" / f"{start:020d}"
        if not path.exists():
            with path.open("wb") as stream:
                stream.truncate(self.file_bytes)
        overwrite(path, self.end - start, content)
        self.end += len(content)


def finished(writer: StoreWriter, **options: object) -> Path:
    """Build queues and index of the written log; the directory is as after a clean stop."""
    rebuild(writer.root, discard=True, **options)
    newest_ms = max((message.store_timestamp for message in writer.messages), default=0)
    checkpoint = struct.pack(">qqqqq", newest_ms, newest_ms, newest_ms, 0, 0)
    (writer.root / "checkpoint").write_bytes(checkpoint.ljust(4096, b"\0"))
    return writer.root


def rebuild(root: Path, **options: object) -> RepairReport:
    """Repair a directory of these tests."""
    layout = {
        "index_slots": INDEX_SLOTS,
        "index_entries": INDEX_ENTRIES,
        "queue_file_bytes": QUEUE_FILE_BYTES,
        "batch_queue_file_bytes": BATCH_QUEUE_FILE_BYTES,
        "jobs": 1,
    }
    return repair(root, RepairOptions(**(layout | options)))  # type: ignore[arg-type]


def kinds_of(root: Path, **options: object) -> dict[str, int]:
    """Return the number of findings by kind."""
    return dict(verify(root, VerifyOptions(jobs=1, **options)).kinds)  # type: ignore[arg-type]


def errors_of(root: Path, **options: object) -> list[str]:
    """Return the lines of the errors."""
    report = verify(root, VerifyOptions(jobs=1, **options))  # type: ignore[arg-type]
    return [finding.line() for finding in report.findings if finding.is_error]


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Change bytes of a file in place."""
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(content)


def log_path(root: Path, offset: int = 0, file_bytes: int = LOG_FILE_BYTES) -> Path:
    """Return the file of the log that contains an offset."""
    return root / "commitlog" / f"{offset - offset % file_bytes:020d}"


def queue_path(root: Path, topic: str, queue_id: int = 0, start: int = 0) -> Path:
    """Return a file of a queue."""
    return root / "consumequeue" / topic / str(queue_id) / f"{start:020d}"


def index_path(root: Path, number: int = 0) -> Path:
    """Return one of the index files, oldest first."""
    return sorted((root / "index").iterdir())[number]


def killed(root: Path) -> None:
    """Make the directory look as after a kill of the broker."""
    (root / "abort").touch()


def made_by_ours(root: Path, *, written: int | None = None, flushed: int = 0) -> None:
    """Add the marks of this project's broker, of the present boot of the machine."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    (root / "rmq_boot_id").write_text(boot.read_text() if boot.exists() else "")
    if written is not None:
        content = struct.pack(">4sqq", b"RMQ1", written, flushed)
        (root / "rmq_checkpoint").write_bytes(content + struct.pack(">I", zlib.crc32(content)))
