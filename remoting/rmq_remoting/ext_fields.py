"""Ext fields: the map of strings in a header, and its two forms on the wire.

Binary: `{int16 key length, key, int32 value length, value}*` (Apache RocketMQ 5.3.3, RocketMQSerializable).
JSON: an object, the header's member `extFields`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import orjson

from .errors import HeaderDecodeError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# The lowest length that is a negative number in the two bytes of a key's length.
_NEGATIVE_INT16: Final = 0x8000


def decode_binary(raw: bytes) -> dict[str, str]:
    """Decode the binary map. As in Apache's, an empty value counts as absent, the last of equal keys wins.

    Raises HeaderDecodeError.
    """
    fields: dict[str, str] = {}
    position, end = 0, len(raw)
    try:
        while position < end:
            # Compiled, a map is decoded in a quarter of the time that it takes with `unpack_from`.
            size = raw[position] << 8 | raw[position + 1]
            if size >= _NEGATIVE_INT16:
                raise HeaderDecodeError("an ext field's length exceeds the ext fields")
            key_start = position + 2
            key_end = key_start + size
            value_size = (
                raw[key_end] << 24 | raw[key_end + 1] << 16 | raw[key_end + 2] << 8 | raw[key_end + 3]
            )
            value_start = key_end + 4
            position = value_start + value_size
            if position > end:  # also with a negative length of the value, which is read as a large one
                raise HeaderDecodeError("an ext field's length exceeds the ext fields")
            key = raw[key_start:key_end].decode()
            if value_size:
                fields[key] = raw[value_start:position].decode()
            else:
                fields.pop(key, None)
    except UnicodeDecodeError as error:
        raise HeaderDecodeError("an ext field is not UTF-8") from error
    except IndexError as cut:
        raise HeaderDecodeError("the ext fields end in the middle of a field") from cut
    return fields


def encode_binary(fields: dict[str, str]) -> bytes:
    """Encode the map, in the order of the dict."""
    parts: list[bytes] = []
    for key, value in fields.items():
        key_bytes, value_bytes = key.encode(), value.encode()
        parts += (_INT16.pack(len(key_bytes)), key_bytes, _INT32.pack(len(value_bytes)), value_bytes)
    return b"".join(parts)


def decode_json(raw: bytes) -> dict[str, str]:
    """Decode the JSON object. Raises HeaderDecodeError."""
    try:
        fields = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise HeaderDecodeError(f"the ext fields are not JSON: {error}") from error
    return as_texts(fields)


def as_texts(fields: Any) -> dict[str, str]:
    """Return the object's values as texts, without those that are null. Raises HeaderDecodeError."""
    if type(fields) is not dict:
        raise HeaderDecodeError("extFields must be an object")
    for value in fields.values():
        if type(value) is not str:
            return {key: as_text(item) for key, item in fields.items() if item is not None}
    return fields


def as_text(value: object) -> str:
    """Return a value that is not a string as the text that Apache's reader makes of it.

    Raises HeaderDecodeError.
    """
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:  # orjson reads deeper nesting than it writes
        raise HeaderDecodeError(f"a value of the header cannot be read as text: {error}") from error
