"""Decoding: pull responses with stored messages become Arrow batches, column by column.

`records` finds the records and their fields. `normalization` rewrites records that the vectorized code cannot
read. `properties` parses the properties of all messages at once. `column_decoder` builds the columns.
"""

from __future__ import annotations

from .column_decoder import ColumnDecoder, Decoded

__all__ = ["ColumnDecoder", "Decoded"]
