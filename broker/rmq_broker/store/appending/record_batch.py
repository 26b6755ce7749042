"""Packing the records and queue entries of a batch column by column.

Packing a record by itself takes some two dozen steps of the interpreter. Here a field of all messages is
packed by one call, and its bytes are spread over copies of the first message's head.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct, pack
from typing import Final, NamedTuple

from ..log.record import RecordTemplate
from ..queues.consume_queue import QUEUE_ENTRY, QUEUE_ENTRY_BYTES

# For fewer messages, packing by columns costs more than it saves.
_COLUMNS_FROM: Final = 5
_MOST_CUT_AT_ONCE: Final = 256
_PARTS: Final = 5  # of a record: head, body, topic and length of the properties, own properties, shared ones
_CRC_AT: Final = 8
_FLAG_AT: Final = 16
_QUEUE_OFFSET_AT: Final = 20
_PHYSICAL_OFFSET_AT: Final = 28
_BODY_LENGTH_BYTES: Final = 4  # the last ones of the head
_ENTRY_SIZE_AT: Final = 8
_ENTRY_TAGS_AT: Final = 12
_WITHOUT_TOP_BIT: Final = bytes(value & 0x7F for value in range(256))
_COUNT_UP: Final = bytes(range(256))
_crc32 = zlib.crc32
_pack_length: Final = Struct(">h").pack


class BatchMessages(NamedTuple):
    """Messages of one target as columns; each message has its own properties, then the shared ones."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    own_properties: Sequence[bytes]
    shared_properties: bytes
    tags_codes: Sequence[int]

    def lengths(self) -> BatchLengths:
        """Return the lengths, to be computed once."""
        return BatchLengths(list(map(len, self.bodies)), list(map(len, self.own_properties)))


class BatchLengths(NamedTuple):
    """Lengths in bytes of the bodies and of the own properties of a batch's messages."""

    bodies: list[int]
    own_properties: list[int]

    def record_bytes(self, template: RecordTemplate, shared_properties: bytes) -> int:
        """Return the size of all records together."""
        fixed_bytes = template.fixed_bytes + len(shared_properties)
        return fixed_bytes * len(self.bodies) + sum(self.bodies) + sum(self.own_properties)


class PackedBatch(NamedTuple):
    """Packed records and queue entries of a batch, and each record's log offset and size."""

    records: bytes
    entries: bytes
    offsets: Sequence[int]
    sizes: Sequence[int]


class BatchStamp(NamedTuple):
    """Where a batch is stored, and its messages' common times and host."""

    queue_offset: int
    physical_offset: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int


def pack_batch(
    template: RecordTemplate, messages: BatchMessages, lengths: BatchLengths, stamp: BatchStamp
) -> PackedBatch:
    """Pack the messages' records, one after the other, each as `RecordTemplate.pack` makes it.

    `lengths` are those of the messages.
    """
    if len(messages.bodies) < _COLUMNS_FROM or template.appends_crc:
        return _one_by_one(template, messages, stamp)
    return _by_columns(template, messages, lengths, stamp)


def _one_by_one(template: RecordTemplate, messages: BatchMessages, stamp: BatchStamp) -> PackedBatch:
    records: list[bytes] = []
    sizes: list[int] = []
    shared = messages.shared_properties
    queue_offset, physical_offset = stamp.queue_offset, stamp.physical_offset
    for flag, body, own in zip(messages.flags, messages.bodies, messages.own_properties, strict=True):
        size = template.fixed_bytes + len(body) + len(own) + len(shared)
        record = template.pack(
            size,
            body,
            own + shared,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=stamp.born_timestamp_ms,
            born_host=stamp.born_host,
            store_timestamp_ms=stamp.store_timestamp_ms,
            flag=flag,
        )
        records.append(record)
        sizes.append(size)
        queue_offset += 1
        physical_offset += size
    offsets = list(accumulate(sizes[:-1], initial=stamp.physical_offset))
    entries = b"".join(map(QUEUE_ENTRY.pack, offsets, sizes, messages.tags_codes))
    return PackedBatch(b"".join(records), entries, offsets, sizes)


