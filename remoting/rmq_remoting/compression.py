"""Compression of message bodies: zlib, LZ4 frames and Zstandard, as in Apache RocketMQ 5.3.3.

The memory of decompression is bounded. A body is refused before it is decompressed far beyond the limit of
one body, and DecompressionBudget bounds the bodies of one response together.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

from .message_errors import (
    CompressionUnavailableError,
    DecompressedTooLargeError,
    DecompressionBudgetError,
    DecompressionError,
    UnknownCompressionError,
)
from .sys_flags import MessageSysFlag

DEFAULT_LEVEL: Final = 5
DEFAULT_MAX_BODY_BYTES: Final = 128 * 1024 * 1024
MAX_RESPONSE_BYTES = 128 * 1024 * 1024
"""Decompressed bytes of one response after which none of its further bodies is decompressed.

The body that reaches this limit is still returned. So the bodies of a response take at most this and the
limit of one body, 256 MiB by default, and the first body is always decompressed.
"""

# Clients write one frame. Each one more costs memory and time, however small it is.
_MAX_FRAMES: Final = 1000
_ZLIB_OR_GZIP: Final = zlib.MAX_WBITS | 32
# Deflate writes at least 2 bits for up to 258 bytes (RFC 1951).
_ZLIB_MAX_RATIO: Final = 1032
# Text and JSON decompress to 2 to 20 times their size. At 128 times, 64 KiB take at most some 50 ms.
_INLINE_RATIO: Final = 128
_NOT_INLINE: Final = "the body is too large to be decompressed on an event loop"
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


_NAMES: Final = {
    CompressionType.LZ4: "LZ4",
    CompressionType.ZSTD: "Zstandard",
    CompressionType.ZLIB: "zlib",
}
# Slow to import and rarely used, so they are imported at the first use: the first one that is there.
_LIBRARIES: Final = {
    CompressionType.LZ4: ("lz4.frame",),
    CompressionType.ZSTD: ("compression.zstd", "zstandard")
    if sys.version_info >= (3, 14)
    else ("zstandard",),
}
_PACKAGES: Final = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstandard"}
# The markers of the extra in pyproject.toml leave packages out from these versions of Python on.
_EXTRA: Final = "pip install 'rmq[compression]'"
_CURES: Final = {
    CompressionType.LZ4: _EXTRA
    if sys.version_info < (3, 15)
    else "pip install lz4, with a C compiler if lz4 has no wheel for this Python",
    CompressionType.ZSTD: _EXTRA
    if sys.version_info < (3, 14)
    else "pip install zstandard, or use a Python that was built with compression.zstd",
}


def check_available(compression: CompressionType) -> None:
    """Raise CompressionUnavailableError if the package for this compression is not installed."""
    if compression is not CompressionType.ZLIB:
        _library(compression)


def _library(compression: CompressionType) -> Any:
    """Import the module that compresses this way. Raises CompressionUnavailableError."""
    for name in _LIBRARIES[compression]:
        with suppress(ImportError):
            return importlib.import_module(name)
    raise CompressionUnavailableError(
        f"{_NAMES[compression]} compression needs the package {_PACKAGES[compression]}, which is not "
        f"installed: {_CURES[compression]}"
    )


def compress(
    body: bytes, compression: CompressionType = CompressionType.ZLIB, level: int = DEFAULT_LEVEL
) -> bytes:
    """Compress a body to the bytes that the Java client writes. LZ4 ignores the level, as there.

    Raises CompressionUnavailableError.
    """
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
    input, CompressionUnavailableError.
    """
    return _decompress(body, compression, _Output(_NAMES[compression], max_size_bytes))


class DecompressionBudget:
    """Decompresses the bodies of one response, within a limit of each body and a limit of the response.

    The limit of the response, MAX_RESPONSE_BYTES, is checked before a body is decompressed. A body that turns
    out to be damaged or too large counts, too, with the bytes that were decompressed until then. Otherwise a
    response could hold any number of such bodies.

    A caller on an event loop sets `inline_bytes`. The budget then also ends before a body with which the
    compressed bodies would exceed this limit, or the decompressed bodies 128 times as many bytes. It ends
    before a compressed batch, too, which may hold many messages. The caller continues with this body in a
    thread, after `lift_inline_limit`.
    """

    __slots__ = (
        "_inline_compressed_left",
        "_inline_left",
        "_is_inline",
        "_left",
        "_limit",
        "_max_body_bytes",
    )

    def __init__(self, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES, inline_bytes: int | None = None) -> None:
        """`max_body_bytes`: limit of a decompressed body. `inline_bytes`: limit of all compressed bodies
        together; None: no such limit.
        """
        self._max_body_bytes = max_body_bytes
        self._limit = self._left = MAX_RESPONSE_BYTES
        self._is_inline = inline_bytes is not None
        self._inline_compressed_left = inline_bytes or 0
        self._inline_left = self._inline_compressed_left * _INLINE_RATIO

    def decompress(self, body: bytes, sys_flag: int) -> bytes:
        """Decompress a body according to the system flag of its message.

        Raises DecompressionBudgetError if the budget is used up, otherwise as `decompress`, and
        UnknownCompressionError.
        """
        if self._left <= 0:
            raise DecompressionBudgetError(
                f"the bodies of the response before this one take {self._limit} bytes or more, decompressed"
            )
        if not self._is_inline:
            return self._decompress(body, sys_flag, self._max_body_bytes)
        self._inline_compressed_left -= len(body)
        if self._inline_compressed_left < 0 or sys_flag & MessageSysFlag.INNER_BATCH:
            raise DecompressionBudgetError(_NOT_INLINE)
        if self._inline_left >= self._max_body_bytes:
            return self._decompress(body, sys_flag, self._max_body_bytes)
        left = self._left
        try:
            return self._decompress(body, sys_flag, self._inline_left)
        except DecompressedTooLargeError:
            self._left = left  # the body is decompressed once more
            raise DecompressionBudgetError(_NOT_INLINE) from None

    def use(self, size_bytes: int) -> None:
        """Count memory that the messages of a response take in addition to their bodies."""
        self._left -= size_bytes

    def lift_inline_limit(self) -> None:
        """Decompress all bodies from now on: the caller no longer runs on an event loop."""
        self._is_inline = False

    def _decompress(self, body: bytes, sys_flag: int, limit: int) -> bytes:
        compression = CompressionType.of_sys_flag(sys_flag)
        output = _Output(_NAMES[compression], limit)
        try:
            return _decompress(body, compression, output)
        finally:
            self._left -= output.size
            self._inline_left -= output.size


