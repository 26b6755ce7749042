"""Errors of the remoting layer.

RemotingError
├── ProtocolError          the peer broke the protocol: its connection is closed
│   ├── FrameError         lengths that cannot be, an unknown serialization
│   └── HeaderDecodeError  a header that cannot be read
├── HeaderError            a well-formed header with a missing or bad field: answered, connection lives
├── BodyError              a body with a missing or bad field: answered, connection lives
│   └── JsonError          text that is no JSON, not even in Apache's dialect; knows where
├── CommandError           a request that is refused with a wire code and a remark
└── RequestError           a request of ours that got no answer
    ├── ConnectError       no connection could be made
    │   └── TlsError       the peer's certificate is not trusted, or TLS failed otherwise
    ├── ConnectionClosed   the connection ended before the answer came
    ├── RequestTimeout     no answer in time; whether the peer acted on it is unknown
    └── TooManyRequests    our own bound of requests under way is reached; nothing was sent
"""

from __future__ import annotations

from typing import Final

from .codes import ResponseCode

_MAX_SHOWN_CHARACTERS: Final = 100


def shown(value: object) -> str:
    """A value that came from outside, for an error message: its repr, cut off where it grows long."""
    text = repr(value[: _MAX_SHOWN_CHARACTERS + 1]) if isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


class RemotingError(Exception):
    """Root of all errors of this package."""


class ProtocolError(RemotingError):
    """The peer broke the protocol; nothing after this point of its stream can be trusted."""


class FrameError(ProtocolError):
    """A frame whose lengths or serialization cannot be."""


class HeaderDecodeError(ProtocolError):
    """A command header that cannot be read."""


class HeaderError(RemotingError):
    """A typed header with a required field missing or a value of the wrong kind."""


class BodyError(RemotingError):
    """A typed body with a required field missing or a value of the wrong kind."""


class JsonError(BodyError):
    """Text that is not JSON, not even in Apache's dialect; `position` counts characters from 0."""

    def __init__(self, problem: str, position: int | None = None) -> None:
        super().__init__(problem if position is None else f"{problem} (at character {position})")
        self.position = position


class CommandError(RemotingError):
    """A request refused: raised by processors, turned into a response with this code, remark and fields."""

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
    """A request of ours that got no answer."""


class ConnectError(RequestError):
    """No connection to the address could be made."""


class TlsError(ConnectError):
    """No TLS with the address: its certificate is not trusted, or it does not speak TLS as this side does."""


class ConnectionClosed(RequestError):
    """The connection ended before the answer came; whether the peer acted on the request is unknown."""


class RequestTimeout(RequestError):
    """No answer came in time; whether the peer acted on the request is unknown."""


class TooManyRequests(RequestError):
    """The bound of requests under way is reached; nothing was sent."""
