"""RemotingCommand: one request or response, as a value."""

from __future__ import annotations

import itertools
from enum import IntEnum
from typing import Final

from .codes import FLAG_ONEWAY, FLAG_RESPONSE, VERSION_5_3_3, LanguageCode
from .ext_fields import decode_binary, decode_json

_OPAQUE_MASK: Final = 0x7FFFFFFF
_opaque_counter = itertools.count(1)


class Serialization(IntEnum):
    """Serialization of a header; the number is the high byte of the header length on the wire."""

    JSON = 0
    BINARY = 1


def next_opaque() -> int:
    """Return a request number, unique in this process for 2^31 requests."""
    return next(_opaque_counter) & _OPAQUE_MASK


class RemotingCommand:
    """A request or a response.

    `ext_fields` is decoded from `raw_ext`, bytes in the command's serialization, at the first access, which
    raises HeaderDecodeError if the bytes are damaged. Processors of the hot path read the bytes themselves
    and never pay for the map.
    """

    __slots__ = (
        "_ext_fields",
        "body",
        "code",
        "flag",
        "language",
        "opaque",
        "raw_ext",
        "remark",
        "serialization",
        "version",
    )

    def __init__(
        self,
        code: int,
        flag: int,
        opaque: int,
        language: int = LanguageCode.PYTHON,
        version: int = VERSION_5_3_3,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        raw_ext: bytes | None = None,
        body: bytes = b"",
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        self.code = code
        self.flag = flag
        self.opaque = opaque
        self.language = language
        self.version = version
        self.remark = remark
        self._ext_fields = ext_fields
        self.raw_ext = raw_ext
        self.body = body
        self.serialization = serialization

    @classmethod
    def request(
        cls,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        serialization: Serialization = Serialization.JSON,
    ) -> RemotingCommand:
        """Create a request with a new request number."""
        return cls(
            int(code),
            FLAG_ONEWAY if oneway else 0,
            next_opaque(),
            ext_fields=ext_fields,
            body=body,
            serialization=serialization,
        )

    def response(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Create the response to this request, in the same serialization."""
        return RemotingCommand(
            int(code),
            FLAG_RESPONSE,
            self.opaque,
            remark=remark,
            ext_fields=ext_fields,
            body=body,
            serialization=self.serialization,
        )

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header's string map."""
        fields = self._ext_fields
        if fields is None:
            raw = self.raw_ext
            if not raw:
                fields = {}
            else:
                is_binary = self.serialization is Serialization.BINARY
                fields = decode_binary(raw) if is_binary else decode_json(raw)
            self._ext_fields = fields
        return fields

    @property
    def unread_raw_ext(self) -> bytes | None:
        """The map's bytes before the first access to the map; after it the map may have been changed."""
        return self.raw_ext if self._ext_fields is None else None

    @property
    def has_ext_fields(self) -> bool:
        """Whether there is a map; in JSON an empty one differs from none."""
        return self._ext_fields is not None or self.raw_ext is not None

    @property
    def is_response(self) -> bool:
        """Whether the command is a response."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the command is a request without a response."""
        return self.flag & FLAG_ONEWAY != 0

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} {self.serialization.name} "
            f"remark={self.remark!r} ext={self._ext_fields if self._ext_fields is not None else '?'} "
            f"body={len(self.body)} bytes>"
        )
