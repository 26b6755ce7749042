"""Compression of bodies: the bytes of the Java client, and protection against bombs."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting import compression as compression_module
from rmq_remoting.compression import CompressionType, DecompressionBudget, compress, decompress
from rmq_remoting.message_errors import (
    DecompressedTooLargeError,
    DecompressionBudgetError,
    DecompressionError,
    UnknownCompressionError,
)
from rmq_remoting.sys_flags import MessageSysFlag
from tests.support.compressions import COMPRESSIONS, readable
from tests.support.examples import examples
from tests.support.golden import json_lines


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing, too
        return False


GOLDEN = readable(json_lines("wire/messages.jsonl", "compressed body"))
all_types = pytest.mark.parametrize("compression", COMPRESSIONS)
types_with_frames = pytest.mark.parametrize("compression", COMPRESSIONS[:2])


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["name"])
def test_golden_bodies(row: dict[str, Any]) -> None:
    compression = CompressionType.of_sys_flag(row["sysFlag"])
    assert compression is CompressionType[row["resolved_type"]]
    plain, compressed = bytes.fromhex(row["plain_hex"]), bytes.fromhex(row["compressed_hex"])
    assert decompress(compressed, compression) == plain
    assert compress(plain, compression) == compressed
    if row["compression_type_bits"]:
        assert compression.sys_flag == row["sysFlag"]


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_type(number: int) -> None:
    with pytest.raises(UnknownCompressionError, match=f"compression {number} "):
        CompressionType.of_sys_flag(1 | number << 8)


@all_types
@given(body=st.binary(max_size=2000))
def test_round_trip(compression: CompressionType, body: bytes) -> None:
    assert decompress(compress(body, compression), compression, len(body)) == body


@all_types
def test_large_body(compression: CompressionType) -> None:
    body = b"".join(index.to_bytes(4, "big") for index in range(500_000))
    assert decompress(compress(body, compression), compression, len(body)) == body


@all_types
def test_limit_is_exact(compression: CompressionType) -> None:
    compressed = compress(bytes(300_000), compression)
    assert len(decompress(compressed, compression, 300_000)) == 300_000
    with pytest.raises(DecompressedTooLargeError, match="299999 bytes"):
        decompress(compressed, compression, 299_999)


@all_types
def test_a_truncated_body_is_refused(compression: CompressionType) -> None:
    compressed = compress(b"abcdefgh" * 40 + bytes(range(64)), compression)
    for length in range(len(compressed)):
        with pytest.raises(DecompressionError):
            decompress(compressed[:length], compression)


@all_types
@given(data=st.data())
@settings(max_examples=examples(150))
def test_damage_raises_the_typed_error(compression: CompressionType, data: st.DataObject) -> None:
    raw = bytearray(compress(b"abcdefgh" * 20 + bytes(range(64)), compression))
    for bit in data.draw(st.lists(st.integers(0, len(raw) * 8 - 1), min_size=1, max_size=4)):
        raw[bit // 8] ^= 1 << bit % 8
    with suppress(DecompressionError):
        assert len(decompress(bytes(raw), compression, 100_000)) <= 100_000


@all_types
@given(raw=st.binary(max_size=100))
def test_random_bytes(compression: CompressionType, raw: bytes) -> None:
    with suppress(DecompressionError):
        decompress(raw, compression, 100_000)


@types_with_frames
def test_frames_one_after_another(compression: CompressionType) -> None:
    frames = compress(b"one ", compression) + compress(b"two", compression)
    assert decompress(frames, compression) == b"one two"
    with pytest.raises(DecompressionError):
        decompress(frames + b"junk after the end", compression)


def test_bytes_after_a_zlib_stream_are_ignored() -> None:
    # Java's InflaterInputStream does not read on after the end of the stream.
    assert decompress(zlib.compress(b"body") + b"junk", CompressionType.ZLIB) == b"body"


_MEASURE_A_BOMB = """
import re, sys
from pathlib import Path
from rmq_remoting import compression as module
from rmq_remoting.compression import CompressionType, compress, decompress
from rmq_remoting.message_errors import DecompressedTooLargeError

compression = CompressionType[sys.argv[1]]
if sys.argv[2:]:
    module._LIBRARIES[compression] = tuple(sys.argv[2:])
