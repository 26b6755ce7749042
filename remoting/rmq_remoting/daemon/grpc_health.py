"""The check of a gRPC port by `grpc.health.v1.Health/Check`, for `rmq-health`.

It writes its few frames of HTTP/2 itself, so that the command needs no grpcio, and starts as fast for a
proxy as for the other daemons.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final

from .health_connection import OwnCertificate, ask_in_plain_text_or_tls, left_seconds
from .http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    grpc_message,
    literal,
)

_STREAM: Final = 1
_MAX_FRAME_BYTES: Final = 1 << 20
_READ_BYTES: Final = 64 * 1024
_NO_MESSAGE: Final = grpc_message(b"")  # an empty HealthCheckRequest: the whole server
_SERVING: Final = b"\x08\x01"  # field 1, status: SERVING


class NotServing(Exception):
    """The port answers, but not that it serves."""


def check_grpc(host: str, port: int, timeout_seconds: float, own: OwnCertificate | None = None) -> None:
    """Ask a gRPC port for its health, in plain text and then over TLS. Raises NotServing, OSError."""
    deadline = time.monotonic() + timeout_seconds

    def ask(connection: socket.socket, is_encrypted: bool) -> None:
        _ask(connection, host, deadline, "https" if is_encrypted else "http")

    ask_in_plain_text_or_tls(host, port, deadline, ask, NotServing, ("h2",), own)


def request(host: str, scheme: str, further: Sequence[tuple[bytes, bytes]] = ()) -> bytes:
    """Return the bytes of a connection with one health check. `further`: more headers of the call."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", scheme.encode()),
        (b":path", b"/grpc.health.v1.Health/Check"),
        (b":authority", host.encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *further,
    )
    headers = b"".join(literal(name, value) for name, value in fields)
    return (
        PREFACE
        + frame(SETTINGS, 0, 0, b"")
        + frame(HEADERS, END_HEADERS, _STREAM, headers)
        + frame(DATA, END_STREAM, _STREAM, _NO_MESSAGE)
    )


def _ask(connection: socket.socket, host: str, deadline: float, scheme: str) -> None:
    connection.sendall(request(host, scheme))
    for kind, flags, payload in frames(connection, deadline):
        if kind == DATA and payload:
            if payload[5:] != _SERVING:
                raise NotServing("the proxy answers that it does not serve")
            return
        if kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
            raise NotServing("the port refuses the health check (grpc.health.v1.Health/Check)")
    raise NotServing("the connection was closed without a response")


def frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, flags and payload of the frames until the connection ends. Raises NotServing, OSError."""
    received = b""
    while True:
        while len(received) >= FRAME_HEAD:
            length = int.from_bytes(received[:3], "big")
            if length > _MAX_FRAME_BYTES:
                raise NotServing("the response is not of HTTP/2")
            end = FRAME_HEAD + length
            if len(received) < end:
                break
            yield received[3], received[4], received[FRAME_HEAD:end]
            received = received[end:]
        connection.settimeout(left_seconds(deadline))
        data = connection.recv(_READ_BYTES)
        if not data:
            return
        received += data
