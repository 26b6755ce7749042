"""Expected entries of queues and index, derived from the records of the log."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from mmap import mmap
from typing import Final

from .directory import Directory
from .layout import (
    BATCH_UNIT,
    COMPRESSED,
    INNER_BATCH,
    QUEUE_ENTRY,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLED_BACK,
    BadRecord,
    Record,
    body_of,
    inner_messages,
    is_compressed_as_said,
)
from .plain_records import PlainRecords, QueueKey
from .properties import LIGHT_QUEUES, index_hash, index_keys, inner_batch, light_queues, tags_code

_pack_entry: Final = QUEUE_ENTRY.pack
_BODY_CHECKED: Final = INNER_BATCH | COMPRESSED
_KEPT_PROBLEMS: Final = 100  # per part of the log
_WITHOUT_ENTRY: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLED_BACK)


@dataclass(slots=True)
class Run:
    """Entries of one queue with consecutive offsets, packed as in its files."""

    first: int  # queue offset
    next: int  # queue offset behind the last message
    is_batch: bool
    is_light: bool  # of a light message queue (LMQ), which only some brokers fill
    entries: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Expected:
    """Expected entries and problems of one part of the log. Of each problem, the first places are kept."""

    runs: list[tuple[QueueKey, Run]] = field(default_factory=list)
    # Index entries, packed without time and previous entry, and their store times (see IndexItems).
    index: bytes = b""
    index_times: array[int] = field(default_factory=lambda: array("q"))
    index_times_rise: bool = True
    message_bytes: int = 0
    batches: int = 0  # records that are inner batches
    batched: int = 0  # messages in them
    last_ms: int = 0  # highest store time
    invalid_batches: list[tuple[int, str]] = field(default_factory=list)  # offset and problem
    torn_properties: list[int] = field(
        default_factory=list
    )  # offsets of records whose properties end in zeros
    miscompressed: list[int] = field(
        default_factory=list
    )  # offsets of bodies that are not compressed as flagged


class ExpectedEntries:
    """Collects the expected entries of one part of the log."""

    def __init__(
        self,
        batch_topics: frozenset[bytes],
        deleted: Mapping[bytes, int],
        delays_ms: tuple[int, ...],
        with_index: bool,
    ) -> None:
        self._batch_topics = batch_topics
        self._deleted = deleted
        self._delays_ms = delays_ms
        self._with_index = with_index
        self._plain = PlainRecords(with_index=with_index)
        self._allowed: set[bytes] = set()
        self._expected = Expected()

    def add(self, data: mmap | bytes, record: Record) -> None:
        """Add a record, in the order of the log."""
        expected = self._expected
        time_ms, sys_flag = record.store_time_ms, record.sys_flag
        plain = self._plain
        plain.note(record.size, time_ms)
        if record.properties.endswith(b"\0") and len(expected.torn_properties) < _KEPT_PROBLEMS:
            expected.torn_properties.append(record.physical_offset)
        if sys_flag & _BODY_CHECKED:
            self._check_body(body_of(data, record), record)
        if sys_flag & TRANSACTION_MASK not in _WITHOUT_ENTRY:
            if record.topic in self._batch_topics:
                self._add_batch(record)
            else:
                self._add_entry(record)
                if record.topic not in self._allowed and record.topic not in self._deleted:
                    self._allowed.add(record.topic)
                    plain.allow(record.topic)
        if self._with_index:
            topic, physical_offset = record.topic, record.physical_offset
            for key in index_keys(record):
                plain.add_index_entry(index_hash(topic, key), physical_offset, time_ms)

    def add_plain(self, data: bytes, position: int, until: int, start: int) -> tuple[int, int]:
        """Add records from `position` on and before `until`, as long as they need no closer look.

        `start` is the log offset of the first byte of `data`, a part of a file. Returns the position behind
        the last record, and the number of records.
        """
        before = self._plain.records
        position = self._plain.add_all(data, position, until, start)
        return position, self._plain.records - before

    def result(self) -> Expected:
        """Return the collected entries."""
        expected, plain = self._expected, self._plain
        for key, run in plain.runs:
            run.pack()
            expected.runs.append((key, Run(run.first, run.next, run.is_batch, run.is_light, run.entries)))
        expected.message_bytes, expected.last_ms = plain.message_bytes, plain.last_ms
        expected.index, expected.index_times = plain.index()
        expected.index_times_rise = plain.times_rise
        return expected

    def _check_body(self, body: bytes, record: Record) -> None:
        expected = self._expected
        if record.sys_flag & COMPRESSED:
            if len(expected.miscompressed) < _KEPT_PROBLEMS and not is_compressed_as_said(record, body):
                expected.miscompressed.append(record.physical_offset)
            return
        text = self._batch_problem(record, body)
        if text and len(expected.invalid_batches) < _KEPT_PROBLEMS:
            expected.invalid_batches.append((record.physical_offset, text))

    def _batch_problem(self, record: Record, body: bytes) -> str:
        """Return the problem with a record that is flagged as an inner batch; empty text if there is none."""
        batch = inner_batch(record)
        try:
            count = sum(1 for _ in inner_messages(body))
        except BadRecord as bad:
            return str(bad)
        self._expected.batches += 1
        self._expected.batched += count
        if batch is None:
            is_batch = record.topic in self._batch_topics
            return "the inner batch lacks INNER_NUM or INNER_BASE, or they are invalid" if is_batch else ""
        if count != batch[1]:
            return f"the inner batch has {count} messages, INNER_NUM says {batch[1]}"
        if record.queue_offset != batch[0]:
            return f"the queue offset is {record.queue_offset}, INNER_BASE says {batch[0]}"
        return ""

    def _add_entry(self, record: Record) -> None:
        plain, topic, offset = self._plain, record.topic, record.queue_offset
        code = tags_code(record, self._delays_ms)
        if not self._deleted or record.physical_offset >= self._deleted.get(topic, 0):
            plain.add_entry(topic, record.queue_id, offset, record.physical_offset, record.size, code)
        if LIGHT_QUEUES in record.properties:
            entry = _pack_entry(record.physical_offset, record.size, code)
            for name, queue_id, light_offset in light_queues(record):
                run = plain.run((name, queue_id), light_offset, is_light=True)
                run.add(entry, light_offset + 1)

    def _add_batch(self, record: Record) -> None:
        if record.physical_offset < self._deleted.get(record.topic, 0):
            return
        first = record.queue_offset
        _, count = inner_batch(record) or (first, 1)
        unit = BATCH_UNIT.pack(
            record.physical_offset,
            record.size,
            tags_code(record, self._delays_ms),
            record.store_time_ms,
            first,
            count,
            -1,
            0,
        )
        self._plain.run((record.topic, record.queue_id), first, is_batch=True).add(unit, first + count)


def expected_entries(
    directory: Directory, delays_ms: tuple[int, ...], *, with_index: bool = True
) -> Callable[[], ExpectedEntries]:
    """Return a factory of collectors for a directory, which can be sent to another process."""
    return partial(ExpectedEntries, directory.batch_topics, dict(directory.deleted), delays_ms, with_index)
