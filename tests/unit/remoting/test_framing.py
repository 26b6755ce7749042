"""Decoding and encoding of frames, compared with frames of Apache RocketMQ 5.3.3."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import FrameError, HeaderDecodeError, ProtocolError
from rmq_remoting.framing import MAX_FRAME_BYTES, FrameDecoder, encode_frame
from tests.support.frames import (
    GoldenFrame,
    as_described,
    binary_header,
    decode_all,
    decode_one,
    described,
    golden_frames,
    raw_frame,
)
from tests.support.memory import allocated_bytes
from tests.support.rows import each_row

GOLDEN = golden_frames()
STREAM = b"".join(golden.frame for golden in GOLDEN)
EXPECTED = [as_described(golden.decoded) for golden in GOLDEN]
SMALL = encode_frame(RemotingCommand.request(34, {"a": "b"}, b"body"))

each_golden = each_row("golden", GOLDEN, ids=str)


def feed_in_chunks(decoder: FrameDecoder, stream: bytes, sizes: list[int]) -> list[RemotingCommand]:
    commands, position = [], 0
    for size in sizes:
        commands += decoder.feed(stream[position : position + size])
        position += size
    return commands + decoder.feed(stream[position:])


# --- Apache's frames, read ---


def test_golden_frames_are_many() -> None:
    assert len(GOLDEN) == 184
    assert sum(golden.is_binary for golden in GOLDEN) == 92


@each_golden
def test_golden_frame_is_decoded(golden: GoldenFrame) -> None:
    command = decode_one(golden.frame)

    assert described(command) == as_described(golden.decoded)
    assert command.serialization is (Serialization.BINARY if golden.is_binary else Serialization.JSON)


@each_golden
def test_golden_frame_as_netty_sends_it_means_the_same(golden: GoldenFrame) -> None:
    assert described(decode_one(golden.as_sent_by_netty)) == as_described(golden.decoded)


@each_golden
def test_golden_frame_is_decoded_byte_by_byte(golden: GoldenFrame) -> None:
    decoder = FrameDecoder()

    early = [decoder.feed(golden.frame[at : at + 1]) for at in range(len(golden.frame) - 1)]
    assert not any(early)
    (command,) = decoder.feed(golden.frame[-1:])

    assert described(command) == as_described(golden.decoded)
    assert decoder.buffered_bytes == 0


def test_both_serializations_in_one_chunk() -> None:
    assert [described(command) for command in decode_all(STREAM)] == EXPECTED


@each_row("seed", range(20))
def test_a_stream_in_random_chunks(seed: int) -> None:
    rng = random.Random(seed)
    largest = rng.choice([2, 7, 9, 100, 1500, 9000])
    sizes, left = [], len(STREAM)
    while left > 0:
        sizes.append(rng.randint(0, largest))
        left -= sizes[-1]
    decoder = FrameDecoder()

    commands = feed_in_chunks(decoder, STREAM, sizes)

    assert [described(command) for command in commands] == EXPECTED
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("extra", [1, 3, 4, 7, 8, 9, 20])
def test_bytes_after_the_end_begin_the_next_frame(extra: int) -> None:
    for golden, after in pairwise(GOLDEN):
        decoder = FrameDecoder()

        (first,) = decoder.feed(golden.frame + after.frame[:extra])
        assert decoder.buffered_bytes == extra
        (second,) = decoder.feed(after.frame[extra:])

        assert described(first) == as_described(golden.decoded)
        assert described(second) == as_described(after.decoded)


def test_every_cut_of_two_frames() -> None:
    stream = SMALL + GOLDEN[1].frame
    expected = [described(command) for command in decode_all(stream)]
    for cut in range(len(stream) + 1):
        commands = feed_in_chunks(FrameDecoder(), stream, [cut])
        assert [described(command) for command in commands] == expected


def test_empty_chunks_complete_no_command() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    assert decoder.failure is None


# --- Apache's frames, written ---


@each_golden
def test_golden_frame_is_encoded_byte_for_byte(golden: GoldenFrame) -> None:
    read = decode_one(golden.frame)
    # A map that was absent stays absent, which is not the same as an empty one in JSON.
    fields = dict(read.ext_fields) if read.has_ext_fields else None
    if golden.is_binary and golden.decoded["extFields"]:
        # An empty value is written, but read as absent.
        lost = [name for name, value in golden.decoded["extFields"].items() if value is None]
        fields = {**(fields or {}), **dict.fromkeys(lost, "")}

    written = RemotingCommand(
        read.code,
        read.flag,
        read.opaque,
        read.language,
        read.version,
        read.remark,
        fields,
        None,
        read.body,
        read.serialization,
    )

    assert encode_frame(written) == golden.frame


@each_golden
def test_golden_frame_passes_through_unread(golden: GoldenFrame) -> None:
    assert encode_frame(decode_one(golden.frame)) == golden.frame


def test_fields_that_were_changed_after_reading_are_written_changed() -> None:
    sent = RemotingCommand.request(34, {"a": "1"}, serialization=Serialization.BINARY)
    command = decode_one(encode_frame(sent))
    command.ext_fields["a"] = "2"

    assert decode_one(encode_frame(command)).ext_fields == {"a": "2"}


@each_row("serialization", Serialization)
@each_row("code", [-0x8001, -0x8000, -1000, -1, 0, 10, 0x7FFF, 0x8000, 200_050])
def test_a_code_too_large_for_a_binary_header_is_sent_as_json(
    code: int, serialization: Serialization
) -> None:
    frame = encode_frame(RemotingCommand.request(code, {"a": "b"}, b"x", serialization=serialization))

    command = decode_one(frame)

    fits = -0x8000 <= code <= 0x7FFF
    assert command.code == code
    assert command.ext_fields == {"a": "b"}
    assert command.serialization is (serialization if fits else Serialization.JSON)


@pytest.mark.parametrize("serialization", Serialization)
def test_a_frame_over_the_limit_is_not_encoded(serialization: Serialization) -> None:
    command = RemotingCommand.request(34, serialization=serialization)
    room = MAX_FRAME_BYTES - len(encode_frame(command))

    command.body = bytes(room)
    assert len(encode_frame(command)) == MAX_FRAME_BYTES
    command.body = bytes(room + 1)
    with pytest.raises(ValueError, match=f"{MAX_FRAME_BYTES + 1} bytes is over the limit"):
        encode_frame(command)


# --- limits ---


def test_frame_of_exactly_the_limit_is_read() -> None:
    header = binary_header()
    frame = raw_frame(header, bytes(MAX_FRAME_BYTES - 8 - len(header)), serialization=1)
    assert len(frame) == 16 * 1024 * 1024

    assert len(decode_one(frame).body) == MAX_FRAME_BYTES - 8 - len(header)


def test_frame_of_one_byte_more_is_refused_by_its_length_alone() -> None:
    decoder = FrameDecoder()

    assert decoder.feed(struct.pack(">iI", MAX_FRAME_BYTES - 3, 10)) == []

    assert isinstance(decoder.failure, FrameError)
    assert str(decoder.failure) == "frame of 16777217 bytes is over the limit of 16777216"


def test_limit_can_be_lower() -> None:
    assert len(FrameDecoder(len(SMALL)).feed(SMALL)) == 1
    decoder = FrameDecoder(len(SMALL) - 1)
    assert decoder.feed(SMALL) == []
    assert isinstance(decoder.failure, FrameError)


@pytest.mark.parametrize("serialization", [0, 1])
def test_a_long_header_is_refused_by_its_length_alone(serialization: int) -> None:
    decoder = FrameDecoder(max_header_bytes=1000)

    assert decoder.feed(struct.pack(">iI", 5000, serialization << 24 | 1001)) == []

    assert str(decoder.failure) == "header of 1001 bytes is over the limit of 1000"


def test_a_header_of_exactly_the_limit_is_read() -> None:
    header = b'{"code":5}'
    (command,) = FrameDecoder(max_header_bytes=len(header)).feed(raw_frame(header))
    assert command.code == 5


@pytest.mark.parametrize("length", [3, 2, 1, 0, -1, -2, -5, -(2**31), 2**31 - 1, MAX_FRAME_BYTES])
def test_an_impossible_length_is_refused(length: int) -> None:
    decoder = FrameDecoder()

    assert decoder.feed(struct.pack(">ii", length, 0) + bytes(100)) == []

    assert isinstance(decoder.failure, FrameError)


@pytest.mark.parametrize("header_length", [1, 5, 0xFFFFFF])
@pytest.mark.parametrize("serialization", [0, 1])
def test_header_longer_than_its_frame(header_length: int, serialization: int) -> None:
    decoder = FrameDecoder()

    assert decoder.feed(struct.pack(">iI", 4, serialization << 24 | header_length)) == []

    assert isinstance(decoder.failure, FrameError)
    assert "exceeds its frame" in str(decoder.failure)


def test_header_may_fill_its_frame() -> None:
    assert decode_one(raw_frame(b'{"code":5}')).code == 5


@pytest.mark.parametrize("serialization", [2, 3, 0x7F, 0x80, 0xFF])
def test_unknown_serialization(serialization: int) -> None:
    decoder = FrameDecoder()

    assert decoder.feed(raw_frame(b"{}", serialization=serialization)) == []

    assert str(decoder.failure) == f"unknown serialization {serialization}"


@pytest.mark.parametrize(
    "broken",
    [
        raw_frame(b"not JSON"),
        raw_frame(b""),
        raw_frame(b"", serialization=1),
        raw_frame(binary_header()[:-1], serialization=1),
        struct.pack(">ii", -1, 0),
    ],
)
@pytest.mark.parametrize("byte_by_byte", [False, True])
def test_commands_before_a_broken_frame_are_returned_and_none_after_it(
    broken: bytes, byte_by_byte: bool
) -> None:
    stream = SMALL + GOLDEN[1].frame + broken + SMALL
    decoder = FrameDecoder()

    commands = feed_in_chunks(decoder, stream, [1] * (len(stream) - 1) if byte_by_byte else [])

    assert [command.code for command in commands] == [34, 10]
    assert isinstance(decoder.failure, ProtocolError)
    failure = decoder.failure
    assert decoder.feed(SMALL) == []
    assert decoder.failure is failure


def test_header_errors_name_their_kind() -> None:
    decoder = FrameDecoder()
    decoder.feed(raw_frame(b"[]"))
    assert isinstance(decoder.failure, HeaderDecodeError)


# --- cost ---


def large_frame(body: bytes) -> bytes:
    return raw_frame(binary_header(), body, serialization=1)


@each_row("seed", range(40))
def test_large_frames_in_random_parts(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [rng.randbytes(rng.choice([0, 10, 16_000, 17_000, 100_000, 300_000])) for _ in range(6)]
    stream = b"".join([large_frame(body) for body in bodies])
    largest = rng.choice([5, 100, 20_000, 70_000, 262_144])
    sizes = [rng.randint(0, rng.choice([12, largest])) for _ in range(3 * len(stream) // largest)]
    decoder = FrameDecoder()

    commands = feed_in_chunks(decoder, stream, sizes)

    assert [command.body for command in commands] == bodies
    assert all(type(command.body) is bytes for command in commands)
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 20, 40])
def test_a_large_frame_with_a_split_header(cut: int) -> None:
    frame = large_frame(b"x" * 100_000)
    decoder = FrameDecoder()

    assert decoder.feed(frame[:cut]) == []
    assert decoder.feed(frame[cut:50_000]) == []
    assert decoder.buffered_bytes == 50_000
    (command, after) = decoder.feed(frame[50_000:] + SMALL)

    assert command.body == b"x" * 100_000
    assert described(after) == described(decode_all(SMALL)[0])


def test_large_frame_of_an_unknown_serialization_ends_the_stream() -> None:
    frame = raw_frame(binary_header(), bytes(100_000), serialization=7)
    decoder = FrameDecoder()

    assert decoder.feed(frame[:50_000]) == []
    assert decoder.feed(frame[50_000:] + SMALL) == []

    assert isinstance(decoder.failure, FrameError)
    assert decoder.feed(SMALL) == []


def test_parts_of_a_large_frame_are_copied_only_once() -> None:
    frame = large_frame(bytes(1_000_000))
    parts = [frame[at : at + 65_536] for at in range(0, 900_000, 65_536)]
    decoder = FrameDecoder()

    def feed() -> None:
        assert not any([decoder.feed(part) for part in parts])

    assert allocated_bytes(feed) < 65_536


def test_small_parts_are_joined() -> None:
    """Each of them would take the memory of an object."""
    frame = large_frame(bytes(1_000_000))
    decoder = FrameDecoder()

    allocated = allocated_bytes(lambda: feed_in_chunks(decoder, frame[:-1], [10] * 99_999))

    assert decoder.buffered_bytes == len(frame) - 1
    assert allocated < 1.5 * len(frame)


def test_small_frames_leave_nothing_to_copy() -> None:
    decoder = FrameDecoder()
    for _ in range(3):
        assert len(decoder.feed(STREAM)) == len(GOLDEN)
        assert decoder.buffered_bytes == 0