decompress(compress(b"warm up", compression), compression)
bomb = bytes.fromhex(sys.stdin.read())

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

before = peak()
try:
    decompress(bomb, compression, 16 << 20)
except DecompressedTooLargeError:
    print(peak() - before)
"""


@all_types
def test_a_bomb_is_stopped_before_it_fills_memory(compression: CompressionType) -> None:
    assert _kib_used_by_a_bomb(compression) < 100 << 10


def _kib_used_by_a_bomb(compression: CompressionType, *library: str) -> int:
    """Return the memory for a body of 200 MiB where 16 MiB are allowed.

    It is not `ru_maxrss`, in which a child begins with the maximum of its parent.
    """
    bomb = compress(bytes(200 << 20), compression)
    assert len(bomb) < 4 << 20
    child = subprocess.run(
        [sys.executable, "-c", _MEASURE_A_BOMB, compression.name, *library],
        input=bomb.hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    return int(child.stdout)


_ZSTD_LIBRARIES = [name for name in ("compression.zstd", "zstandard") if _is_there(name)]


@pytest.mark.parametrize("library", _ZSTD_LIBRARIES)
class TestEachZstandardLibrary:
    """A Python has one or both: `compression.zstd` since 3.14, and the package zstandard."""

    @pytest.fixture(autouse=True)
    def only_this_one(self, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(compression_module._LIBRARIES, CompressionType.ZSTD, (library,))

    @pytest.mark.parametrize("level", [1, 5, 9])
    @pytest.mark.parametrize("size", [0, 100, 300_000])
    def test_frames_are_the_same(self, size: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
        body = random.Random(size).randbytes(size // 10) * 10
        frame = compress(body, CompressionType.ZSTD, level)
        # No content size, no checksum, no dictionary (RFC 8878, 3.1.1.1.1).
        assert frame[:5] == b"\x28\xb5\x2f\xfd\x00"
        for other in _ZSTD_LIBRARIES:
            monkeypatch.setitem(compression_module._LIBRARIES, CompressionType.ZSTD, (other,))
            assert decompress(frame, CompressionType.ZSTD, size) == body
            assert compress(body, CompressionType.ZSTD, level) == frame

    def test_golden_body(self) -> None:
        row = next(row for row in GOLDEN if row["resolved_type"] == "ZSTD")
        assert compress(bytes.fromhex(row["plain_hex"]), CompressionType.ZSTD).hex() == row["compressed_hex"]

    @pytest.mark.parametrize("frames", [1, 16])
    def test_the_limit_is_exact_and_bounds_the_output(self, frames: int) -> None:
        size, limit = 16 << 20, 4 << 20
        body = compress(bytes(size // frames), CompressionType.ZSTD) * frames
        assert len(decompress(body, CompressionType.ZSTD, size)) == size
        output = compression_module._Output("Zstandard", limit)
        with pytest.raises(DecompressedTooLargeError):
            compression_module._decompress_zstd(body, output)
        assert limit < output.size <= 2 * limit

    def test_a_bomb_is_stopped_before_it_fills_memory(self, library: str) -> None:
        assert _kib_used_by_a_bomb(CompressionType.ZSTD, library) < 100 << 10

    def test_damage_is_refused(self) -> None:
        frame = compress(b"abcdefgh" * 40, CompressionType.ZSTD)
        for body, problem in (
            (b"no frame", "damaged"),
            (frame + b"junk after the end", "damaged"),
            (frame[:-1], "truncated"),
            (frame * 1001, "more than 1000 frames"),
        ):
            with pytest.raises(DecompressionError, match=problem):
                decompress(body, CompressionType.ZSTD)


@types_with_frames
def test_frames_longer_than_a_slice(compression: CompressionType) -> None:
    bodies = [random.Random(number).randbytes(50_000 * number) for number in range(5)]
    frames = b"".join(compress(body, compression) for body in bodies)
    assert decompress(frames, compression) == b"".join(bodies)
    for cut in (1, 40_000, 70_000):
        with pytest.raises(DecompressionError, match="truncated"):
            decompress(frames[:-cut], compression)


@types_with_frames
def test_many_frames_are_refused_in_little_time(compression: CompressionType) -> None:
    frame = compress(b"", compression)
    assert decompress(frame * 1000, compression) == b""
    started = time.process_time()
    with pytest.raises(DecompressionError, match="more than 1000 frames"):
        decompress(frame * (4 * 1024 * 1024 // len(frame)), compression)
    assert time.process_time() - started < 1


def _lz4_frame(*blocks: bytes, linked: bool) -> bytes:
    """Encode a frame of compressed blocks without checksums (LZ4 Frame Format 1.6.4)."""
    descriptor = bytes([0x40 if linked else 0x60, 0x70])
    checksum = {0x40: 0xDF, 0x60: 0x73}[descriptor[0]]
    sized = b"".join(len(block).to_bytes(4, "little") + block for block in blocks)
    return b"\x04\x22\x4d\x18" + descriptor + bytes([checksum]) + sized + bytes(4)


# Compressed blocks: an empty one, and one of a single literal.
_LZ4_BLOCKS = {"empty": b"\x00", "one byte": b"\x10x"}


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("name", _LZ4_BLOCKS)
def test_lz4_reads_each_byte_of_many_small_blocks_once(
    name: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = _LZ4_BLOCKS[name]
    body = _lz4_frame(*[block] * 100_000, linked=linked)
    sizes = _sizes_read_by_lz4(monkeypatch)
    assert decompress(body, CompressionType.LZ4) == b"x" * 100_000 * (len(block) - 1)
    assert sum(sizes) == len(body)


def test_lz4_reads_a_slice_for_each_of_many_small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    body = _lz4_frame(*[b"\x10x"] * 1000, linked=False) * 200
    sizes = _sizes_read_by_lz4(monkeypatch)
    assert len(decompress(body, CompressionType.LZ4)) == 200_000
    assert sum(sizes) <= 200 * 64 * 1024


def test_lz4_reads_at_most_a_slice_for_each_piece_of_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = _sizes_read_by_lz4(monkeypatch)
    body = compress(bytes(16 << 20), CompressionType.LZ4)
    assert decompress(body, CompressionType.LZ4) == bytes(16 << 20)
    slices, pieces = len(body) // (64 << 10) + 1, (16 << 20) // (256 << 10)
    assert max(sizes) <= 64 << 10
    assert len(sizes) <= slices + pieces + 1


def _sizes_read_by_lz4(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the sizes that the library's calls get, bytes of earlier calls included."""
    frame = pytest.importorskip("lz4.frame")
    sizes: list[int] = []
    decompress_chunk = frame.decompress_chunk

    def recording(context: Any, data: bytes, **options: Any) -> Any:
        sizes.append(len(data))
        return decompress_chunk(context, data, **options)

    monkeypatch.setattr(frame, "decompress_chunk", recording)
    return sizes


