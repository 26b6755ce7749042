"""Parses the properties of many messages at once (Apache RocketMQ 5.3.3,
MessageDecoder.string2messageProperties).

The format is `name 0x01 value 0x02 name 0x01 value 0x02 ...`. The positions of the two separators in all
properties together delimit all names and values. Properties that do not follow this pattern are first
rewritten message by message, so that the result equals that of `rmq_remoting.message_properties`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmq_remoting.message_properties import decode_properties, properties_to_string

from .segments import Flags, Integers, Octets, contents, segments

_VALUE_END: Final = 2
_IN_PATTERN: Final = re.compile(rb"(?:[^\x01\x02]+\x01[^\x02]+\x02)*")
_HEAD_BYTES: Final = 8
_HEAD_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_HEAD_BYTES + 1)], np.uint64)
# This number of bits, times the 8,192 properties that 32 KiB can hold, still fits into 64 bits.
_MAX_NAME_BITS: Final = 48


@dataclass
class Properties:
    """The properties of a run of messages, split but not yet decoded to texts.

    `entry_bounds[i]` is the first entry of message i. Every entry has four bounds in the data: the begin and
    the end of its name and of its value.
    """

    raw: Any
    octets: Octets
    bounds: npt.NDArray[np.int32]
    entry_bounds: npt.NDArray[np.int32]

    def values_of(self, name: bytes) -> Any:
        """Return the value of one property for every message; null if it has none, the last one of several.

        The name has at most 8 bytes.
        """
        assert len(name) <= _HEAD_BYTES, "longer names are not told apart"
        messages = self.entry_bounds.size - 1
        common = self._common_names
        if common is not None:
            if name not in common:
                return pa.nulls(messages, pa.string())
            first = 4 * common.index(name) + 2
            return self._texts.take(pa.array(np.arange(first, self.bounds.size, 4 * len(common))))
        is_name = (self._heads == int.from_bytes(name, "little")) & (self._name_lengths == len(name))
        entries = np.flatnonzero(is_name)
        owners = self._owners[entries]
        found = np.full(messages, -1, np.int64)
        found[owners] = entries  # the last one of several values of a message stays
        lacks = found < 0
        return self._texts.take(pa.array(found * 4 + 2, mask=lacks if lacks.any() else None))

    def as_map(self, map_type: pa.DataType) -> Any:
        """Return a map of all properties for every message, without duplicate names, which Spark rejects."""
        names = self._names
        if self._common_names is None:
            repeating = _messages_with_repeated_names(names, self.entry_bounds)
            if repeating.size:
                return split_properties(_cleaned(self.raw, repeating)).as_map(map_type)
        values = self._texts.take(pa.array(np.arange(2, self.bounds.size, 4)))
        fields = [map_type.key_field, map_type.item_field]
        entries = pa.StructArray.from_arrays([names, values], fields=fields)
        buffers = [None, pa.py_buffer(self.entry_bounds)]
        return pa.Array.from_buffers(map_type, self.entry_bounds.size - 1, buffers, children=[entries])

    @cached_property
    def _texts(self) -> Any:
        """Names, values and the separators between them, in turn."""
        return segments(pa.py_buffer(self.octets), self.bounds, pa.string())

    @cached_property
    def _name_lengths(self) -> npt.NDArray[np.int32]:
        return self.bounds[1::4] - self.bounds[0::4]

    @cached_property
    def _heads(self) -> npt.NDArray[np.uint64]:
        """The first 8 bytes of every name as a number, padded with zeros."""
        padded = np.zeros(self.octets.size + _HEAD_BYTES, np.uint8)
        padded[: self.octets.size] = self.octets
        # Numbers of 8 bytes that overlap: one begins at every byte.
        numbers = np.ndarray(self.octets.size + 1, "<u8", padded, strides=(1,))
        heads: npt.NDArray[np.uint64] = numbers[self.bounds[0::4]]
        return heads & _HEAD_MASKS[np.minimum(self._name_lengths, _HEAD_BYTES)]

    @cached_property
    def _owners(self) -> npt.NDArray[np.int32]:
        """The message that each entry belongs to."""
        messages = np.arange(self.entry_bounds.size - 1, dtype=np.int32)
        return np.repeat(messages, np.diff(self.entry_bounds))

    @cached_property
    def _names(self) -> Any:
        return self._texts.take(pa.array(np.arange(0, self.bounds.size, 4)))

    @cached_property
    def _common_names(self) -> list[bytes] | None:
        """The names that all messages have, in the same order, each once; None if messages differ.

        Most topics have one producer that always sets the same properties; then no search is needed.
        """
        count = int(self.entry_bounds[1]) if self.entry_bounds.size > 1 else 0
        if not count or (np.diff(self.entry_bounds) != count).any():
            return None
        bounds, octets = contents(self._names)
        lengths = np.diff(bounds).reshape(-1, count)
        if (lengths != lengths[:1]).any():
            return None
        of_message = octets[bounds[0] : bounds[-1]].reshape(-1, int(lengths[0].sum()))
        if (of_message != of_message[:1]).any():
            return None
        names = [name.encode() for name in self._names[:count].to_pylist()]
        return names if len(set(names)) == count else None


def split_properties(raw: Any) -> Properties:
    """Split the properties in a binary array without nulls, one element per message. Never fails."""
    raw = _with_last_separators(_valid_utf8(raw))
    properties = _split(raw)
    if properties is None:
        irregular = [row for row, text in enumerate(raw.to_pylist()) if not _IN_PATTERN.fullmatch(text)]
        raw = _cleaned(raw, irregular)
        properties = _split(raw)
        assert properties is not None, "cleaned properties follow the pattern"
    return properties


def as_texts(raw: Any) -> Any:
    """Return the properties as stored, as texts; invalid UTF-8 is replaced."""
    return _valid_utf8(raw).cast(pa.string())


def _split(raw: Any) -> Properties | None:
    """Return the bounds of all names and values; None if a message does not follow the pattern."""
    message_bounds, octets = contents(raw)
    octets = octets[: message_bounds[-1]]
    marks = np.flatnonzero(octets - np.uint8(1) < 2)  # 0 wraps around
    ends_value = octets[marks] == _VALUE_END
    if not _alternate(ends_value):
        # Only the first 0x01 ends a name; others belong to the value.
        ends_name_again = np.zeros(marks.size, np.bool_)
        ends_name_again[1:] = ~ends_value[1:] & ~ends_value[:-1]
        marks, ends_value = marks[~ends_name_again], ends_value[~ends_name_again]
        if not _alternate(ends_value):
            return None
    name_ends, value_ends = marks[0::2], marks[1::2]
    bounds = np.zeros(2 * marks.size, np.int32)
    bounds[4::4] = value_ends[:-1] + 1
    bounds[1::4] = name_ends
    bounds[2::4] = name_ends + 1
    bounds[3::4] = value_ends
    if (bounds[1:] == bounds[:-1]).any():  # an empty name or value is not a property
        return None
    return Properties(raw, octets, bounds, _entry_bounds(value_ends, message_bounds))


def _entry_bounds(value_ends: Integers, message_bounds: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the index of the first entry of every message."""
    messages = message_bounds.size - 1
    each, rest = divmod(value_ends.size, messages) if messages else (0, 0)
    if each and not rest and (value_ends[each - 1 :: each] + 1 == message_bounds[1:]).all():
        return np.arange(messages + 1, dtype=np.int32) * np.int32(
            each
        )  # the same number for each message, the usual case
    return np.searchsorted(value_ends, message_bounds).astype(np.int32)


