"""Finds records and their fields in pull responses, with numpy and for all plain records at once.

Nearly every record is plain: version 1, IPv4 hosts, no inner batch, and not compressed if the body is
selected. `normalization` rewrites the others, so that all later code handles plain records only.
`rmq_remoting.message_codec` describes the layout; only the offsets of the fixed part are repeated here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rmq_remoting.message_codec import MAGIC_V1, MAGIC_V2, MAX_TOPIC_BYTES_V1
from rmq_remoting.message_errors import MessageDecodeError
from rmq_remoting.message_properties import MAX_PROPERTIES_BYTES
from rmq_remoting.socket_addresses import HostPort
from rmq_remoting.sys_flags import MessageSysFlag

from .segments import Flags, Integers

HEADER: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_ip", ">u4"),
        ("born_port", ">u4"),
        ("store_timestamp", ">i8"),
        ("store_ip", ">u4"),
        ("store_port", ">u4"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
# A topic length, an empty topic, and two bytes of properties length.
_MIN_TAIL_BYTES: Final = 3
_MIN_RECORD_BYTES: Final = HEADER.itemsize + _MIN_TAIL_BYTES
# Below this number of chunks, a loop over the records is faster than one over numpy's arrays.
_MIN_CHUNKS_AT_ONCE: Final = 24
_MAX_PORT: Final = 0xFFFF
_HOSTS_V6: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
INNER_BATCH: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP

Hosts = tuple[HostPort, HostPort]
"""Born host and store host of a message."""


@dataclass(slots=True)
class Records:
    """Records of one buffer, in order; offsets and lengths in bytes.

    `headers` has the fields of HEADER. `plain` marks the records whose layout was checked; the other arrays
    are valid for these records only. `hosts` has the hosts of rows whose header has no room for them.
    """

    buffer: bytes
    starts: Integers
    headers: npt.NDArray[Any]
    plain: Flags
    body_lengths: Integers
    properties_starts: Integers
    properties_lengths: Integers
    hosts: dict[int, Hosts] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.starts.size

    def where(self, wanted: Flags) -> Records:
        """Return the records for which `wanted` is true."""
        if wanted.all():
            return self
        new_rows = np.cumsum(wanted) - 1
        return Records(
            self.buffer,
            self.starts[wanted],
            self.headers[wanted],
            self.plain[wanted],
            self.body_lengths[wanted],
            self.properties_starts[wanted],
            self.properties_lengths[wanted],
            {int(new_rows[row]): hosts for row, hosts in self.hosts.items() if wanted[row]},
        )


def find_records(chunks: Sequence[bytes], *, decompress: bool) -> Records:
    """Find the records of pull responses, each of which holds whole records only.

    `decompress`: whether a compressed record counts as not plain. Raises MessageDecodeError with the position
    in all chunks together, for an impossible record size or a truncated record.
    """
    buffer = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    ends = np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64)
    starts = _starts_side_by_side(buffer, ends)
    if starts is None:
        starts = _starts_one_by_one(buffer, ends.tolist())
    return _lay_out(buffer, starts, decompress=decompress)


def _starts_side_by_side(buffer: bytes, ends: Integers) -> Integers | None:
    """Return the positions of the records, found in all chunks at once: the first of each, the second, and so
    on.

    None if few chunks are left, of which `record_starts` is faster, or if a size is impossible.
    """
    if ends.size < _MIN_CHUNKS_AT_ONCE or not buffer:
        return None
    # Numbers of 4 bytes that overlap: one begins at every byte.
    sizes_at = np.ndarray(max(0, len(buffer) - 3), ">i4", buffer, strides=(1,))
    positions = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    found: list[Integers] = []
    while True:
        unread = positions < ends
        if not unread.all():
            positions, ends = positions[unread], ends[unread]
            if not positions.size:
                return np.sort(np.concatenate(found))
            if positions.size < _MIN_CHUNKS_AT_ONCE:
                rest = [
                    record_starts(buffer, [end], position)
                    for position, end in zip(positions.tolist(), ends.tolist(), strict=True)
                ]
                return np.sort(np.concatenate((*found, *(np.array(each, np.int64) for each in rest))))
        if (positions > ends - _MIN_RECORD_BYTES).any():
            return None
        sizes = sizes_at[positions]
        found.append(positions)
        positions = positions + sizes
        if (sizes < _MIN_RECORD_BYTES).any() or (positions > ends).any():
            return None


def _starts_one_by_one(buffer: bytes, ends: Sequence[int]) -> Integers:
    """Return the positions of the records; those of a chunk with records of one size without a loop.

    Bodies of one size with ids, keys and properties of one size each make such records.
    """
    found: list[Integers] = []
    begin = 0
    for end in ends:
        starts = _starts_of_equal_records(buffer, begin, end)
        if starts is None:
            starts = np.array(record_starts(buffer, [end], begin), np.int64)
        found.append(starts)
        begin = end
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _starts_of_equal_records(buffer: bytes, begin: int, end: int) -> Integers | None:
    """Return the positions of a chunk's records if all of them have the size of the first one."""
    size = int.from_bytes(buffer[begin : begin + 4], "big", signed=True)
    if size < _MIN_RECORD_BYTES or (end - begin) % size:
        return None
    sizes = np.ndarray((end - begin) // size, ">i4", buffer, offset=begin, strides=(size,))
    return np.arange(begin, end, size) if (sizes == size).all() else None


def record_starts(buffer: bytes, ends: Sequence[int], position: int = 0) -> list[int]:
    """Return the positions of the records, which lie without gaps up to each of the ends.

    Raises MessageDecodeError for the first impossible size.
    """
    starts: list[int] = []
    append, size_at = starts.append, struct.Struct(">i").unpack_from
    for end in ends:
        last_start = end - _MIN_RECORD_BYTES
        while position <= last_start:
            append(position)
            (size,) = size_at(buffer, position)
            if size < _MIN_RECORD_BYTES:
                raise MessageDecodeError(
                    f"the record size is {size} bytes, the minimum is {_MIN_RECORD_BYTES}", position
                )
            position += size
        if position > end:
            raise MessageDecodeError(
                f"the record size is {size} bytes, {end - starts[-1]} are there: the rest is cut off",
                starts[-1],
            )
        if position < end:
            raise MessageDecodeError(
                f"{end - position} bytes are too few for a record, the minimum is {_MIN_RECORD_BYTES}",
                position,
            )
    return starts


def _lay_out(buffer: bytes, starts: Integers, *, decompress: bool) -> Records:
    octets = np.frombuffer(buffer, np.uint8)
    headers = _headers(octets, starts)
    sizes = headers["size"].astype(np.int64)
    body_lengths = headers["body_length"].astype(np.int64)
    plain = _has_plain_header(headers, decompress=decompress)
    plain &= (body_lengths >= 0) & (body_lengths <= sizes - _MIN_RECORD_BYTES)

    # Lengths of records that are not plain are arbitrary; they must not lead outside their record.
    last_length = starts + sizes - 2
    body_ends = np.where(plain, starts + HEADER.itemsize + body_lengths, starts)
    topic_lengths = octets[body_ends].astype(np.int64)
    topic_ends = np.minimum(body_ends + 1 + topic_lengths, last_length)
    properties_lengths = octets[topic_ends].astype(np.int64) << 8 | octets[topic_ends + 1]
    plain &= topic_lengths <= MAX_TOPIC_BYTES_V1
    plain &= properties_lengths <= MAX_PROPERTIES_BYTES
    # If the topic's end was out of bounds, the sum differs as well, since lengths are not negative.
    plain &= body_ends + 1 + topic_lengths + properties_lengths == last_length
    return Records(buffer, starts, headers, plain, body_lengths, topic_ends + 2, properties_lengths)


def _headers(octets: npt.NDArray[np.uint8], starts: Integers) -> npt.NDArray[Any]:
    if not starts.size:
        return np.empty(0, HEADER)
    windows = np.lib.stride_tricks.sliding_window_view(octets, HEADER.itemsize)
    return windows[starts].view(HEADER)[:, 0]


def _has_plain_header(headers: npt.NDArray[Any], *, decompress: bool) -> Flags:
    sys_flags = headers["sys_flag"].astype(np.int32)
    layout_bits = _HOSTS_V6 | (MessageSysFlag.COMPRESSED if decompress else 0)
    plain: Flags = headers["magic"] == MAGIC_V1
    plain &= sys_flags & layout_bits == 0
    plain &= ~is_inner_batch(headers)
    plain &= headers["born_port"] <= _MAX_PORT
    plain &= headers["store_port"] <= _MAX_PORT
    return plain


def has_message_magic(headers: npt.NDArray[Any]) -> Flags:
    """Return which records are messages."""
    magics = headers["magic"]
    known: Flags = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    return known


def is_inner_batch(headers: npt.NDArray[Any]) -> Flags:
    """Return which records hold an inner batch."""
    batches: Flags = headers["sys_flag"].astype(np.int32) & INNER_BATCH == INNER_BATCH
    return batches
