"""Parts of the store's tests: small stores, messages, and an independent reader of the files on disk."""

from __future__ import annotations

import gc
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rmq_broker.store.appending.bit_maps import BitMapOf
from rmq_broker.store.appending.record_batch import BatchMessages
from rmq_broker.store.index.deferred_calls import CallSoon
from rmq_broker.store.log.record import MAGIC_BLANK, RecordTemplate, pack_host
from rmq_broker.store.message_store import MessageStore
from rmq_broker.store.queues.consume_queue import QUEUE_ENTRY
from rmq_broker.store.queues.entry_file import PLACEHOLDER_SIZE
from rmq_remoting.java_hash import tags_code
from rmq_remoting.message import MessageExt
from rmq_remoting.message_codec import decode_messages, decode_stored_message
from tests.support.broker_settings import broker_settings
from tests.support.clock import START_MS

LOG_FILE_BYTES = 64 * 1024
QUEUE_FILE_BYTES = 300 * 20
STORE_HOST = pack_host("10.0.0.1", 10911)
BORN_HOST = pack_host("10.0.0.2", 4444)


class Clock:
    """Seconds since 1970; each call advances it by `step_ms`."""

    def __init__(self, now_ms: int = START_MS, step_ms: int = 1) -> None:
        self.now_ms = now_ms
        self.step_ms = step_ms

    def __call__(self) -> float:
        self.now_ms += self.step_ms
        return (self.now_ms + 0.5) / 1000  # the half keeps rounding out of it


def new_store(
    root: Path,
    *,
    log_file_bytes: int = LOG_FILE_BYTES,
    queue_file_bytes: int = QUEUE_FILE_BYTES,
    clock: Clock | None = None,
    bit_map_of: BitMapOf | None = None,
    call_soon: CallSoon | None = None,
    **keys: object,
) -> MessageStore:
    """A store that is not open yet."""
    settings = broker_settings(
        storePathRootDir=str(root),
        mappedFileSizeCommitLog=log_file_bytes,
        mappedFileSizeConsumeQueue=queue_file_bytes,
        **({"maxHashSlotNum": 1000, "maxIndexNum": 5000} | keys),
    )
    return MessageStore(
        settings,
        settings,
        settings,
        Clock() if clock is None else clock,
        bit_map_of=bit_map_of,
        call_soon=call_soon,
    )


def hold_flushes(store: MessageStore) -> None:
    """Let messages wait for `store.appender.confirmed`, as with SYNC_FLUSH and a slow disk."""
    store.appender._defers_entries = lambda: True


def opened(root: Path, *, clock: Clock | None = None, **sizes: Any) -> MessageStore:
    """An open store; close it, or leave that to `close_all`."""
    store = new_store(root, clock=clock, **sizes)
    store.open()
    return store


def template(topic: str, queue_id: int = 0, **changes: Any) -> RecordTemplate:
    fields = {"flag": 0, "sys_flag": 0, "reconsume_times": 0, "born_host_bytes": 8} | changes
    return RecordTemplate(topic, queue_id, store_host=STORE_HOST, **fields)


def put(
    store: MessageStore,
    body: bytes = b"hello",
    topic: str = "TopicA",
    queue_id: int = 0,
    *,
    tags: str = "",
    properties: bytes = b"",
) -> tuple[int, int]:
    """Store a message; return its physical offset and its queue offset."""
    if tags:
        properties += b"TAGS\x01" + tags.encode() + b"\x02"
    placed = store.put(
        store.queues.get_or_create(topic, queue_id),
        template(topic, queue_id),
        body,
        properties,
        tags_code=tags_code(tags),
        born_timestamp_ms=START_MS,
        born_host=BORN_HOST,
    )
    return placed.physical_offset, placed.queue_offset


def put_batch(
    store: MessageStore, bodies: list[bytes], topic: str = "TopicA", queue_id: int = 0
) -> tuple[list[int], int]:
    """Store a batch; return the physical offsets, and the queue offset of the first message."""
    count = len(bodies)
    messages = BatchMessages(range(count), bodies, [b"a\x01"] * count, b"b\x02", [0] * count)
    placed = store.put_batch(
        store.queues.get_or_create(topic, queue_id),
        template(topic, queue_id),
        messages,
        born_timestamp_ms=START_MS,
        born_host=BORN_HOST,
    )
    return list(placed.physical_offsets), placed.queue_offset


