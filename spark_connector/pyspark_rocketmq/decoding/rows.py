"""The columns of plain records, each built for all rows at once and only on demand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.message_ids import offset_message_id
from rmq_remoting.message_properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)

from ..columns import BODY, PROPERTIES
from .properties import Properties, as_texts, split_properties
from .records import HEADER, Records
from .segments import fixed_width, hex_strings, slices

_MICROSECONDS: Final = 1000
# Milliseconds before or after 1970 that still fit into 64 bits as microseconds.
_MAX_TIMESTAMP_MS: Final = ((1 << 63) - 1) // _MICROSECONDS


class Rows:
    """Builds the columns of plain records on demand."""

    def __init__(self, records: Records, topic: str, broker_name: str, queue_id: int) -> None:
        self._records = records
        self._headers = records.headers
        self._data = pa.py_buffer(records.buffer)
        self._queue = {"topic": topic, "brokerName": broker_name, "queueId": queue_id}

    def column(self, field: pa.Field) -> Any:
        """Return the values of one column."""
        if field.name in self._queue:
            return pa.repeat(pa.scalar(self._queue[field.name], field.type), len(self._records))
        if field.name in _NUMBERS:
            return self._number(_NUMBERS[field.name], field.type)
        if field.name == PROPERTIES:
            return (
                as_texts(self._raw_properties)
                if field.type == pa.string()
                else self._properties.as_map(field.type)
            )
        return _MAKERS[field.name](self)

    def _number(self, header_field: str, arrow_type: pa.DataType) -> Any:
        values = self._headers[header_field]
        if not pa.types.is_timestamp(arrow_type):
            return fixed_width(values.astype(values.dtype.newbyteorder("=")), arrow_type)
        # Times beyond the year 294247 would overflow.
        values = np.clip(values.astype(np.int64), -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS)
        return fixed_width(values * _MICROSECONDS, arrow_type)

    def bodies(self) -> Any:
        starts = self._records.starts + HEADER.itemsize
        return slices(self._data, starts, starts + self._records.body_lengths, pa.binary())

    def keys(self) -> Any:
        return self._properties.values_of(PROPERTY_KEYS.encode())

    def tags(self) -> Any:
        return self._properties.values_of(PROPERTY_TAGS.encode())

    def message_ids(self) -> Any:
        """Return the id set by the producer, or the offset message id (MessageClientExt.getMsgId)."""
        keys = self._properties.values_of(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode())
        return pc.coalesce(keys, self._offset_message_ids) if keys.null_count else keys

    def offset_message_ids(self) -> Any:
        return self._offset_message_ids

    def born_hosts(self) -> Any:
        """Return the IP addresses without ports (MessageExt.getBornHostString)."""
        addresses, rows = np.unique(self._headers["born_ip"], return_inverse=True)
        texts = [f"{ip >> 24}.{ip >> 16 & 255}.{ip >> 8 & 255}.{ip & 255}" for ip in addresses.tolist()]
        hosts = pa.array(texts, pa.string()).take(pa.array(rows))
        return self._replaced(hosts, lambda row: self._records.hosts[row][0][0])

    @cached_property
    def _offset_message_ids(self) -> Any:
        headers = self._headers
        parts = np.empty((headers.size, 16), np.uint8)
        octets = headers.view(np.uint8).reshape(headers.size, HEADER.itemsize)
        parts[:, :8] = octets[:, _STORE_HOST]
        parts[:, 8:] = octets[:, _PHYSICAL_OFFSET]
        return self._replaced(hex_strings(parts), self._offset_message_id)

    def _offset_message_id(self, row: int) -> str:
        store_host = self._records.hosts[row][1]
        return offset_message_id(store_host, int(self._headers["physical_offset"][row]))

    @cached_property
    def _raw_properties(self) -> Any:
        starts = self._records.properties_starts
        return slices(self._data, starts, starts + self._records.properties_lengths, pa.binary())

    @cached_property
    def _properties(self) -> Properties:
        return split_properties(self._raw_properties)

    def _replaced(self, texts: Any, text_of: Callable[[int], str]) -> Any:
        """Replace the texts of rows whose hosts do not fit into the header."""
        if not self._records.hosts:
            return texts
        mask = np.zeros(len(texts), np.bool_)
        mask[list(self._records.hosts)] = True
        replacements = [text_of(row) for row in sorted(self._records.hosts)]
        return pc.replace_with_mask(texts, pa.array(mask), pa.array(replacements, pa.string()))


def _field_slice(name: str) -> slice:
    fields = HEADER.fields
    assert fields is not None
    offset = fields[name][1]
    return slice(offset, offset + 8)


_STORE_HOST: Final = _field_slice("store_ip")
_PHYSICAL_OFFSET: Final = _field_slice("physical_offset")
# Columns that are fields of the record header.
_NUMBERS: Final = {
    "queueOffset": "queue_offset",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "reconsumeTimes": "reconsume_times",
    "flag": "flag",
}
_MAKERS: Final[dict[str, Callable[[Rows], Any]]] = {
    "msgId": Rows.message_ids,
    "offsetMsgId": Rows.offset_message_ids,
    "keys": Rows.keys,
    "tags": Rows.tags,
    BODY: Rows.bodies,
    "bornHost": Rows.born_hosts,
}
