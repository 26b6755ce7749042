"""Stored messages as pull responses bring them, decoded column by column into Arrow batches.

`records` finds the records and what is where in them, `odd_records` rewrites those that are not plain,
`properties` reads the properties of all of them at once, and `column_decoder` makes the columns.
"""

from __future__ import annotations

from .column_decoder import ColumnDecoder, Decoded
from .records import MAX_CHUNK_BYTES, MAX_DECODED_BYTES

__all__ = ["MAX_CHUNK_BYTES", "MAX_DECODED_BYTES", "ColumnDecoder", "Decoded"]
