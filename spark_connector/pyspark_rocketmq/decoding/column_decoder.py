"""Stored messages in, one Arrow batch out: every selected column for all messages at once."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.compression import DEFAULT_MAX_BODY_BYTES
from rmq_remoting.message_errors import MessageDecodeError

from ..columns import BODY, PropertiesMode, arrow_schema
from ..errors import BatchTooLarge, RecordDamaged
from .normalization import normalize_records
from .records import HEADER, MAX_CHUNK_BYTES, Records, find_records, record_starts
from .rows import Rows

_CRC_BITS: Final = 0x7FFFFFFF
_QUEUE_OFFSET_FIELD: Final = slice(20, 28)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages as rows. `next_offset` follows the last message that was seen, within the range asked for."""

    batch: pa.RecordBatch
    messages: int
    next_offset: int


class ColumnDecoder:
    """Decodes the pull responses of a queue; what is not selected is not decoded.

    Rows are the same as by `rmq_remoting.message_codec` message by message, which decodes everything here
    that is not plain. Safe to use from several threads.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        properties_mode: PropertiesMode = "map",
        check_crc: bool = False,
        decompress: bool = True,
        schema: pa.Schema | None = None,
        tags: Collection[str] | None = None,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
    ) -> None:
        """`schema`: the Arrow schema of these columns where Spark has other nullable flags than ours.

        `tags`: only messages with one of these become rows; None for all. `max_body_bytes`: a body that
        unpacks to more is not decoded.

        Raises SchemaError for a column that does not exist.
        """
        self.schema: Final = arrow_schema(columns, properties_mode) if schema is None else schema
        if self.schema.names != list(columns):
            raise ValueError(f"the schema's columns are {self.schema.names}, the decoder's {list(columns)}")
        self._check_crc = check_crc
        self._decompress = decompress and BODY in columns
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        self._max_body_bytes = max_body_bytes

    def decode(
        self,
        topic: str,
        broker_name: str,
        queue_id: int,
        chunks: Sequence[bytes],
        *,
        begin: int,
        end: int,
    ) -> Decoded:
        """The messages with begin <= queue offset < end, in the order of the pull responses `chunks`.

        Raises ValueError for chunks of more than MAX_CHUNK_BYTES together, BatchTooLarge where they grow
        beyond MAX_DECODED_BYTES by decompression, and RecordDamaged for a record that is not whole and sound.
        """
        total = sum(map(len, chunks))
        if total > MAX_CHUNK_BYTES:
            raise ValueError(f"{total} bytes of pull responses: at most {MAX_CHUNK_BYTES} at a time")
        try:
            records = find_records(chunks, decompress=self._decompress)
            seen_to = _highest_offset(records)
            if not records.plain.all():
                records = normalize_records(
                    records,
                    begin=begin,
                    end=end,
                    decompress=self._decompress,
                    check_crc=self._check_crc,
                    max_body_bytes=self._max_body_bytes,
                )
                seen_to = max(seen_to, _highest_offset(records))
            offsets = records.headers["queue_offset"]
            records = records.where((offsets >= begin) & (offsets < end))
            if self._check_crc:
                _check_bodies(records)
        except MessageDecodeError as error:
            offset = error.offset if isinstance(error, _BodyDamaged) else _offset_at(chunks, error.position)
            raise RecordDamaged(topic, broker_name, queue_id, offset, str(error)) from error
        rows = Rows(records, topic, broker_name, queue_id)
        if self._tags is not None:
            wanted = pc.is_in(rows.tags(), value_set=self._tags).to_numpy(zero_copy_only=False)
            if not wanted.all():
                records = records.where(wanted)
                rows = Rows(records, topic, broker_name, queue_id)
        batch = pa.RecordBatch.from_arrays([rows.column(field) for field in self.schema], schema=self.schema)
        return Decoded(batch, len(records), min(max(begin, seen_to + 1), end))

    def decode_in_parts(
        self,
        topic: str,
        broker_name: str,
        queue_id: int,
        chunks: Sequence[bytes],
        *,
        begin: int,
        end: int,
    ) -> Iterator[Decoded]:
        """The same as `decode`, in several batches where one would grow too large by decompression."""
        try:
            decoded = self.decode(topic, broker_name, queue_id, chunks, begin=begin, end=end)
        except BatchTooLarge:
            for part in _halves(chunks):
                yield from self.decode_in_parts(topic, broker_name, queue_id, part, begin=begin, end=end)
        else:
            yield decoded


class _BodyDamaged(MessageDecodeError):
    """A body whose CRC is wrong, with the message's queue offset."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def _highest_offset(records: Records) -> int:
    """The highest queue offset, -1 if there is no record."""
    return int(records.headers["queue_offset"].max()) if len(records) else -1


def _check_bodies(records: Records) -> None:
    """Raises _BodyDamaged for the first body that is not the one that its CRC is of."""
    view = memoryview(records.buffer)
    starts = records.starts + HEADER.itemsize
    ends = starts + records.body_lengths
    crc32 = zlib.crc32
    crcs = [crc32(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    found = np.array(crcs, np.int64) & _CRC_BITS
    expected = records.headers["body_crc"]
    damaged = np.flatnonzero((found != expected) & (records.body_lengths > 0))
    if damaged.size:
        row = int(damaged[0])
        raise _BodyDamaged(
            f"the body has the CRC {found[row]}, the record says {expected[row]}",
            int(records.headers["queue_offset"][row]),
        )


def _offset_at(chunks: Sequence[bytes], position: int | None) -> int | None:
    """The queue offset in the record at this position of all chunks together, if it is there."""
    if position is None:
        return None
    field = b"".join(chunks)[position:][_QUEUE_OFFSET_FIELD]
    return int.from_bytes(field, "big", signed=True) if len(field) == 8 else None


def _halves(chunks: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """The chunks in two parts of about as many each; a single one is cut between two records."""
    if len(chunks) > 1:
        middle = len(chunks) // 2
        return chunks[:middle], chunks[middle:]
    (chunk,) = chunks
    starts = record_starts(chunk, [len(chunk)])
    cut = starts[len(starts) // 2]
    return [chunk[:cut]], [chunk[cut:]]
