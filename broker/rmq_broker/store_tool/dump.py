"""`rmq-store dump`: the messages of a log, one per line."""

from __future__ import annotations

import base64
import difflib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Final

from rmq_remoting.compression import CompressionType, decompress
from rmq_remoting.message_errors import DecompressionError, MessageDecodeError

from .directory import Directory, open_directory, queue_folders
from .layout import (
    BATCH_UNIT,
    COMPRESSED,
    INNER_BATCH,
    QUEUE_ENTRY,
    BadRecord,
    InnerMessage,
    Record,
    body_of,
    inner_messages,
)
from .log_files import FileReader, NumberedFile, NumberedFiles, Problem, numbered_files, record_at
from .mapped_file import mapped
from .progress import Progress
from .properties import (
    DEFAULT_DELAY_LEVELS,
    all_properties,
    inner_batch,
    parse_delay_levels,
    property_of,
    tags_code,
)
from .queue_files import QueueFiles
from .times import utc_text

_MESSAGE_ID_DIGITS: Final = (32, 56)
_MAX_BODY_BYTES: Final = 128 * 1024 * 1024
_SHOWN_TOPICS: Final = 20
TABLE_HEAD: Final = (
    f"{'offset':>14} {'size':>8}  {'stored (UTC)':<23}  {'topic/queue':<30} {'number':>9}  {'tags':<10} keys"
)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Conditions that a message must meet, and the form of the output."""

    topic: str | None = None
    queue: int | None = None
    from_offset: int | None = None  # in the queue
    count: int | None = None
    key: str | None = None
    message_id: str | None = None  # the broker's id, or the client's (UNIQ_KEY)
    since_ms: int | None = None
    until_ms: int | None = None
    physical_offset: int | None = None
    body: bool = False
    delay_levels: str = DEFAULT_DELAY_LEVELS


@dataclass(frozen=True, slots=True)
class Stored:
    """A message, with its stored body if it was requested."""

    record: Record
    body: bytes | None


def dump(
    root: Path,
    options: DumpOptions,
    on_damage: Callable[[str], None] = lambda text: None,
    show_progress: bool = False,
) -> Iterator[Stored]:
    """Yield the requested messages in the order of the log; `on_damage` receives damaged ranges on the way.

    Raises DirectoryUnusable, OSError, and ValueError if a single requested message does not exist.
    """
    directory = open_directory(root)
    log = numbered_files(directory.commit_log)
    single = _single_offset(options, log)
    left = options.count
    progress = Progress("dump", sum(file.size for file in log.files)) if show_progress else None
    found = _one(log, single) if single is not None else _all(directory, log, options, on_damage)
    for record, data in found:
        if progress is not None:
            progress.advance(record.size)
        if not _is_wanted(data, record, options):
            continue
        yield Stored(record, body_of(data, record) if options.body else None)
        if left is not None:
            left -= 1
            if left <= 0:
                break
    if progress is not None:
        progress.close()


def as_json(stored: Stored, delays_ms: tuple[int, ...]) -> dict[str, Any]:
    """Return all fields of a message; the body as text if it is UTF-8, otherwise as base64."""
    record = stored.record
    properties = {_text(name): _text(value) for name, value in all_properties(record.properties).items()}
    row: dict[str, Any] = {
        "phyOffset": record.physical_offset,
        "size": record.size,
        "magic": record.magic.hex(),
        "topic": _text(record.topic),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_time_ms,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.store_time_ms,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyCRC": record.body_crc,
        "bodySize": record.body_bytes,
        "offsetMsgId": message_id(record),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "properties": properties,
        "tagsCode": tags_code(record, delays_ms),
    }
    if (batch := inner_batch(record)) is not None:
        row["messages"] = batch[1]
    if stored.body is not None:
        row.update(_readable_body(record, stored.body))
        inner = _inner_messages(record, stored.body)
        if inner:
            row["innerMessages"] = [
                _inner_row(record.queue_offset + number, message) for number, message in enumerate(inner)
            ]
    return row


def as_table_row(stored: Stored) -> str:
    """Return the line of a message under TABLE_HEAD."""
    record = stored.record
    place = f"{_text(record.topic)}/{record.queue_id}"
    tags = _text(property_of(record.properties, b"TAGS") or b"")
    keys = _text(property_of(record.properties, b"KEYS") or b"")
    line = (
        f"{record.physical_offset:>14} {record.size:>8}  {utc_text(record.store_time_ms):<23}  {place:<30} "
        f"{_numbers(record):>9}  {tags:<10} {keys}"
    )
    if stored.body is not None:
        inner = _inner_messages(record, stored.body)
        for number, message in enumerate(inner):
            (kind, body), *_ = _readable(message.body).items()
            line += f"\n    {record.queue_offset + number} {kind}: {body}"
        if not inner:
            (kind, body), *_ = _readable_body(record, stored.body).items()
            line += f"\n    {kind}: {body}"
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in line)


def as_line(stored: Stored, delays_ms: tuple[int, ...]) -> str:
    """Return the JSON of a message on one line."""
    return json.dumps(as_json(stored, delays_ms), ensure_ascii=False)


def check_topic(root: Path, options: DumpOptions) -> None:
    """Raise ValueError for a topic that the store does not know, as a name with a spelling mistake."""
    if options.topic is None:
        return
    directory = open_directory(root)
    known = set(directory.configured_topics or ()) | {
        topic for place in (directory.queues, directory.batch_queues) for topic, _ in queue_folders(place)
    }
    if options.topic.encode() in known or not known:
        return
    names = sorted(_text(topic) for topic in known)
    near = difflib.get_close_matches(options.topic, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names[:_SHOWN_TOPICS])}"
    raise ValueError(f"topic {options.topic} is not in this store; {hint}")


def delays_of(options: DumpOptions) -> tuple[int, ...]:
    """Return the delay of each level in ms. Raises ValueError."""
    return parse_delay_levels(options.delay_levels)


def host_text(host: bytes) -> str:
    """Format a record's packed address as `host:port`."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"{socket.inet_ntoa(host[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, host[:16])}]:{port}"