def _alternate(ends_value: Flags) -> bool:
    return ends_value.size % 2 == 0 and not ends_value[0::2].any() and bool(ends_value[1::2].all())


def _with_last_separators(raw: Any) -> Any:
    """Append 0x02 to elements without it: clients before 5.0 omit the last separator."""
    bounds, octets = contents(raw)
    if not octets.size:
        return raw
    lasts = bounds[1:] - 1
    lacks = (octets[lasts] != _VALUE_END) & (lasts >= bounds[:-1])
    if not lacks.any():
        return raw
    suffixes = pa.array([b"", b"\x02"]).take(pa.array(lacks.astype(np.int8)))
    return pc.binary_join_element_wise(raw, suffixes, b"")


def _valid_utf8(raw: Any) -> Any:
    """Replace invalid UTF-8 by U+FFFD, as Java does."""
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [text.decode("utf-8", "replace").encode() for text in raw.to_pylist()]
        return pa.array(texts, pa.binary())
    return raw


def _cleaned(raw: Any, rows: Iterable[int]) -> Any:
    """Rewrite the properties of these messages: only valid ones, each name once."""
    texts = raw.to_pylist()
    for row in rows:
        texts[row] = properties_to_string(decode_properties(texts[row])).encode()
    return pa.array(texts, pa.binary())


def _messages_with_repeated_names(names: Any, entry_bounds: npt.NDArray[np.int32]) -> Integers:
    counts = np.diff(entry_bounds)
    filled = np.flatnonzero(counts)
    if not filled.size:
        return filled
    dictionary = names.dictionary_encode()
    codes = dictionary.indices.to_numpy()
    distinct = len(dictionary.dictionary)
    if distinct > _MAX_NAME_BITS:
        return _messages_with_repeated_codes(codes, counts, distinct)
    # The sum of the bits equals their union exactly if no name is repeated.
    bits = np.left_shift(np.int64(1), codes, dtype=np.int64)
    firsts = entry_bounds[filled]
    repeating = np.add.reduceat(bits, firsts) != np.bitwise_or.reduceat(bits, firsts)
    owners: Integers = filled[repeating]
    return owners


def _messages_with_repeated_codes(
    codes: npt.NDArray[np.int32], counts: npt.NDArray[np.int32], distinct: int
) -> Integers:
    owners = np.repeat(np.arange(counts.size), counts)
    pairs = np.sort(owners * distinct + codes)
    repeating: Integers = np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // distinct)
    return repeating
