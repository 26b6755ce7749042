"""The ROCKETMQ (binary) header.

`int16 code, int8 language, int16 version, int32 opaque, int32 flag, int32 remark length, remark,
int32 ext length, ext fields`
(Apache RocketMQ 5.3.3, RocketMQSerializable).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ..codes import MAX_BINARY_CODE, MIN_BINARY_CODE
from ..command import RemotingCommand, Serialization
from ..errors import HeaderDecodeError
from ..ext_fields import encode_binary

_FIXED: Final = Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_INT32: Final = Struct(">i")
_FIXED_SIZE: Final = _FIXED.size
_unpack_fixed = _FIXED.unpack_from
_unpack_int32 = _INT32.unpack_from
_BINARY: Final = Serialization.BINARY


def decode_header(data: bytes, start: int, end: int, body: bytes) -> RemotingCommand:
    """Decode the header at data[start:end]; the ext fields stay bytes until their first access."""
    if end - start < _FIXED_SIZE + 4:
        raise HeaderDecodeError(f"binary header of {end - start} bytes is too short")
    code, language, version, opaque, flag, remark_length = _unpack_fixed(data, start)
    position = start + _FIXED_SIZE
    remark = None
    if remark_length:
        if remark_length < 0 or remark_length > end - position - 4:
            raise HeaderDecodeError(f"remark length {remark_length} exceeds the header")
        remark = _utf8(data[position : position + remark_length])
        position += remark_length
    (ext_length,) = _unpack_int32(data, position)
    position += 4
    if ext_length < 0 or ext_length > end - position:
        raise HeaderDecodeError(f"ext fields length {ext_length} exceeds the header")
    raw_ext = data[position : position + ext_length]
    return RemotingCommand(code, flag, opaque, language, version, remark, None, raw_ext, body, _BINARY)


def encode_header(command: RemotingCommand) -> bytes:
    """Encode the header. Raises ValueError for a code of more than 16 bits: use JSON for it."""
    if not MIN_BINARY_CODE <= command.code <= MAX_BINARY_CODE:
        raise ValueError(f"code {command.code} does not fit a binary header")
    remark = command.remark.encode() if command.remark else b""
    raw_ext = command.unread_raw_ext
    ext = raw_ext if raw_ext is not None else encode_binary(command.ext_fields)
    return b"".join(
        (
            _FIXED.pack(
                command.code,
                command.language,
                command.version,
                command.opaque,
                command.flag,
                len(remark),
            ),
            remark,
            _INT32.pack(len(ext)),
            ext,
        )
    )


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise HeaderDecodeError("the remark is not UTF-8") from error
