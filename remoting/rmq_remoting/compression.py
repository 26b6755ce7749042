"""Compression of message bodies: zlib, LZ4 frames and Zstandard, as Apache RocketMQ 5.3.3 does it.

Decompression is bounded in memory: a body is never unpacked far beyond the limit before it is refused.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Any, Final

from .message_errors import DecompressedTooLargeError, DecompressionError, UnknownCompressionError
from .sys_flags import MessageSysFlag

DEFAULT_LEVEL: Final = 5
DEFAULT_MAX_BODY_BYTES: Final = 128 * 1024 * 1024

_MIN_PIECE_BYTES: Final = 64 * 1024
# A Zstandard block takes at least 3 bytes and unpacks to at most 128 KiB (RFC 8878, 3.1.1.2).
_ZSTD_BLOCK_MIN_BYTES: Final = 3
_ZSTD_BLOCK_MAX_CONTENT: Final = 128 * 1024
_ZSTD_MIN_SLICE_BYTES: Final = 64


class CompressionType(IntEnum):
    """What a body is compressed with; the numbers are those of the system flag's bits 8 to 10."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits of a message's system flag that say 'compressed, with this'."""
        return MessageSysFlag.COMPRESSED | self << MessageSysFlag.COMPRESSION_SHIFT

    @staticmethod
    def of_sys_flag(sys_flag: int) -> CompressionType:
        """What the flag names; 0, which old clients write, is zlib. Raises UnknownCompressionError."""
        number = (sys_flag & MessageSysFlag.COMPRESSION_MASK) >> MessageSysFlag.COMPRESSION_SHIFT
        if number == 0:
            return CompressionType.ZLIB
        try:
            return CompressionType(number)
        except ValueError:
            raise UnknownCompressionError(
                f"compression {number} (bits 8 to 10 of sys_flag {sys_flag:#x}) is unknown: "
                "known are 0 and 3 (zlib), 1 (LZ4) and 2 (Zstandard)"
            ) from None


def compress(
    body: bytes, compression: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL
) -> bytes:
    """The compressed body, as Apache's client writes it. LZ4 knows no level here, as there."""
    if compression is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if compression is CompressionType.LZ4:
        return _compress_lz4(body)
    return _compress_zstd(body, level)


def decompress(
    body: bytes, compression: CompressionType, max_size_bytes: int = DEFAULT_MAX_BODY_BYTES
) -> bytes:
    """The body as it was before `compress`.

    Raises DecompressedTooLargeError above `max_size_bytes`, DecompressionError for damaged or cut input.
    """
    if compression is CompressionType.ZLIB:
        return _decompress_zlib(body, max_size_bytes)
    if compression is CompressionType.LZ4:
        return _decompress_lz4(body, max_size_bytes)
    return _decompress_zstd(body, max_size_bytes)


class _Output:
    """Collects the pieces of a body, and refuses the one that takes it over the limit."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise DecompressedTooLargeError(
                f"the {self._name} body unpacks to more than the allowed {self._limit} bytes"
            )
        self._pieces.append(piece)

    @property
    def remaining(self) -> int:
        return self._limit - self._size

    def result(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _decompress_zlib(body: bytes, limit: int) -> bytes:
    output = _Output("zlib", limit)
    decompressor = zlib.decompressobj()
    try:
        output.add(decompressor.decompress(body, limit + 1))
    except zlib.error as error:
        raise DecompressionError(f"the zlib body is damaged: {error}") from error
    if not decompressor.eof:
        raise DecompressionError(f"the zlib body of {len(body)} bytes is cut off")
    return output.result()


def _compress_lz4(body: bytes) -> bytes:
    # In three steps because the one-step call shrinks the block size in the frame's header to the body's
    # size; Apache's LZ4FrameOutputStream writes 4 MiB.
    import lz4.frame  # noqa: PLC0415  # costs start-up time, and few use it

    compressor = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    return bytes(compressor.begin() + compressor.compress(body) + compressor.flush())


def _decompress_lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame  # noqa: PLC0415

    output = _Output("LZ4", limit)
    rest: bytes | None = body
    try:
        while rest is not None:  # frames may follow one another, as for Apache's LZ4FrameInputStream
            frame = lz4.frame.LZ4FrameDecompressor()
            _drain_lz4(frame, rest, output)
            rest = frame.unused_data
    except RuntimeError as error:
        raise DecompressionError(f"the LZ4 body is damaged: {error}") from error
    return output.result()


def _drain_lz4(frame: Any, data: bytes, output: _Output) -> None:
    """Unpacks one frame; piece by piece, because the library allocates `max_length` bytes at once."""
    piece_bytes = max(_MIN_PIECE_BYTES, 4 * len(data))
    while not frame.eof:
        piece = frame.decompress(data, max_length=min(piece_bytes, output.remaining + 1))
        if not piece and not frame.eof:
            raise DecompressionError("the LZ4 body is cut off")
        output.add(piece)
        data = b""


def _compress_zstd(body: bytes, level: int) -> bytes:
    import zstandard  # noqa: PLC0415  # costs start-up time, and few use it

    # Without the content size and with the block flushed before the end: the bytes that Apache's client
    # writes.
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=False).compressobj()
    return (
        compressor.compress(body)
        + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
    )


def _decompress_zstd(body: bytes, limit: int) -> bytes:
    import zstandard  # noqa: PLC0415

    output = _Output("Zstandard", limit)
    frame = zstandard.ZstdDecompressor().decompressobj()
    position = 0
    try:
        while position < len(body):
            if frame.eof:  # frames may follow one another, as for Apache's ZstdInputStream
                frame = zstandard.ZstdDecompressor().decompressobj()
            # The library cannot be told to stop at a size, so it gets no more input than can double what is
            # still allowed.
            blocks = output.remaining // _ZSTD_BLOCK_MAX_CONTENT
            data = body[position : position + max(_ZSTD_MIN_SLICE_BYTES, blocks * _ZSTD_BLOCK_MIN_BYTES)]
            output.add(frame.decompress(data))
            position += len(data) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"the Zstandard body is damaged: {error}") from error
    if not frame.eof:
        raise DecompressionError(f"the Zstandard body of {len(body)} bytes is cut off")
    return output.result()
