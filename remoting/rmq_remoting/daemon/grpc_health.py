"""The check of a gRPC port by `grpc.health.v1.Health/Check`, for `rmq-health`.

The few frames of HTTP/2 are written here, so that the command needs no grpcio, and starts as fast for a
proxy as for the other daemons. Sources: RFC 9113 (frames), RFC 7541 (headers), and gRPC over HTTP/2.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Final

from .health_connection import OwnCertificate, ask_in_plain_text_or_tls, left_seconds

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS = 0x1, 0x4
_STREAM: Final = 1
_FRAME_HEAD: Final = 9
_MAX_FRAME_BYTES: Final = 1 << 20
_READ_BYTES: Final = 64 * 1024
_NO_MESSAGE: Final = b"\x00" + struct.pack(">I", 0)  # an empty HealthCheckRequest: the whole server
_SERVING: Final = b"\x08\x01"  # field 1, status: SERVING


class NotServing(Exception):
    """The port answers, but not that it serves."""


def check_grpc(host: str, port: int, timeout_seconds: float, own: OwnCertificate | None = None) -> None:
    """Ask a gRPC port for its health, in plain text and then over TLS. Raises NotServing, OSError."""
    deadline = time.monotonic() + timeout_seconds

    def ask(connection: socket.socket, is_encrypted: bool) -> None:
        _ask(connection, host, deadline, "https" if is_encrypted else "http")

    ask_in_plain_text_or_tls(host, port, deadline, ask, NotServing, ("h2",), own)


def _ask(connection: socket.socket, host: str, deadline: float, scheme: str) -> None:
    headers = _headers(
        (":method", "POST"),
        (":scheme", scheme),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", host),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    )
    connection.sendall(
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, _NO_MESSAGE)
    )
    for kind, flags, payload in _frames(connection, deadline):
        if kind == _DATA and payload:
            if payload[5:] != _SERVING:
                raise NotServing("the proxy answers that it does not serve")
            return
        if kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            raise NotServing("the port refuses the health check (grpc.health.v1.Health/Check)")
    raise NotServing("the connection was closed without a response")


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, flags and payload of the frames until the connection ends."""
    received = b""
    while True:
        while len(received) >= _FRAME_HEAD:
            length = int.from_bytes(received[:3], "big")
            if length > _MAX_FRAME_BYTES:
                raise NotServing("the response is not of HTTP/2")
            end = _FRAME_HEAD + length
            if len(received) < end:
                break
            yield received[3], received[4], received[_FRAME_HEAD:end]
            received = received[end:]
        connection.settimeout(left_seconds(deadline))
        data = connection.recv(_READ_BYTES)
        if not data:
            return
        received += data


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _headers(*pairs: tuple[str, str]) -> bytes:
    """Return a block of headers, each a literal without compression; none is longer than 126 bytes."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in pairs)


def _string(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data
