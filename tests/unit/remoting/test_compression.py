"""Compression of bodies: the bytes of the Java client, and protection against bombs."""

from __future__ import annotations

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

from rmq_remoting.compression import CompressionType, compress, decompress
from rmq_remoting.message_errors import (
    DecompressedTooLargeError,
    DecompressionError,
    UnknownCompressionError,
)
from tests.support.examples import examples
from tests.support.golden import json_lines

GOLDEN = json_lines("wire/messages.jsonl", "compressed body")
all_types = pytest.mark.parametrize("compression", CompressionType)


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


@pytest.mark.parametrize("compression", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_one_after_another(compression: CompressionType) -> None:
    frames = compress(b"one ", compression) + compress(b"two", compression)
    assert decompress(frames, compression) == b"one two"
    with pytest.raises(DecompressionError):
        decompress(frames + b"junk after the end", compression)


def test_bytes_after_a_zlib_stream_are_ignored() -> None:
    # Java's InflaterInputStream does not read on after the end of the stream.
    assert decompress(zlib.compress(b"body") + b"junk", CompressionType.ZLIB) == b"body"


_MEASURE_A_BOMB = """
import resource, sys
from rmq_remoting.compression import CompressionType, compress, decompress
from rmq_remoting.message_errors import DecompressedTooLargeError
from tests.support.examples import examples

compression = CompressionType[sys.argv[1]]
decompress(compress(b"warm up", compression), compression)
bomb = bytes.fromhex(sys.stdin.read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(bomb, compression, 16 << 20)
except DecompressedTooLargeError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@all_types
def test_a_bomb_is_stopped_before_it_fills_memory(compression: CompressionType) -> None:
    bomb = compress(bytes(400 << 20), compression)
    assert len(bomb) < 4 << 20
    child = subprocess.run(
        [sys.executable, "-c", _MEASURE_A_BOMB, compression.name],
        input=bomb.hex(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(child.stdout) < 100 << 10  # KiB; 16 MiB are allowed, 400 would be unpacked


@pytest.mark.parametrize("compression", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_longer_than_a_slice(compression: CompressionType) -> None:
    bodies = [random.Random(number).randbytes(50_000 * number) for number in range(5)]
    frames = b"".join(compress(body, compression) for body in bodies)
    assert decompress(frames, compression) == b"".join(bodies)
    for cut in (1, 40_000, 70_000):
        with pytest.raises(DecompressionError, match="truncated"):
            decompress(frames[:-cut], compression)


@pytest.mark.parametrize("compression", [CompressionType.LZ4, CompressionType.ZSTD])
def test_many_frames_are_refused_in_little_time(compression: CompressionType) -> None:
    frame = compress(b"", compression)
    assert decompress(frame * 1000, compression) == b""
    started = time.process_time()
    with pytest.raises(DecompressionError, match="more than 1000 frames"):
        decompress(frame * (4 * 1024 * 1024 // len(frame)), compression)
    assert time.process_time() - started < 1


def test_lz4_and_zstandard_are_loaded_only_when_used() -> None:
    code = "import sys, rmq_remoting.message_codec; print({'lz4', 'zstandard'} & set(sys.modules))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "set()"
