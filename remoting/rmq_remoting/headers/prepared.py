"""Response frames in JSON, whose headers are joined from prepared parts."""

from __future__ import annotations

from struct import Struct
from typing import Final

from ..codes import FLAG_RESPONSE, VERSION_5_3_3, LanguageCode

_pack_prefix: Final = Struct(">iI").pack  # length of the rest, length of a JSON header

# A successful response without a remark up to the first ext field, and from the end of the last one on. What
# comes between is a template; the number of the request is the last value.
JSON_HEAD: Final = b'{"code":0,"extFields":{'
JSON_TAIL: Final = (
    b'},"flag":%d,"language":"%b","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % (
        FLAG_RESPONSE,
        LanguageCode.PYTHON.name.encode(),
        VERSION_5_3_3,
    )
)


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    """Return the frame of an encoded JSON header and a body."""
    length = len(header)
    return b"".join((_pack_prefix(4 + length + len(body), length), header, body))
