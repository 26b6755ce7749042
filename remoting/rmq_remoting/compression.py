"""Compression of message bodies: zlib, LZ4 frames and Zstandard, as in Apache RocketMQ 5.3.3.

The memory of decompression is bounded: a body is refused before it is decompressed far beyond the limit.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Any, Final

from .message_errors import DecompressedTooLargeError, DecompressionError, UnknownCompressionError
from .sys_flags import MessageSysFlag

DEFAULT_LEVEL: Final = 5
DEFAULT_MAX_BODY_BYTES: Final = 128 * 1024 * 1024

# Clients write one frame. Each one more costs memory and time, however small it is.
_MAX_FRAMES: Final = 1000
_LZ4_SLICE_BYTES: Final = 64 * 1024
_LZ4_PIECE_BYTES: Final = 256 * 1024
# A Zstandard block takes at least 3 bytes and decompresses to at most 128 KiB (RFC 8878, 3.1.1.2).
_ZSTD_BLOCK_MIN_BYTES: Final = 3
_ZSTD_BLOCK_MAX_CONTENT: Final = 128 * 1024
_ZSTD_MIN_SLICE_BYTES: Final = 64


class CompressionType(IntEnum):
    """The compression of a body; the numbers are those of bits 8 to 10 of the system flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits of a message's system flag for a body with this compression."""
        return MessageSysFlag.COMPRESSED | self << MessageSysFlag.COMPRESSION_SHIFT

    @staticmethod
    def of_sys_flag(sys_flag: int) -> CompressionType:
        """Return the flag's compression; 0, from old clients, is zlib. Raises UnknownCompressionError."""
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
    """Compress a body to the bytes that the Java client writes. LZ4 ignores the level, as there."""
    if compression is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if compression is CompressionType.LZ4:
        return _compress_lz4(body)
    return _compress_zstd(body, level)


def decompress(
    body: bytes, compression: CompressionType, max_size_bytes: int = DEFAULT_MAX_BODY_BYTES
) -> bytes:
    """Decompress a body.

    Raises DecompressedTooLargeError above `max_size_bytes`, DecompressionError for damaged or truncated
    input.
    """
    if compression is CompressionType.ZLIB:
        return _decompress_zlib(body, max_size_bytes)
    if compression is CompressionType.LZ4:
        return _decompress_lz4(body, max_size_bytes)
    return _decompress_zstd(body, max_size_bytes)


class _Output:
    """Collects the pieces of a body, and refuses a piece that exceeds the limit."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise DecompressedTooLargeError(
                f"the {self._name} body decompresses to more than the limit of {self._limit} bytes"
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
        raise DecompressionError(f"the zlib body of {len(body)} bytes is truncated")
    return output.result()


def _compress_lz4(body: bytes) -> bytes:
    # Three steps: the one-step call would reduce the block size in the frame's header to the body's size,
    # and Apache's LZ4FrameOutputStream writes 4 MiB.
    import lz4.frame  # noqa: PLC0415  # slow to import, and rarely used

    compressor = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    return bytes(compressor.begin() + compressor.compress(body) + compressor.flush())


def _decompress_lz4(body: bytes, limit: int) -> bytes:
    import lz4.frame  # noqa: PLC0415

    output = _Output("LZ4", limit)
    position, frames = 0, 0
    try:
        # Frames may follow one another, as for Apache's LZ4FrameInputStream.
        while position < len(body) or not frames:
            frames = _counted("LZ4", frames)
            position = _drain_lz4(lz4.frame.LZ4FrameDecompressor(), body, position, output)
    except RuntimeError as error:
        raise DecompressionError(f"the LZ4 body is damaged: {error}") from error
    return output.result()


def _drain_lz4(frame: Any, body: bytes, position: int, output: _Output) -> int:
    """Decompress the frame that begins at `position`; return where it ends.

    The input is cut because the library copies the bytes behind the frame, and the output because it
    allocates `max_length` bytes at once.
    """
    while not frame.eof:
        data = b""
        if frame.needs_input:
            data = body[position : position + _LZ4_SLICE_BYTES]
            if not data:
                raise DecompressionError("the LZ4 body is truncated")
            position += len(data)
        output.add(frame.decompress(data, max_length=min(_LZ4_PIECE_BYTES, output.remaining + 1)))
    return position - len(frame.unused_data or b"")


def _counted(name: str, frames: int) -> int:
    if frames == _MAX_FRAMES:
        raise DecompressionError(f"the {name} body has more than {_MAX_FRAMES} frames")
    return frames + 1


def _compress_zstd(body: bytes, level: int) -> bytes:
    import zstandard  # noqa: PLC0415  # slow to import, and rarely used

    # Without the content size, and with the block flushed before the end: the bytes of the Java client.
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
    position, frames = 0, 1
    try:
        while position < len(body):
            if frame.eof:  # frames may follow one another, as for Apache's ZstdInputStream
                frames = _counted("Zstandard", frames)
                frame = zstandard.ZstdDecompressor().decompressobj()
            # The library has no limit on its output. Each slice of input is therefore so small that it can
            # at most double the bytes that are still allowed.
            blocks = output.remaining // _ZSTD_BLOCK_MAX_CONTENT
            data = body[position : position + max(_ZSTD_MIN_SLICE_BYTES, blocks * _ZSTD_BLOCK_MIN_BYTES)]
            output.add(frame.decompress(data))
            position += len(data) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"the Zstandard body is damaged: {error}") from error
    if not frame.eof:
        raise DecompressionError(f"the Zstandard body of {len(body)} bytes is truncated")
    return output.result()
