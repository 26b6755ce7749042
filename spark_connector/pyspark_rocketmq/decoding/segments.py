"""Builds Arrow arrays from segments of one buffer, without an object per segment."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

_HEX_DIGITS: Final = np.frombuffer("".join(f"{value:02X}" for value in range(256)).encode(), np.uint16)


def segments(data: pa.Buffer, bounds: npt.NDArray[np.int32], arrow_type: pa.DataType) -> Any:
    """Return the `bounds.size - 1` segments between neighbouring bounds as an array, a view of `data`.

    Wanted segments and the gaps between them alternate; `take` selects the wanted ones. Text must be valid
    UTF-8.
    """
    count = max(bounds.size - 1, 0)
    offsets = pa.py_buffer(bounds if bounds.size else np.zeros(1, np.int32))
    return pa.Array.from_buffers(arrow_type, count, [None, offsets, data])


def slices(data: pa.Buffer, starts: Integers, ends: Integers, arrow_type: pa.DataType) -> Any:
    """Return the slices from starts to ends (ascending, not overlapping) as an array, a copy."""
    bounds = np.empty(2 * starts.size, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    return segments(data, bounds, arrow_type).take(pa.array(np.arange(0, bounds.size, 2)))


def contents(array: Any) -> tuple[npt.NDArray[np.int32], Octets]:
    """Return the offsets and the bytes of a string or binary array; the first offset need not be 0."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return bounds, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def hex_strings(octets: Octets) -> Any:
    """Return each row of a table of bytes as upper-case hex digits."""
    count, width = octets.shape
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(2 * width)
    return segments(pa.py_buffer(_HEX_DIGITS.take(octets)), bounds, pa.string())


def fixed_width(values: npt.NDArray[Any], arrow_type: pa.DataType) -> Any:
    """Return an array of numbers without nulls that shares numpy's memory."""
    return pa.Array.from_buffers(arrow_type, values.size, [None, pa.py_buffer(np.ascontiguousarray(values))])
