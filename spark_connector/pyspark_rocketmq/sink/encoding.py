"""Encodes rows in Arrow columns as items of RocketMQ batches, column by column and without objects per row.

An item is `int32 size, int32 0, int32 0, int32 flag, int32 body length, body, int16 properties length,
properties` (rmq_remoting.message_batch). A batch of adjacent rows is thus a range of one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.message_properties import MAX_PROPERTIES_BYTES

from . import schema
from .properties import encode_properties
from .rejected_rows import RejectedRows, as_mask
from .row_ids import TaskId, UniqueKeys, fixed_width
from .schema import SinkColumns
from .settings import SinkSettings

# Brokers add region, trace switch and cluster; the whole message must fit into a frame of 16 MiB.
PROPERTIES_FOR_BROKERS_BYTES: Final = 512
MAX_BODY_BYTES: Final = 16 * 1024 * 1024 - 128 * 1024

_FIXED_ITEM_BYTES: Final = 22
_RETRY_PREFIX: Final = "%RETRY%"


@dataclass(slots=True)
class EncodedRows:
    """A slice of encoded rows without their queues. Rejected rows have undefined content.

    `topic_codes` are indexes into `topics`. `items` are whole batch items; `bodies` and `properties` are
    their parts. `unbatched`: rows that brokers reject in a batch, or whose features they ignore there.
    """

    columns: dict[str, Any]
    ids: Any
    topics: list[str]
    topic_codes: npt.NDArray[np.int64]
    items: Any
    bodies: Any
    properties: Any
    unbatched: npt.NDArray[np.bool_]
    rejected: RejectedRows

    def __len__(self) -> int:
        return len(self.ids)


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self, columns: SinkColumns, settings: SinkSettings, task: TaskId, unique_keys: UniqueKeys
    ) -> None:
        self._columns = columns
        self._settings = settings
        self._task = task
        self._unique_keys = unique_keys

    def encode(self, batch: Any, first_row: int) -> EncodedRows:
        """Encode a `pyarrow.RecordBatch`. `first_row`: number of its first row within the partition."""
        count = batch.num_rows
        columns = {name: batch.column(index) for name, index in self._columns.indexes.items()}
        rejected = RejectedRows()
        ids = self._ids(columns, first_row, count, rejected)
        topics, topic_codes = self._topics(columns, count, rejected)
        bodies = self._bodies(columns[schema.BODY], rejected)
        properties, delayed = encode_properties(columns, ids, self._unique_keys.take(count), rejected)
        body_sizes, properties_sizes = _sizes(bodies), _sizes(properties)
        properties_limit = MAX_PROPERTIES_BYTES - PROPERTIES_FOR_BROKERS_BYTES
        rejected.add_where(
            properties_sizes > properties_limit,
            f"its properties take more than {properties_limit} bytes: move large values into the body",
        )
        items = pc.binary_join_element_wise(
            _heads(body_sizes, properties_sizes), bodies, _lengths(properties_sizes), properties, b""
        )
        unbatched = delayed | (body_sizes >= self._settings.compress_from_bytes)
        unbatched |= body_sizes + properties_sizes + _FIXED_ITEM_BYTES > self._settings.batch_bytes
        for code, topic in enumerate(topics):
            if topic.startswith(_RETRY_PREFIX):
                unbatched |= topic_codes == code
        return EncodedRows(columns, ids, topics, topic_codes, items, bodies, properties, unbatched, rejected)

    def _topics(
        self, columns: dict[str, Any], count: int, rejected: RejectedRows
    ) -> tuple[list[str], npt.NDArray[np.int64]]:
        if self._settings.topic is not None:
            return [self._settings.topic], np.zeros(count, np.int64)
        return dictionary_codes(columns[schema.TOPIC], rejected, "its topic is null")

    def _ids(self, columns: dict[str, Any], first_row: int, count: int, rejected: RejectedRows) -> Any:
        """Return the id of each row: that of its column, or one of its place in the write."""
        ids = self._task.rows(first_row, count)
        if schema.ROW_ID not in columns:
            return ids
        given = columns[schema.ROW_ID].cast(pa.binary())
        unusable = as_mask(pc.match_substring(given, b"\x02"))
        rejected.add_where(
            unusable, f"its {schema.ROW_ID} contains the character \\x02, which ends a property"
        )
        missing = as_mask(pc.equal(pc.binary_length(given), 0)) | as_mask(given.is_null()) | unusable
        return pc.if_else(pa.array(missing), ids, given)

    @staticmethod
    def _bodies(column: Any, rejected: RejectedRows) -> Any:
        raw = column.cast(pa.binary())
        rejected.add_where(as_mask(raw.is_null()), "its body is null: brokers reject messages without a body")
        raw = raw.fill_null(b"") if raw.null_count else raw
        sizes = _sizes(raw)
        rejected.add_where(sizes == 0, "its body is empty: brokers reject messages without a body")
        for row in np.flatnonzero(sizes > MAX_BODY_BYTES):
            rejected.add(
                [int(row)], f"its body has {sizes[row]} bytes, the maximum in RocketMQ is {MAX_BODY_BYTES}"
            )
        return raw


def dictionary_codes(
    column: Any, rejected: RejectedRows | None = None, null_reason: str = ""
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct texts of a column, and for each row an index into them; -1 for null."""
    encoded = column.cast(pa.string()).dictionary_encode()
    codes: npt.NDArray[np.int64] = (
        encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    if rejected is not None:
        rejected.add_where(codes < 0, null_reason)
    return encoded.dictionary.to_pylist(), codes


def _sizes(values: Any) -> npt.NDArray[np.int64]:
    sizes: npt.NDArray[np.int64] = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _heads(body_sizes: npt.NDArray[np.int64], properties_sizes: npt.NDArray[np.int64]) -> Any:
    """Return the parts of the items before the bodies."""
    heads = np.zeros((len(body_sizes), 5), ">i4")
    heads[:, 0] = _FIXED_ITEM_BYTES + body_sizes + properties_sizes
    heads[:, 4] = body_sizes
    return fixed_width(heads.view(np.uint8))


def _lengths(properties_sizes: npt.NDArray[np.int64]) -> Any:
    """Return each row's properties length as bytes. Rows for which it overflows are rejected anyway."""
    lengths = (properties_sizes & 0xFFFF).astype(">u2").reshape(-1, 1)
    return fixed_width(lengths.view(np.uint8))
