"""Requests signed with an access key, for servers with access control.

(Apache RocketMQ 5.3.3, AclClientRPCHook, AclUtils, AclSigner.)
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from .codes import FLAG_RESPONSE
from .command import Serialization
from .connection import Connection, ConnectionSettings, ConnectionStatistics, RequestHandler
from .ext_fields import decode_binary, encode_binary
from .serialization import json

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"

_PREFIX: Final = Struct(">iI")  # frame length, serialization and header length
_PREFIX_BYTES: Final = _PREFIX.size
_FLAG_AND_REMARK: Final = Struct(">9xii")  # of a binary header: flag, remark length
_FIXED_BYTES: Final = _FLAG_AND_REMARK.size
_INT32: Final = Struct(">i")


class RequestSigner:
    """Adds access key, security token and signature to the ext fields of requests."""

    __slots__ = ("_fields", "_mac")

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        self._fields = {ACCESS_KEY: access_key}
        if security_token is not None:
            self._fields[SECURITY_TOKEN] = security_token
        self._mac = hmac.new(secret_key.encode(), digestmod="sha1")

    def signature(self, fields: Mapping[str, str], body: bytes | memoryview) -> str:
        """Return the HMAC-SHA1, in Base64, of the ext fields' values, ordered by name, and the body."""
        mac = self._mac.copy()
        mac.update("".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode())
        mac.update(body)
        return b64encode(mac.digest()).decode()

    def sign(self, frame: bytes) -> bytes:
        """Return the frame of a request with its signature. A response is not signed and stays as it is."""
        _, mark = _PREFIX.unpack_from(frame)
        header_end = _PREFIX_BYTES + (mark & 0xFFFFFF)
        header, body = frame[_PREFIX_BYTES:header_end], memoryview(frame)[header_end:]
        sign_header = self._binary if mark >> 24 == Serialization.BINARY else self._json
        signed = sign_header(header, body)
        if signed is None:
            return frame
        prefix = _PREFIX.pack(4 + len(signed) + len(body), mark & 0xFF000000 | len(signed))
        return b"".join((prefix, signed, body))

    def _binary(self, header: bytes, body: memoryview) -> bytes | None:
        """Return the signed header, or None for a response."""
        flag, remark_length = _FLAG_AND_REMARK.unpack_from(header)
        if flag & FLAG_RESPONSE:
            return None
        remark_end = _FIXED_BYTES + remark_length
        # Fields without a value must be dropped here: servers take them for absent, but Apache's servers
        # would expect a signature of the word `null` (RocketMQSerializable.readStr, AclUtils).
        fields = decode_binary(header[remark_end + 4 :]) | self._fields
        fields[SIGNATURE] = self.signature(fields, body)
        ext = encode_binary(fields)
        return b"".join((header[:remark_end], _INT32.pack(len(ext)), ext))

    def _json(self, header: bytes, body: memoryview) -> bytes | None:
        """Return the signed header, or None for a response."""
        command = json.decode_header(header, b"")
        if command.is_response:
            return None
        fields = command.ext_fields
        fields.update(self._fields)
        fields[SIGNATURE] = self.signature(fields, body)
        return json.encode_header(command)


class SigningConnection(Connection):
    """A connection that signs all its requests, since `write_frame` is the only way to send one."""

    __slots__ = ("_signer",)

    def __init__(
        self,
        signer: RequestSigner,
        handler: RequestHandler,
        settings: ConnectionSettings,
        statistics: ConnectionStatistics,
        on_close: Callable[[Connection], None],
    ) -> None:
        super().__init__(handler, settings, statistics, on_close=on_close)
        self._signer = signer

    def write_frame(self, frame: bytes) -> None:
        """Send an encoded frame, signed if it is a request; drop it silently if the connection has ended."""
        super().write_frame(self._signer.sign(frame))
