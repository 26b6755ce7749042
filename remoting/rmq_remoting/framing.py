"""Frames: from bytes to commands and back, as a pure state machine without I/O.

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
# No client sends longer ones, and decoding 16 MiB of fields costs seconds. A response may have a longer one,
# since that to a batch names every message.
MAX_REQUEST_HEADER_BYTES: Final = 256 * 1024
# Of requests that carry neither messages nor all topics of a broker.
MAX_REQUEST_BODY_BYTES: Final = 1024 * 1024

# Parts of this size are kept as they arrived, and copied once when the frame is complete.
_LARGE_BYTES: Final = 16 * 1024

# First byte of a TLS record with a handshake; a frame would have at least 352 MiB.
_TLS_HANDSHAKE: Final = 0x16

_PREFIX: Final = Struct(">iI")
_unpack_prefix = _PREFIX.unpack_from
_decode_binary = binary.decode_header
_decode_json = json.decode_header


class FrameDecoder:
    """Decodes the commands of a stream that arrives in chunks.

    A broken frame sets `failure`: the commands before it are returned, later bytes are ignored.
    """

    __slots__ = ("_held", "_max_frame_bytes", "_max_header_bytes", "_needed", "_parts", "failure")

    def __init__(
        self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        # Parts of an incomplete frame, as they arrived; consecutive small parts are joined.
        self._parts: list[bytes | bytearray | memoryview] = []
        self._held = 0
        self._needed = 0
        self.failure: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete frame that are buffered."""
        return self._held

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Return the commands that `data` completes, in order."""
        if self.failure is not None:
            return []
        if not self._held:
            return self._cut(data, 0, [])
        self._held += len(data)
        if self._held < self._needed:
            self._keep(data)
            return []
        parts, self._parts = self._parts, []
        end = len(data) - (self._held - self._needed)  # end of the buffered frame within `data`
        self._held = 0
        if self._needed < _LARGE_BYTES:
            return self._cut(b"".join((*parts, data)), 0, [])
        try:
            command = self._assemble(parts, memoryview(data)[:end])
        except ProtocolError as error:
            self.failure = error
            return []
        return self._cut(data, end, [command])

    def _cut(self, data: bytes, position: int, commands: list[RemotingCommand]) -> list[RemotingCommand]:
        """Append the complete commands from `position` on, and keep the rest."""
        end = len(data)
        needed = 8
        try:
            while end - position >= 8:
                length, mark = _unpack_prefix(data, position)
                header_length = mark & 0xFFFFFF
                if (
                    length < 4
                    or length + 4 > self._max_frame_bytes
                    or header_length > length - 4
                    or header_length > self._max_header_bytes
                ):
                    self._check(length, header_length)
                stop = position + 4 + length
                if stop > end:
                    needed = stop - position
                    break
                header = position + 8
                header_end = header + header_length
                commands.append(_decode(mark >> 24, data, header, header_end, data[header_end:stop]))
                position = stop
        except ProtocolError as error:
            self.failure = error
            return commands
        if position < end:
            self._needed = needed
            self._held = end - position
            self._keep(data if not position else memoryview(data)[position:])
        return commands

    def _keep(self, data: bytes | memoryview) -> None:
        parts = self._parts
        if len(data) >= _LARGE_BYTES:
            parts.append(data)
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += data
        else:
            parts.append(bytearray(data))

    def _assemble(self, parts: list[bytes | bytearray | memoryview], last: memoryview) -> RemotingCommand:
        """Decode a large frame that arrived in parts; its body is copied once. Raises ProtocolError."""
        first = parts[0]
        header_end = 8
        if len(first) >= 8:
            header_end += _unpack_prefix(first)[1] & 0xFFFFFF
        if len(first) < header_end:
            first = b"".join((*parts, last))
            parts, last = [first], memoryview(b"")
            header_end = 8 + (_unpack_prefix(first)[1] & 0xFFFFFF)
        head = bytes(first[:header_end])
        body = b"".join((memoryview(first)[header_end:], *parts[1:], last))
        return _decode(_unpack_prefix(head)[1] >> 24, head, 8, header_end, body)

    def _check(self, length: int, header_length: int) -> None:
        if length < 4:
            raise FrameError(f"frame length {length} is impossible, the least is 4")
        if length >> 24 == _TLS_HANDSHAKE:
            raise FrameError("the peer sent a TLS handshake, and this connection is in plain text")
        if length + 4 > self._max_frame_bytes:
            raise FrameError(f"frame of {length + 4} bytes is over the limit of {self._max_frame_bytes}")
        if header_length > length - 4:
            raise FrameError(f"header length {header_length} exceeds its frame of {length} bytes")
        raise FrameError(f"header of {header_length} bytes is over the limit of {self._max_header_bytes}")


def _decode(serialization: int, data: bytes, header: int, header_end: int, body: bytes) -> RemotingCommand:
    """Decode a header in either serialization. Raises ProtocolError."""
    if serialization == 1:
        return _decode_binary(data, header, header_end, body)
    if serialization == 0:
        return _decode_json(data[header:header_end], body)
    raise FrameError(f"unknown serialization {serialization}")


def encode_frame(command: RemotingCommand) -> bytes:
    """Encode the whole frame; a command whose code does not fit a binary header is sent as JSON.

    Raises ValueError for a frame over the limit: the peer would close the connection.
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
