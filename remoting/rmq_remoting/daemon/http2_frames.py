"""Frames of HTTP/2 as a client of gRPC writes them. Sources: RFC 9113 (frames), RFC 7541 (headers)."""

from __future__ import annotations

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Kinds of frames.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
# Flags. ACK is of settings and pings.
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
# Bytes before the payload.
FRAME_HEAD: Final = 9


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes, *, is_indexed: bool = False) -> bytes:
    """Return a header as a literal without compression; neither part is longer than 126 bytes.

    `is_indexed`: the receiver adds it to its dynamic table.
    """
    form = b"\x40" if is_indexed else b"\x00"
    return form + bytes((len(name),)) + name + bytes((len(value),)) + value


def grpc_message(data: bytes) -> bytes:
    """Return a message as gRPC sends it, without compression."""
    return b"\x00" + struct.pack(">I", len(data)) + data
