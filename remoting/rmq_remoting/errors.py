"""Errors of the remoting layer.

RemotingError
├── ProtocolError          the peer broke the protocol: its connection is closed
│   ├── FrameError         impossible lengths, an unknown serialization
│   └── HeaderDecodeError  a header that cannot be decoded
├── HeaderError            a missing or invalid field of a header: answered, the connection stays open
├── BodyError              a missing or invalid field of a body: answered, the connection stays open
│   └── JsonError          a text that is not JSON, not even in fastjson's dialect; has the position
├── CommandError           a request that is refused with a wire code and a remark
└── RequestError           a request of this side that got no response
    ├── ConnectError       no connection could be made
    │   └── TlsError       the peer's certificate is not trusted, or TLS failed otherwise
    ├── ConnectionClosed   the connection ended before the response arrived
    ├── RequestTimeout     no response in time; whether the peer acted on the request is unknown
    └── TooManyRequests    this side's own bound is reached; nothing was sent
"""

from __future__ import annotations

from typing import Final

from .codes import ResponseCode

_MAX_SHOWN_CHARACTERS: Final = 100


def shown(value: object) -> str:
    """Return the repr of a value from outside for an error message, cut to at most 100 characters."""
    text = repr(value[: _MAX_SHOWN_CHARACTERS + 1]) if isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


class RemotingError(Exception):
    """Root of the errors of this package."""


class ProtocolError(RemotingError):
    """The peer broke the protocol; the rest of its stream cannot be trusted."""


class FrameError(ProtocolError):
    """A frame with impossible lengths or an unknown serialization."""


class HeaderDecodeError(ProtocolError):
    """A command header that cannot be decoded."""


class HeaderError(RemotingError):
    """A typed header with a required field missing or a value of the wrong type."""


class BodyError(RemotingError):
    """A typed body with a required field missing or a value of the wrong type."""


class JsonError(BodyError):
    """A text that is not JSON, not even in fastjson's dialect; `position` counts characters from 0."""

    def __init__(self, problem: str, position: int | None = None) -> None:
        super().__init__(problem if position is None else f"{problem} (at character {position})")
        self.position = position


class CommandError(RemotingError):
    """A refusal raised by a processor; the dispatcher answers with its code, remark and fields."""

    def __init__(self, code: int, remark: str, ext_fields: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields

    def __str__(self) -> str:
        try:
            name = ResponseCode(self.code).name
        except ValueError:
            name = "?"
        return f"{self.code} ({name}): {self.remark}"


class RequestError(RemotingError):
    """A request of this side that got no response."""


class ConnectError(RequestError):
    """The connection to an address could not be opened."""


class TlsError(ConnectError):
    """TLS with the address failed: its certificate is not trusted, or there is no common form of TLS."""


class ConnectionClosed(RequestError):
    """The connection ended before the response; whether the peer acted on the request is unknown."""


class RequestTimeout(RequestError):
    """The response did not arrive in time; whether the peer acted on the request is unknown."""


class TooManyRequests(RequestError):
    """A bound of pending requests or unsent bytes is reached; nothing was sent."""
