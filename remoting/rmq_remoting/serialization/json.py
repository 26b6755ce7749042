"""The JSON header (Apache RocketMQ 5.3.3, RemotingCommand written by fastjson).

A client's headers differ in their request number and their ext fields alone. What remains of a header without
these two is its shape. A header of a known shape is cut: the number is converted, and the ext fields stay
bytes until a processor asks for them, as those of a binary header do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from ..bounded_cache import ENTRY_OVERHEAD_BYTES, BoundedCache, size_by_key
from ..codes import LanguageCode
from ..command import RemotingCommand, Serialization
from ..errors import HeaderDecodeError
from ..ext_fields import as_text, as_texts, decode_json

_LANGUAGES: Final = {language.name: int(language) for language in LanguageCode}
_NAMES: Final = {int(language): language.name for language in LanguageCode}
_OTHER: Final = int(LanguageCode.OTHER)
_JSON: Final = Serialization.JSON
_INT32_LIMIT: Final = 1 << 31


class _Shape(NamedTuple):
    """The values of a header besides its request number and its ext fields."""

    code: int
    flag: int
    language: int
    version: int


_EXT_NAME: Final = b'"extFields":'
_EXT_MARK: Final = b'"extFields":{'
_EXT_MARK_BYTES: Final = len(_EXT_NAME)  # up to the brace
_OPAQUE_MARK: Final = b'"opaque":'
_OPAQUE_MARK_BYTES: Final = len(_OPAQUE_MARK)
_SAFE_DIGITS: Final = 9  # a number with more digits may not fit 32 bits
# A client has one shape for each request code that it uses.
_MAX_SHAPES: Final = 4096
_MAX_SHAPE_BYTES: Final = 512

shapes: Final = BoundedCache[bytes, _Shape](
    "json_header_shapes",
    max_entries=_MAX_SHAPES,
    max_bytes=_MAX_SHAPES * (ENTRY_OVERHEAD_BYTES + _MAX_SHAPE_BYTES),
    size_of=size_by_key,
    max_entry_bytes=ENTRY_OVERHEAD_BYTES + _MAX_SHAPE_BYTES,
)
_known_shape: Final = shapes.get


def decode_header(data: bytes, body: bytes) -> RemotingCommand:
    """Decode a JSON header; the ext fields of a header of a known shape stay bytes."""
    ext_at = data.find(_EXT_MARK) + _EXT_MARK_BYTES
    opaque_at = data.rfind(_OPAQUE_MARK) + _OPAQUE_MARK_BYTES
    opaque_end = data.find(b",", opaque_at)
    if opaque_end < 0:  # it is the last field
        opaque_end = len(data) - 1
    if opaque_end < opaque_at:
        return decode_whole(data, body)
    if ext_at < opaque_at:
        ext_end = data.rfind(b"}", ext_at, opaque_at) + 1
        if not ext_end:
            return decode_whole(data, body)
        shape = data[:ext_at] + data[ext_end:opaque_at] + data[opaque_end:]
    else:  # the Go client writes the ext fields last
        ext_end = data.rfind(b"}", ext_at, len(data) - 1) + 1
        if not ext_end or opaque_end > ext_at:
            return decode_whole(data, body)
        shape = data[:opaque_at] + data[opaque_end:ext_at] + data[ext_end:]
    raw_ext, opaque = data[ext_at:ext_end], data[opaque_at:opaque_end]
    values = _known_shape(shape)
    if values is None or len(opaque) > _SAFE_DIGITS or not opaque.isdigit():
        command = decode_whole(data, body)
        if values is None and _is_cut_right(data, command, raw_ext, opaque):
            shapes.put(shape, _Shape(command.code, command.flag, command.language, command.version))
        return command
    return RemotingCommand(
        values.code,
        values.flag,
        int(opaque),
        values.language,
        values.version,
        None,
        None,
        raw_ext,
        body,
        _JSON,
    )


def _is_cut_right(data: bytes, command: RemotingCommand, raw_ext: bytes, opaque: bytes) -> bool:
    """Whether a header was cut around its ext fields and its request number.

    Both names stand in the header once. Outside of these two parts a header of the same shape has the same
    bytes, so it has been cut right, too, unless its ext fields are no JSON.
    """
    if command.remark is not None or data.count(_EXT_NAME) != 1 or data.count(_OPAQUE_MARK) != 1:
        return False
    if not opaque.isdigit() or int(opaque) != command.opaque:
        return False
    try:
        return decode_json(raw_ext) == command.ext_fields
    except HeaderDecodeError:
        return False


def decode_whole(data: bytes, body: bytes) -> RemotingCommand:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise HeaderDecodeError(f"the header is not JSON: {error}") from error
    if type(fields) is not dict:
        raise HeaderDecodeError(f"the header is JSON, but a {type(fields).__name__} and not an object")
    get = fields.get
    code, flag, opaque, version = get("code", 0), get("flag", 0), get("opaque", 0), get("version", 0)
    if not (type(code) is type(flag) is type(opaque) is type(version) is int):
        raise HeaderDecodeError("code, flag, opaque and version must be integers")
    if min(code, flag, opaque, version) < -_INT32_LIMIT or max(code, flag, opaque, version) >= _INT32_LIMIT:
        raise HeaderDecodeError("code, flag, opaque and version must fit 32 bits")
    ext = get("extFields")
    remark = get("remark")
    language = get("language", "JAVA")
    return RemotingCommand(
        code,
        flag,
        opaque,
        _LANGUAGES.get(language, _OTHER) if type(language) is str else _OTHER,
        version,
        None if remark is None else as_text(remark),
        None if ext is None else as_texts(ext),
        None,
        body,
        _JSON,
    )


def encode_header(command: RemotingCommand) -> bytes:
    """Encode a JSON header, keys in the order of Apache's writer."""
    fields: dict[str, object] = {"code": command.code}
    if command.has_ext_fields:
        fields["extFields"] = command.ext_fields
    fields["flag"] = command.flag
    fields["language"] = _NAMES.get(command.language, "OTHER")
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    return orjson.dumps(fields)
