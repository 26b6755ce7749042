"""The JSON header (Apache RocketMQ 5.3.3, RemotingCommand written by fastjson)."""

from __future__ import annotations

from typing import Final

import orjson

from ..codes import LanguageCode
from ..command import RemotingCommand, Serialization
from ..errors import HeaderDecodeError

_LANGUAGES: Final = {language.name: int(language) for language in LanguageCode}
_NAMES: Final = {int(language): language.name for language in LanguageCode}
_OTHER: Final = int(LanguageCode.OTHER)
_JSON: Final = Serialization.JSON
_INT32_LIMIT: Final = 1 << 31


def decode_header(data: bytes, body: bytes) -> RemotingCommand:
    """Decode a JSON header."""
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
    if not (-_INT32_LIMIT <= opaque < _INT32_LIMIT and -_INT32_LIMIT <= code < _INT32_LIMIT):
        raise HeaderDecodeError("code and opaque must fit 32 bits")
    ext = get("extFields")
    if ext is not None:
        if type(ext) is not dict:
            raise HeaderDecodeError("extFields must be an object")
        for value in ext.values():
            if type(value) is not str:
                ext = {key: _text(item) for key, item in ext.items() if item is not None}
                break
    remark = get("remark")
    language = get("language", "JAVA")
    return RemotingCommand(
        code,
        flag,
        opaque,
        _LANGUAGES.get(language, _OTHER) if type(language) is str else _OTHER,
        version,
        remark if remark is None or type(remark) is str else _text(remark),
        ext,
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


def _text(value: object) -> str:
    """Return a value that is not a string as the text that Apache's reader makes of it."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:  # orjson reads deeper nesting than it writes
        raise HeaderDecodeError(f"a value of the header cannot be read as text: {error}") from error