class _Output:
    """Collects the pieces of a body, and refuses a piece that exceeds the limit.

    `size`: decompressed bytes so far, including those of a refused piece.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.size = 0
        self._name = name
        self._limit = limit
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise DecompressedTooLargeError(
                f"the {self._name} body decompresses to more than the limit of {self._limit} bytes"
            )
        self._pieces.append(piece)

    def lost(self, size_bytes: int) -> None:
        """Count bytes that were decompressed, and lost with an error; at most up to the limit."""
        self.size += min(size_bytes, self.remaining)

    @property
    def remaining(self) -> int:
        return self._limit - self.size

    def result(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _decompress(body: bytes, compression: CompressionType, output: _Output) -> bytes:
    if compression is CompressionType.ZLIB:
        return _decompress_zlib(body, output)
    if compression is CompressionType.LZ4:
        return _decompress_lz4(body, output)
    return _decompress_zstd(body, output)


def _decompress_zlib(body: bytes, output: _Output) -> bytes:
    # Clients for 5.x may compress by gzip, which the flags of a stored message do not tell from zlib.
    decompressor = zlib.decompressobj(_ZLIB_OR_GZIP)
    try:
        output.add(decompressor.decompress(body, output.remaining + 1))
    except zlib.error as error:
        output.lost(len(body) * _ZLIB_MAX_RATIO)
        raise DecompressionError(f"the zlib body is damaged: {error}") from error
    if not decompressor.eof:
        raise DecompressionError(f"the zlib body of {len(body)} bytes is truncated")
    return output.result()


def _compress_lz4(body: bytes) -> bytes:
    # Three steps: the one-step call would reduce the block size in the frame's header to the body's size,
    # and Apache's LZ4FrameOutputStream writes 4 MiB.
    lz4 = _library(CompressionType.LZ4)
    compressor = lz4.LZ4FrameCompressor(block_size=lz4.BLOCKSIZE_MAX4MB, block_linked=False)
    return bytes(compressor.begin() + compressor.compress(body) + compressor.flush())


def _decompress_lz4(body: bytes, output: _Output) -> bytes:
    lz4 = _library(CompressionType.LZ4)
    position, frames = 0, 0
    try:
        # Frames may follow one another, as for Apache's LZ4FrameInputStream.
        while position < len(body) or not frames:
            frames = _counted("LZ4", frames)
            position = _drain_lz4(lz4.LZ4FrameDecompressor(), body, position, output)
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
    # Without the content size, and with the block flushed before the end: the bytes of the Java client.
    zstd = _library(CompressionType.ZSTD)
    if _is_package(zstd):
        compressor = zstd.ZstdCompressor(level=level, write_content_size=False).compressobj()
        flushes = (zstd.COMPRESSOBJ_FLUSH_BLOCK, zstd.COMPRESSOBJ_FLUSH_FINISH)
    else:
        key = zstd.CompressionParameter
        compressor = zstd.ZstdCompressor(options={key.compression_level: level, key.content_size_flag: 0})
        flushes = (compressor.FLUSH_BLOCK, compressor.FLUSH_FRAME)
    return b"".join([compressor.compress(body), *map(compressor.flush, flushes)])


def _decompress_zstd(body: bytes, output: _Output) -> bytes:
    zstd = _library(CompressionType.ZSTD)
    frame = _zstd_frame(zstd)
    position, frames = 0, 1
    try:
        while position < len(body):
            if frame.eof:  # frames may follow one another, as for Apache's ZstdInputStream
                frames = _counted("Zstandard", frames)
                frame = _zstd_frame(zstd)
            # The package has no limit on its output. Each slice of input is therefore so small that it can
            # at most double the bytes that are still allowed.
            blocks = output.remaining // _ZSTD_BLOCK_MAX_CONTENT
            data = body[position : position + max(_ZSTD_MIN_SLICE_BYTES, blocks * _ZSTD_BLOCK_MIN_BYTES)]
            output.add(frame.decompress(data))
            position += len(data) - len(frame.unused_data)
    except zstd.ZstdError as error:
        raise DecompressionError(f"the Zstandard body is damaged: {error}") from error
    if not frame.eof:
        raise DecompressionError(f"the Zstandard body of {len(body)} bytes is truncated")
    return output.result()


def _zstd_frame(zstd: Any) -> Any:
    """Return a decompressor of one frame; those of both libraries are used alike."""
    decompressor = zstd.ZstdDecompressor()
    return decompressor.decompressobj() if _is_package(zstd) else decompressor


def _is_package(zstd: Any) -> bool:
    return bool(zstd.__name__ == "zstandard")
