"""Decodes stored messages into one Arrow batch: every selected column for all messages at once."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.compression import DEFAULT_MAX_BODY_BYTES
from rmq_remoting.message_errors import MessageDecodeError

from ..columns import BODY, PropertiesMode, arrow_schema
from ..errors import BatchTooLarge, RecordDamaged
from ..limits import MAX_CHUNK_BYTES
from .normalization import normalize_records
from .records import HEADER, Records, find_records, record_starts
from .rows import Rows

_CRC_BITS: Final = 0x7FFFFFFF
_QUEUE_OFFSET_FIELD: Final = slice(20, 28)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages as rows. `next_offset` follows the last message seen, within the requested range."""

    batch: pa.RecordBatch
    messages: int
    next_offset: int


class ColumnDecoder:
    """Decodes the pull responses of a queue. Columns that are not selected are not decoded.

    The rows equal those of `rmq_remoting.message_codec`, which decodes one message at a time and also decodes
    here the records that are not plain. Thread-safe.
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
        """`schema`: the Arrow schema of these columns, if Spark's nullable flags differ from the defaults.

        `tags`: only messages with one of these tags become rows; None for all messages. `max_body_bytes`: a
        body that decompresses to more is an error.

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
        """Decode the messages with begin <= queue offset < end, in the order of the pull responses `chunks`.

        Raises ValueError for chunks of more than MAX_CHUNK_BYTES together, BatchTooLarge if decompression
        makes them larger than MAX_DECODED_BYTES, and RecordDamaged for a truncated or damaged record.
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
        """As `decode`, but in several batches if one would become too large by decompression."""
        decoded: Decoded | None = None
        # The parts are decoded after the handler. Within it, the traceback would keep the bodies of every
        # failed attempt until the last part.
        with suppress(BatchTooLarge):
            decoded = self.decode(topic, broker_name, queue_id, chunks, begin=begin, end=end)
        if decoded is not None:
            yield decoded
            return
        for part in _halves(chunks):
            yield from self.decode_in_parts(topic, broker_name, queue_id, part, begin=begin, end=end)


class _BodyDamaged(MessageDecodeError):
    """A body does not match its CRC. The error carries the queue offset of the message."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def _highest_offset(records: Records) -> int:
    """Return the highest queue offset; -1 if there is no record."""
    return int(records.headers["queue_offset"].max()) if len(records) else -1


def _check_bodies(records: Records) -> None:
    """Raise _BodyDamaged for the first body that does not match its CRC."""
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
    """Return the queue offset of the record at this position of all chunks together; None if cut off."""
    if position is None:
        return None
    field = b"".join(chunks)[position:][_QUEUE_OFFSET_FIELD]
    return int.from_bytes(field, "big", signed=True) if len(field) == 8 else None


def _halves(chunks: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Split the chunks into two parts with about the same number of chunks; split a single one between two
    records.
    """
    if len(chunks) > 1:
        middle = len(chunks) // 2
        return chunks[:middle], chunks[middle:]
    (chunk,) = chunks
    starts = record_starts(chunk, [len(chunk)])
    cut = starts[len(starts) // 2]
    return [chunk[:cut]], [chunk[cut:]]