def message_id(record: Record) -> str:
    """Return the broker's id of the message: its address and the log offset."""
    return (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper()


# --- selection of records ---


def _all(
    directory: Directory, log: NumberedFiles, options: DumpOptions, on_damage: Callable[[str], None]
) -> Iterator[tuple[Record, mmap | bytes]]:
    begin = _begin(directory, log, options)
    gap: Problem | None = None
    files = _files_in_time(log.files, options)
    for file in files:
        if file.end <= begin:
            continue
        with mapped(file.path) as content:
            data = content.data
            reader = FileReader(content, file.start)
            position: int | None = max(0, begin - file.start)
            while position is not None:
                for record in reader.records(position, len(data)):
                    if gap is not None:
                        on_damage(f"log at {gap.at}: {gap.text}; continuing at {record.physical_offset}")
                        gap = None
                    yield record, data
                if reader.problem is None:
                    break
                gap = gap or reader.problem
                position = reader.next_valid(reader.position + 1, len(data))
    if gap is not None and not gap.is_empty:
        on_damage(f"log at {gap.at}: {gap.text}; no valid record follows")


def _one(log: NumberedFiles, offset: int) -> Iterator[tuple[Record, mmap | bytes]]:
    try:
        record = record_at(log, offset)
    except BadRecord as bad:
        raise ValueError(f"no message at {offset} of the log: {bad}") from bad
    for file in log.files:
        if file.start <= offset < file.end:
            with mapped(file.path) as content:
                yield record, content.data


def _single_offset(options: DumpOptions, log: NumberedFiles) -> int | None:
    """Return the log offset of a message requested by offset or broker id; None if a search is needed."""
    if options.physical_offset is not None:
        return options.physical_offset
    text = options.message_id
    if text is None or len(text) not in _MESSAGE_ID_DIGITS:
        return None
    try:
        offset = int(text[-16:], 16)
        record = record_at(log, offset)
    except (ValueError, BadRecord):
        return None  # a client's unique key has the same number of digits
    return offset if message_id(record) == text.upper() else None


def _begin(directory: Directory, log: NumberedFiles, options: DumpOptions) -> int:
    """Return a log offset to start at, before all requested messages: from the queue, if it is intact."""
    if options.topic is None or options.queue is None or not options.from_offset:
        return log.start
    topic, wanted = options.topic.encode(), options.from_offset
    is_batch = topic in directory.batch_topics
    queue = QueueFiles(directory.queue_folder(topic, options.queue), is_batch=is_batch)
    number = wanted
    if is_batch:
        # The last unit that begins at or before the requested offset.
        number = queue.find(lambda unit: BATCH_UNIT.unpack(unit)[4] <= wanted, queue.end_of_entries()) - 1
        if number < queue.first:
            return log.start
    offset, size, _ = QUEUE_ENTRY.unpack_from(queue.read(number, 1))
    if size <= 0:
        return log.start
    try:
        record = record_at(log, offset)
    except BadRecord:
        return log.start
    is_there = record.queue_offset <= wanted < _end(record)
    return offset if is_there and (record.topic, record.queue_id) == (topic, options.queue) else log.start


def _files_in_time(files: list[NumberedFile], options: DumpOptions) -> list[NumberedFile]:
    """Omit the files whose successor begins before the requested time."""
    if options.since_ms is None:
        return files
    first = 0
    for index, file in enumerate(files):
        try:
            with mapped(file.path) as content:
                record = next(FileReader(content, file.start).records(0, min(1, len(content.data))), None)
        except OSError:
            break
        if record is not None and record.store_time_ms < options.since_ms:
            first = index
    return files[first:]


def _is_wanted(data: mmap | bytes, record: Record, options: DumpOptions) -> bool:
    if options.topic is not None and record.topic != options.topic.encode():
        return False
    if options.queue is not None and record.queue_id != options.queue:
        return False
    if options.from_offset is not None and _end(record) <= options.from_offset:
        return False
    if options.since_ms is not None and record.store_time_ms < options.since_ms:
        return False
    if options.until_ms is not None and record.store_time_ms > options.until_ms:
        return False
    if options.key is None and options.message_id is None:
        return True
    all_of_it = [record.properties]
    if record.sys_flag & INNER_BATCH:
        all_of_it += [message.properties for message in _inner_messages(record, body_of(data, record))]
    if options.key is not None and not any(_has_key(raw, options.key.encode()) for raw in all_of_it):
        return False
    text = options.message_id
    return (
        text is None
        or message_id(record) == text.upper()
        or any(property_of(raw, b"UNIQ_KEY") == text.encode() for raw in all_of_it)
    )


def _has_key(properties: bytes, key: bytes) -> bool:
    keys = property_of(properties, b"KEYS")
    return keys is not None and key in keys.split(b" ")


# --- output ---


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _end(record: Record) -> int:
    """Return the queue offset behind a record."""
    batch = inner_batch(record)
    return record.queue_offset + (1 if batch is None else batch[1])


def _numbers(record: Record) -> str:
    """Format the queue offsets of a record."""
    last = _end(record) - 1
    return str(last) if last == record.queue_offset else f"{record.queue_offset}-{last}"


def _inner_messages(record: Record, body: bytes) -> list[InnerMessage]:
    """Return the messages of an inner batch; none for other records and broken batches."""
    if not record.sys_flag & INNER_BATCH:
        return []
    try:
        return list(inner_messages(_decompressed(record, body)))
    except (BadRecord, DecompressionError, MessageDecodeError):
        return []


def _inner_row(queue_offset: int, message: InnerMessage) -> dict[str, Any]:
    properties = {_text(name): _text(value) for name, value in all_properties(message.properties).items()}
    return {
        "queueOffset": queue_offset,
        "flag": message.flag,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "properties": properties,
        **_readable(message.body),
    }


def _decompressed(record: Record, body: bytes) -> bytes:
    """Return the decompressed body. Raises DecompressionError, MessageDecodeError."""
    if not record.sys_flag & COMPRESSED:
        return body
    return decompress(body, CompressionType.of_sys_flag(record.sys_flag), _MAX_BODY_BYTES)


def _readable_body(record: Record, body: bytes) -> dict[str, str]:
    try:
        return _readable(_decompressed(record, body))
    except (DecompressionError, MessageDecodeError) as error:
        return {"bodyBase64": base64.b64encode(body).decode(), "bodyProblem": str(error)}


def _readable(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