def _by_columns(
    template: RecordTemplate, messages: BatchMessages, lengths: BatchLengths, stamp: BatchStamp
) -> PackedBatch:
    flags, bodies, own_properties, shared, tags_codes = messages
    body_lengths, own_lengths = lengths
    count = len(bodies)
    body_length, own_length = body_lengths[0], own_lengths[0]
    fixed_bytes = template.fixed_bytes + len(shared)
    size = fixed_bytes + body_length + own_length
    step = template.head_bytes
    first = template.pack(
        size,
        bodies[0],
        own_properties[0] + shared,
        queue_offset=stamp.queue_offset,
        physical_offset=stamp.physical_offset,
        born_timestamp_ms=stamp.born_timestamp_ms,
        born_host=stamp.born_host,
        store_timestamp_ms=stamp.store_timestamp_ms,
        flag=flags[0],
    )
    heads = bytearray(first[:step] * count)
    entries = bytearray(QUEUE_ENTRY.pack(stamp.physical_offset, size, tags_codes[0]) * count)
    middle = template.topic_part + _pack_length(own_length + len(shared))
    parts: list[bytes] = [middle] * (_PARTS * count)
    offsets: Sequence[int]
    if body_lengths.count(body_length) == count == own_lengths.count(own_length):
        sizes = [size] * count
        offsets = range(stamp.physical_offset, stamp.physical_offset + size * count, size)
    else:
        sizes = [fixed_bytes + body + own for body, own in zip(body_lengths, own_lengths, strict=True)]
        offsets = list(accumulate(sizes[:-1], initial=stamp.physical_offset))
        packed_sizes = pack(f">{count}i", *sizes)
        _spread(packed_sizes, 4, heads, 0, step)
        _spread(packed_sizes, 4, entries, _ENTRY_SIZE_AT, QUEUE_ENTRY_BYTES)
        _spread(pack(f">{count}i", *body_lengths), 4, heads, step - _BODY_LENGTH_BYTES, step)
        topic_part, shared_length = template.topic_part, len(shared)
        parts[2::_PARTS] = [topic_part + _pack_length(length + shared_length) for length in own_lengths]
    if flags.count(flags[0]) != count:
        _spread(pack(f">{count}i", *flags), 4, heads, _FLAG_AT, step)
    if tags_codes.count(tags_codes[0]) != count:
        _spread(pack(f">{count}q", *tags_codes), 8, entries, _ENTRY_TAGS_AT, QUEUE_ENTRY_BYTES)
    _spread(pack(f">{count}I", *map(_crc32, bodies)), 4, heads, _CRC_AT, step)
    heads[_CRC_AT::step] = heads[_CRC_AT::step].translate(_WITHOUT_TOP_BIT)
    low = stamp.queue_offset & 0xFF
    if low + count <= 256:
        heads[_QUEUE_OFFSET_AT + 7 :: step] = _COUNT_UP[low : low + count]
    else:
        queue_offsets = range(stamp.queue_offset, stamp.queue_offset + count)
        _spread(pack(f">{count}q", *queue_offsets), 8, heads, _QUEUE_OFFSET_AT, step)
    packed_offsets = pack(f">{count}q", *offsets)
    # Offsets that are close together differ in their last three bytes.
    same = 5 if offsets[0] >> 24 == offsets[-1] >> 24 else 0
    _spread(packed_offsets, 8, heads, _PHYSICAL_OFFSET_AT, step, same)
    _spread(packed_offsets, 8, entries, 0, QUEUE_ENTRY_BYTES, same)
    parts[::_PARTS] = _cut(heads, step, count)
    parts[1::_PARTS] = bodies
    parts[3::_PARTS] = own_properties
    parts[4::_PARTS] = [shared] * count
    return PackedBatch(b"".join(parts), bytes(entries), offsets, sizes)


def _spread(column: bytes, width: int, rows: bytearray, at: int, step: int, same: int = 0) -> None:
    """Write a column's values of `width` bytes into the rows, except the first `same` bytes of each."""
    for byte in range(same, width):
        rows[at + byte :: step] = column[byte::width]


def _cut(data: bytearray, size: int, count: int) -> Sequence[bytes]:
    """Return `count` pieces of `size` bytes."""
    if count <= _MOST_CUT_AT_ONCE:
        return _cutter(size, count)(data, 0)
    pieces: list[bytes] = []
    for begin in range(0, count, _MOST_CUT_AT_ONCE):
        pieces += _cutter(size, min(_MOST_CUT_AT_ONCE, count - begin))(data, begin * size)
    return pieces


# A structure takes 32 bytes for each piece: 4 MiB in all.
@lru_cache(maxsize=512)
def _cutter(size: int, count: int) -> Callable[[bytearray, int], tuple[bytes, ...]]:
    return Struct(f"{size}s" * count).unpack_from
