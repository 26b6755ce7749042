"""Frames for the protocol's tests: Apache's own, and hand-made ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from rmq_remoting.codes import LanguageCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import FrameDecoder
from tests.support.golden import json_lines


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """A frame that Apache's encoder wrote, and Apache's decoding of it."""

    name: str
    is_binary: bool
    frame: bytes
    as_sent_by_netty: bytes
    decoded: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name} [{'binary' if self.is_binary else 'JSON'}]"


@cache
def golden_frames() -> tuple[GoldenFrame, ...]:
    """Every frame of `tests/data/wire/frames.jsonl`."""
    return tuple(
        GoldenFrame(
            row["name"],
            row["serialization"] == "ROCKETMQ",
            bytes.fromhex(row["hex"]),
            bytes.fromhex(row.get("hex_as_sent_by_netty_encoder", row["hex"])),
            row["decoded"],
        )
        for row in json_lines("wire/frames.jsonl")
    )


def described(command: RemotingCommand) -> dict[str, Any]:
    """The command in the form of the golden data's `decoded`; a map without fields is the same as none."""
    return {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "language": LanguageCode(command.language).name,
        "version": command.version,
        "remark": command.remark,
        "extFields": dict(command.ext_fields),
        "body_hex": command.body.hex(),
    }


def as_described(decoded: dict[str, Any]) -> dict[str, Any]:
    """Golden `decoded` with absent values left out, as `described` gives it."""
    fields = decoded["extFields"] or {}
    return {
        **decoded,
        "extFields": {name: value for name, value in fields.items() if value is not None},
        "body_hex": decoded["body_hex"] or "",
    }


def decode_one(frame: bytes) -> RemotingCommand:
    """The only command in `frame`."""
    decoder = FrameDecoder()
    (command,) = decoder.feed(frame)
    assert decoder.failure is None
    assert decoder.buffered_bytes == 0
    return command


def decode_all(stream: bytes) -> list[RemotingCommand]:
    """The commands of a stream."""
    decoder = FrameDecoder()
    commands = decoder.feed(stream)
    assert decoder.failure is None
    assert decoder.buffered_bytes == 0
    return commands


def raw_frame(header: bytes, body: bytes = b"", *, serialization: int = 0) -> bytes:
    """A frame around any header bytes."""
    mark = serialization << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), mark) + header + body


def binary_header(
    *,
    code: int = 10,
    language: int = 0,
    version: int = 479,
    opaque: int = 1,
    flag: int = 0,
    remark: bytes = b"",
    ext: bytes = b"",
    remark_length: int | None = None,
    ext_length: int | None = None,
) -> bytes:
    """A binary header around any bytes; wrong lengths where given."""
    return b"".join(
        (
            struct.pack(">hbhiii", code, language, version, opaque, flag, _or(remark_length, len(remark))),
            remark,
            struct.pack(">i", _or(ext_length, len(ext))),
            ext,
        )
    )


def ext_field(name: bytes, value: bytes) -> bytes:
    """One field of a binary string map."""
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given
