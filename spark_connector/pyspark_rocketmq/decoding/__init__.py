"""Decoding: pull responses with stored messages become Arrow batches, column by column.

`records` finds the records and their fields. `normalization` rewrites records that the vectorized code cannot
read. `properties` parses the properties of all messages at once. `column_decoder` builds the columns.
"""

from __future__ import annotations

from .column_decoder import ColumnDecoder, Decoded
from .records import MAX_CHUNK_BYTES, MAX_DECODED_BYTES

__all__ = ["MAX_CHUNK_BYTES", "MAX_DECODED_BYTES", "ColumnDecoder", "Decoded"]