class TestBudget:
    limit = 1000

    @pytest.fixture(autouse=True)
    def small_responses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compression_module, "MAX_RESPONSE_BYTES", self.limit)

    @all_types
    def test_ends_after_the_body_that_reaches_the_limit(self, compression: CompressionType) -> None:
        budget, half = DecompressionBudget(), compress(bytes(500), compression)
        for _ in range(2):
            assert budget.decompress(half, compression.sys_flag) == bytes(500)
        with pytest.raises(DecompressionBudgetError, match="1000 bytes or more"):
            budget.decompress(half, compression.sys_flag)

    @all_types
    def test_first_body_may_exceed_the_limit(self, compression: CompressionType) -> None:
        budget, large = DecompressionBudget(5000), compress(bytes(5000), compression)
        assert budget.decompress(large, compression.sys_flag) == bytes(5000)
        with pytest.raises(DecompressionBudgetError):
            budget.decompress(compress(b"x", compression), compression.sys_flag)

    @all_types
    def test_a_body_above_its_own_limit_counts(self, compression: CompressionType) -> None:
        budget, large = DecompressionBudget(self.limit), compress(bytes(10_000), compression)
        with pytest.raises(DecompressedTooLargeError, match="1000 bytes"):
            budget.decompress(large, compression.sys_flag)
        with pytest.raises(DecompressionBudgetError):
            budget.decompress(large, compression.sys_flag)

    @all_types
    def test_a_damaged_body_counts(self, compression: CompressionType) -> None:
        budget, damaged = DecompressionBudget(600), _damaged_at_its_end(compression)
        for _ in range(2):
            with pytest.raises(DecompressionError, match=r"damaged|truncated"):
                budget.decompress(damaged, compression.sys_flag)
        with pytest.raises(DecompressionBudgetError):
            budget.decompress(damaged, compression.sys_flag)

    def test_a_small_damaged_body_counts_little(self) -> None:
        budget, sys_flag = DecompressionBudget(), MessageSysFlag.COMPRESSED
        with pytest.raises(DecompressionError, match="damaged"):
            budget.decompress(b"no Zstandard frame", CompressionType.ZSTD.sys_flag)
        with pytest.raises(UnknownCompressionError):
            budget.decompress(b"x" * 5000, sys_flag | 7 << 8)
        assert budget.decompress(zlib.compress(b"x"), sys_flag) == b"x"

    def test_counts_other_memory(self) -> None:
        budget, body = DecompressionBudget(), zlib.compress(b"x")
        budget.use(self.limit - 1)
        assert budget.decompress(body, MessageSysFlag.COMPRESSED) == b"x"
        with pytest.raises(DecompressionBudgetError):
            budget.decompress(body, MessageSysFlag.COMPRESSED)

    def test_inline_limit_is_of_compressed_bytes(self) -> None:
        body, sys_flag = zlib.compress(bytes(100)), MessageSysFlag.COMPRESSED
        budget = DecompressionBudget(inline_bytes=2 * len(body))
        for _ in range(2):
            assert budget.decompress(body, sys_flag) == bytes(100)
        with pytest.raises(DecompressionBudgetError, match="event loop"):
            budget.decompress(body, sys_flag)
        budget.lift_inline_limit()
        assert budget.decompress(body, sys_flag) == bytes(100)

    def test_inline_limit_is_of_decompressed_bytes_too(self) -> None:
        bomb, body, sys_flag = (
            zlib.compress(bytes(50_000)),
            zlib.compress(bytes(900)),
            MessageSysFlag.COMPRESSED,
        )
        budget = DecompressionBudget(inline_bytes=len(bomb))
        with pytest.raises(DecompressionBudgetError, match="event loop"):
            budget.decompress(bomb, sys_flag)
        budget.lift_inline_limit()
        for _ in range(2):  # nothing has been used before
            assert budget.decompress(body, sys_flag) == bytes(900)
        with pytest.raises(DecompressionBudgetError, match="1000 bytes or more"):
            budget.decompress(body, sys_flag)

    @pytest.mark.parametrize("inline_bytes", [1, 100])
    def test_a_body_above_its_own_limit_is_told_apart(self, inline_bytes: int) -> None:
        budget, body = DecompressionBudget(200, inline_bytes), zlib.compress(bytes(201))
        if inline_bytes < len(body):
            with pytest.raises(DecompressionBudgetError, match="event loop"):
                budget.decompress(body, MessageSysFlag.COMPRESSED)
            budget.lift_inline_limit()
        with pytest.raises(DecompressedTooLargeError, match="limit of 200 bytes"):
            budget.decompress(body, MessageSysFlag.COMPRESSED)

    def test_a_batch_is_not_decompressed_inline(self) -> None:
        body, sys_flag = zlib.compress(b"x"), MessageSysFlag.COMPRESSED | MessageSysFlag.INNER_BATCH
        budget = DecompressionBudget(inline_bytes=1000)
        with pytest.raises(DecompressionBudgetError, match="event loop"):
            budget.decompress(body, sys_flag)
        budget.lift_inline_limit()
        assert budget.decompress(body, sys_flag) == b"x"


def _damaged_at_its_end(compression: CompressionType) -> bytes:
    """Return a body of 500 bytes, all of which are decompressed before the damage."""
    if compression is CompressionType.ZLIB:
        return compress(bytes(500), compression)[:-4] + b"none"  # the checksum
    return compress(bytes(500), compression)[:-1]


def test_lz4_and_zstandard_are_loaded_only_when_used() -> None:
    names = {"compression.zstd", "lz4", "zstandard"}
    code = f"import sys, rmq_remoting.message_codec; print({names} & set(sys.modules))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "set()"
