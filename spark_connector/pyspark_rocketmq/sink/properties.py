"""Encodes the properties of many rows, column by column: `name 0x01 value 0x02`, concatenated.

Rows whose properties cannot be encoded are rejected. Rules: rmq_remoting.message_properties; for names
reserved by RocketMQ: Apache RocketMQ 5.3.3, MessageConst.STRING_HASH_SET.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.message_properties import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    RESERVED_NAMES,
)

from . import schema
from .rejected_rows import RejectedRows, as_mask
from .row_ids import ROW_ID_PROPERTY

_EMPTY: Final = pa.scalar(b"", pa.binary())
_END: Final = b"\x02"
_EQUALS: Final = b"\x01"


def encode_properties(
    columns: dict[str, Any], ids: Any, unique_keys: Any, rejected: RejectedRows
) -> tuple[Any, Any]:
    """Return all properties of each row, as an Arrow array of binary, and a mask of the delayed rows.

    `columns`: the Arrow columns by their names in the schema. `ids` and `unique_keys`: arrays of binary of
    the same length.
    """
    parts: list[Any] = []
    if schema.PROPERTIES in columns:
        parts.append(_user_properties(columns, rejected))
    if schema.TAGS in columns:
        parts.append(_text(PROPERTY_TAGS, columns[schema.TAGS], rejected))
    if schema.KEYS in columns:
        parts.append(_text(PROPERTY_KEYS, _keys(columns[schema.KEYS], rejected), rejected))
    if schema.SHARDING_KEY in columns:
        parts.append(_text(PROPERTY_SHARDING_KEY, columns[schema.SHARDING_KEY], rejected))
    delayed = np.zeros(len(ids), np.bool_)
    delay = _delay(columns, rejected)
    if delay is not None:
        name, numbers = delay
        delayed = as_mask(numbers.is_valid())
        parts.append(_property(name, pc.cast(numbers, pa.string()).cast(pa.binary())))
    parts.append(_property(ROW_ID_PROPERTY, ids))
    parts.append(_property(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, unique_keys))
    return pc.binary_join_element_wise(*parts, b""), delayed


def _property(name: str, values: Any) -> Any:
    """Encode one property of each row; nothing for a null value."""
    joined = pc.binary_join_element_wise(f"{name}\x01".encode(), values, _END, b"")
    return joined.fill_null(b"") if values.null_count else joined


def _text(name: str, values: Any, rejected: RejectedRows) -> Any:
    """Encode one property with texts as values; an empty text counts as null."""
    raw = values.cast(pa.binary())
    rejected.add_where(
        as_mask(pc.match_substring(values, "\x02")),
        f"its {name} contain the character \\x02, which ends a property",
    )
    empty = pc.equal(pc.binary_length(raw), 0)
    return _property(name, pc.if_else(empty, pa.scalar(None, pa.binary()), raw))


def _keys(column: Any, rejected: RejectedRows) -> Any:
    """Join the keys of each row to one text, separated by spaces."""
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return column
    flat = pc.list_flatten(column)
    spaced = as_mask(pc.match_substring(flat, " "))
    unusable = spaced | as_mask(pc.equal(pc.binary_length(flat), 0)) | as_mask(flat.is_null())
    if unusable.any():
        rows = pc.list_parent_indices(column).to_numpy()[unusable]
        rejected.add(rows, "one of its keys is null, empty, or contains a space, which separates keys")
    # Arrow cannot join lists whose elements are declared non-nullable.
    return pc.binary_join(column.cast(pa.list_(pa.string())), " ")


def _user_properties(columns: dict[str, Any], rejected: RejectedRows) -> Any:
    """Encode each row's map without reserved names, so that rows read from a topic can be written."""
    maps = columns[schema.PROPERTIES]
    count = len(maps)
    offsets = maps.offsets.to_numpy().astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return pa.array([b""] * count, pa.binary())
    names, values = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    names, values = names.cast(pa.string()), values.cast(pa.string())
    left_out = pc.is_in(names, value_set=pa.array(sorted(reserved_names(columns))))
    left_out = pc.or_(left_out, values.is_null())
    _reject_unencodable(names, values, as_mask(left_out), offsets - first, rejected)
    texts = pc.binary_join_element_wise(names.cast(pa.binary()), values.cast(pa.binary()), _EQUALS)
    texts = pc.binary_join_element_wise(texts, _END, b"")
    entries = pc.if_else(left_out, _EMPTY, texts)
    # The entries of a row are adjacent, so only the ends of the rows within all bytes are needed.
    _, ends, data = entries.buffers()
    ends_of_entries = np.frombuffer(ends, np.int32)[entries.offset :]
    row_ends = np.ascontiguousarray(ends_of_entries[offsets - first])
    joined = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(row_ends), data])
    return pc.if_else(maps.is_valid(), joined, _EMPTY) if maps.null_count else joined


def reserved_names(columns: dict[str, Any]) -> frozenset[str]:
    """Return names ignored in the map. Tags and keys are taken from it, unless they have a column."""
    names = RESERVED_NAMES | {PROPERTY_CLUSTER, ROW_ID_PROPERTY}
    for name, column in ((PROPERTY_TAGS, schema.TAGS), (PROPERTY_KEYS, schema.KEYS)):
        if column not in columns:
            names -= {name}
    if schema.SHARDING_KEY in columns:
        names |= {PROPERTY_SHARDING_KEY}
    return names


def _reject_unencodable(names: Any, values: Any, left_out: Any, offsets: Any, rejected: RejectedRows) -> None:
    """Reject rows with a property that would not decode to the same name and value."""
    bad_name = as_mask(pc.match_substring_regex(names, "^$|\x01|\x02"))
    bad_value = as_mask(pc.match_substring(values, "\x02")) | as_mask(pc.equal(pc.binary_length(values), 0))
    for entry in np.flatnonzero((bad_name | bad_value) & ~left_out):
        row = int(np.searchsorted(offsets, entry, side="right")) - 1
        name = names[int(entry)].as_py()
        rejected.add(
            [row],
            f"property {name!r}: a name or value is empty, or contains \\x01 (in names) or \\x02, which "
            "separate properties",
        )


def _delay(columns: dict[str, Any], rejected: RejectedRows) -> tuple[str, Any] | None:
    """Return the property for the delay and its values, null for rows without one; None if no row has one."""
    if schema.DELAY_TIME_LEVEL in columns:
        levels = columns[schema.DELAY_TIME_LEVEL].cast(pa.int64())
        rejected.add_where(as_mask(pc.less(levels, 0)), f"its {schema.DELAY_TIME_LEVEL} is below 0")
        return PROPERTY_DELAY_TIME_LEVEL, _positive(levels)
    if schema.DELIVER_TIMESTAMP in columns:
        times = columns[schema.DELIVER_TIMESTAMP]
        if pa.types.is_timestamp(times.type):
            # This cast rounds down. floor_temporal depends on time zones, and division on the sign.
            times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        times = times.cast(pa.int64())
        rejected.add_where(as_mask(pc.less(times, 0)), f"its {schema.DELIVER_TIMESTAMP} is before 1970")
        return PROPERTY_TIMER_DELIVER_MS, _positive(times)
    return None


def _positive(numbers: Any) -> Any:
    return pc.if_else(pc.greater(numbers, 0), numbers, pa.scalar(None, pa.int64()))
