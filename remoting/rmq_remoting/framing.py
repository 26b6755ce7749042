"""Bytes to commands and back: a pure state machine, no sockets.

A frame is `int32 length of the rest, int32 (serialization << 24 | header length), header, body`
(Apache RocketMQ 5.3.3, RemotingCommand and NettyDecoder).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from .codes import MAX_BINARY_CODE, MIN_BINARY_CODE
from .command import RemotingCommand, Serialization
from .errors import FrameError, ProtocolError
from .serialization import binary, json

# Apache's frame limit counts the length field itself (LengthFieldBasedFrameDecoder).
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024

_PREFIX: Final = Struct(">iI")
_unpack_prefix = _PREFIX.unpack_from
_decode_binary = binary.decode_header
_decode_json = json.decode_header


class FrameDecoder:
    """Fed with chunks of a stream, gives the commands in it.

    After a broken frame `failure` is set: the commands before it are still given, nothing after it is.
    """

    __slots__ = ("_max_frame_bytes", "_needed", "_pending", "failure")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._needed = 0
        self.failure: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """The commands that `data` completes, in order."""
        if self.failure is not None:
            return []
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return []
            data = bytes(pending)
            pending.clear()
        commands: list[RemotingCommand] = []
        position, end = 0, len(data)
        needed = 8
        try:
            while end - position >= 8:
                length, mark = _unpack_prefix(data, position)
                header_length = mark & 0xFFFFFF
                if length < 4 or length + 4 > self._max_frame_bytes or header_length > length - 4:
                    self._check(length, header_length)
                stop = position + 4 + length
                if stop > end:
                    needed = stop - position
                    break
                header = position + 8
                header_end = header + header_length
                serialization = mark >> 24
                if serialization == 1:
                    command = _decode_binary(data, header, header_end, data[header_end:stop])
                elif serialization == 0:
                    command = _decode_json(data[header:header_end], data[header_end:stop])
                else:
                    raise FrameError(f"unknown serialization {serialization}")
                commands.append(command)
                position = stop
        except ProtocolError as error:
            self.failure = error
            return commands
        if position < end:
            pending += data[position:] if position else data
            self._needed = needed
        return commands

    def _check(self, length: int, header_length: int) -> None:
        if length < 4:
            raise FrameError(f"frame length {length} cannot be")
        if length + 4 > self._max_frame_bytes:
            raise FrameError(f"frame of {length + 4} bytes is over the limit of {self._max_frame_bytes}")
        raise FrameError(f"header length {header_length} exceeds its frame of {length} bytes")


def encode_frame(command: RemotingCommand) -> bytes:
    """The whole frame; a code that a binary header cannot carry goes as JSON.

    Raises ValueError for a frame over the limit: the peer would end the connection.
    """
    if command.serialization is Serialization.BINARY and MIN_BINARY_CODE <= command.code <= MAX_BINARY_CODE:
        header = binary.encode_header(command)
        mark = 0x01000000 | len(header)
    else:
        header = json.encode_header(command)
        mark = len(header)
    body = command.body
    length = 4 + len(header) + len(body)
    if length > MAX_FRAME_BYTES - 4:
        raise ValueError(f"a frame of {length + 4} bytes is over the limit of {MAX_FRAME_BYTES}")
    return b"".join((_PREFIX.pack(length, mark), header, body))