def fill(store: MessageStore, messages: int, topics: int = 1, queues: int = 1, size: int = 50) -> None:
    """Store messages in turn in a number of topics and queues; each body is different."""
    for number in range(messages):
        body = (b"%06d " % number).ljust(size, b"x")
        put(store, body, f"Topic{number % topics}", number // topics % queues, tags=f"T{number % 3}")


def queues_written(store: MessageStore, topic: str) -> list[int]:
    """The ids of a topic's queues with messages."""
    return sorted(number for number, queue in store.queues.of_topic(topic).items() if queue.max_offset)


def read_all(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0, *, last: int | None = None
) -> list[MessageExt]:
    """All messages of a queue, or those before offset `last`, pulled as a consumer does."""
    messages: list[MessageExt] = []
    offset = store.min_offset(topic, queue_id)
    end = store.max_offset(topic, queue_id) if last is None else last
    while offset < end:
        result = store.get(topic, queue_id, offset, min(32, end - offset), None)
        assert result.next_offset > offset
        messages += decode_messages(result.body, check_crc=True, decompress_bodies=False)
        offset = result.next_offset
    return messages


def bodies(
    store: MessageStore, topic: str = "TopicA", queue_id: int = 0, *, last: int | None = None
) -> list[bytes]:
    return [message.body for message in read_all(store, topic, queue_id, last=last)]


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as decoded by the reference codec, with its expected queue entry."""

    message: MessageExt
    raw: bytes

    @property
    def key(self) -> tuple[str, int]:
        return self.message.topic, self.message.queue_id

    @property
    def entry(self) -> tuple[int, int, int]:
        return self.message.physical_offset, len(self.raw), self._code

    @property
    def _code(self) -> int:
        """The hash of the tags; for a delayed message when it is due, by Apache's first three levels."""
        message = self.message
        if message.topic == "SCHEDULE_TOPIC_XXXX":
            return message.store_timestamp + {"1": 1000, "2": 5000, "3": 10_000}[message.properties["DELAY"]]
        return tags_code(message.tags or "")


def records_on_disk(root: Path) -> Iterator[Stored]:
    """The records of the commit log's files up to the first invalid one, by the reference codec."""
    for path in sorted((root / "commitlog").iterdir()):
        data, position, start = path.read_bytes(), 0, int(path.name)
        while position < len(data):
            size, magic = struct.unpack_from(">ii", data, position)
            if magic == MAGIC_BLANK:
                assert size == len(data) - position
                break
            if size == 0:
                assert not any(data[position:]), f"the log is not empty behind its end at {start + position}"
                return
            message = decode_stored_message(data, position, check_crc=True, decompress_body=False)
            assert message.physical_offset == start + position
            yield Stored(message, data[position : position + size])
            position += size


def entries_on_disk(root: Path, topic: str, queue_id: int) -> dict[int, tuple[int, int, int]]:
    """The entries of a queue by queue offset, read from its files; placeholders are left out."""
    entries: dict[int, tuple[int, int, int]] = {}
    for path in sorted((root / "consumequeue" / topic / str(queue_id)).iterdir()):
        for index, entry in zip(
            count(int(path.name) // 20), QUEUE_ENTRY.iter_unpack(path.read_bytes()), strict=False
        ):
            if entry[1] != PLACEHOLDER_SIZE and any(entry):
                entries[index] = entry
    return entries


def check_agreement(root: Path) -> int:
    """Check that log and queues on disk agree, with no offset used twice; return the number of messages.

    For stores whose queues begin at 0 and have no gaps.
    """
    expected: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    messages = 0
    for stored in records_on_disk(root):
        queue = expected.setdefault(stored.key, {})
        assert stored.message.queue_offset == len(queue), (
            f"of {stored.key} at {stored.message.physical_offset}"
        )
        queue[len(queue)] = stored.entry
        messages += 1
    for (topic, queue_id), entries in expected.items():
        assert entries_on_disk(root, topic, queue_id) == entries
    for folder in (root / "consumequeue").glob("*/*"):
        key = folder.parent.name, int(folder.name)
        assert key in expected or not entries_on_disk(root, *key)
    return messages


def machine_crashed(root: Path) -> None:
    """Make a closed directory look as if another boot of the machine had written it."""
    assert (root / "abort").exists()
    (root / "rmq_boot_id").write_text("another boot")


def stopped_cleanly(root: Path) -> None:
    """Make a closed directory look cleanly stopped, by its `abort` file."""
    (root / "abort").unlink()


def copy_of(root: Path, to: Path) -> Path:
    """A second directory with the same content; holes in files stay holes."""
    shutil.rmtree(to, ignore_errors=True)
    for path in root.rglob("*"):
        target = to / path.relative_to(root)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        with target.open("wb") as file:
            file.write(content.rstrip(b"\0"))
            file.truncate(len(content))
    return to


def log_file(root: Path, index: int = 0) -> Path:
    return sorted((root / "commitlog").iterdir())[index]


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Change bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def content_of(root: Path) -> dict[str, bytes]:
    """The content of each file below a directory, by relative path."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def open_files_of_process() -> int:
    """The number of open descriptors, without those of stores of earlier tests that are garbage."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))
