"""Any bytes give commands or a ProtocolError, and the same ones however the stream is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderDecodeError, ProtocolError
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.serialization import binary, json
from tests.support.examples import examples
from tests.support.frames import binary_header, decode_one, golden_frames, raw_frame

# Small frames give the mutations more to hit.
FRAMES = [golden.frame for golden in golden_frames() if len(golden.frame) < 700]
LENGTHS = st.sampled_from(
    [-(2**31), -1, 0, 1, 3, 4, 5, 8, 21, 0xFF, 0x7FFF, 0xFFFF, 0xFFFFFF, 2**24, 2**31 - 1]
)


@st.composite
def mutated_frames(draw: st.DrawFn) -> bytes:
    """A golden frame with a few bytes changed, cut out or put in, or a length that lies."""
    frame = bytearray(draw(st.sampled_from(FRAMES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(["change", "cut", "insert", "length", "swap"])):
            case "change":
                noise = draw(st.binary(min_size=1, max_size=4))
                frame[at : at + len(noise)] = noise
            case "cut":
                del frame[at : at + draw(st.integers(1, 10))]
            case "insert":
                frame[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "length":
                frame[at : at + 4] = draw(LENGTHS).to_bytes(4, "big", signed=True)
            case "swap":
                frame[at:at] = frame[: draw(st.integers(0, 30))]
    return bytes(frame)


def repaired(frame: bytes) -> bytes:
    """The frame with a length that fits, so that its header is read."""
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:] if len(frame) >= 8 else frame


def attributes(command: RemotingCommand) -> dict[str, Any]:
    return {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "language": command.language,
        "version": command.version,
        "remark": command.remark or None,
        "ext": {name: value for name, value in ext_fields(command).items() if value},
        "body": command.body,
    }


def ext_fields(command: RemotingCommand) -> dict[str, str]:
    try:
        fields = command.ext_fields
    except HeaderDecodeError:
        return {"damaged": "yes"}
    assert all(type(name) is str and type(value) is str for name, value in fields.items())
    return fields


def fed(stream: bytes, cuts: list[int]) -> tuple[list[dict[str, Any]], str, int]:
    """What a decoder makes of the stream: commands, failure, bytes that wait for more."""
    decoder = FrameDecoder(max_frame_bytes=100_000)
    commands: list[RemotingCommand] = []
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, stop in pairwise(bounds):
        commands += decoder.feed(stream[start:stop])
    assert decoder.failure is None or isinstance(decoder.failure, ProtocolError)
    waiting = 0 if decoder.failure is not None else decoder.buffered_bytes
    return [attributes(command) for command in commands], str(decoder.failure), waiting


@settings(max_examples=examples(300))
@given(
    st.lists(st.one_of(st.binary(max_size=60), mutated_frames(), st.sampled_from(FRAMES)), max_size=4),
    st.lists(st.integers(0, 2000), max_size=6),
)
def test_any_stream_however_it_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    assert fed(stream, cuts) == fed(stream, [])


@settings(max_examples=examples(500))
@given(mutated_frames())
def test_a_mutated_header_is_decoded_or_refused(frame: bytes) -> None:
    decoder = FrameDecoder()
    for command in decoder.feed(repaired(frame)):
        attributes(command)
    assert decoder.failure is None or isinstance(decoder.failure, ProtocolError)


@settings(max_examples=examples(400))
@given(st.one_of(st.binary(max_size=80), st.binary(max_size=40).map(lambda ext: binary_header(ext=ext))))
@example(binary_header(remark_length=-1))
@example(b"\xff" * 21)
def test_any_binary_header(header: bytes) -> None:
    try:
        command = binary.decode_header(header, 0, len(header), b"")
    except ProtocolError:
        return
    ext_fields(command)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = [
    "code",
    "flag",
    "opaque",
    "version",
    "language",
    "remark",
    "extFields",
    "serializeTypeCurrentRPC",
    "x",
]


@st.composite
def json_headers(draw: st.DrawFn) -> bytes:
    members = draw(st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES, max_size=5))
    return text_of(members).encode("utf-8", "surrogatepass")


def text_of(value: Any) -> str:
    """JSON text as any writer might write it: also what orjson would not, as integers over 64 bits."""
    match value:
        case dict():
            return "{" + ",".join(f"{text_of(name)}:{text_of(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(text_of, value)) + "]"
        case str():
            escaped = "".join(f"\\u{ord(letter):04x}" if ord(letter) < 32 else letter for letter in value)
            return '"' + escaped.replace('"', '\\"') + '"'
        case True | False | None:
            return {True: "true", False: "false", None: "null"}[value]
        case _:
            return repr(value)


@settings(max_examples=examples(400))
@given(st.one_of(st.binary(max_size=40), json_headers()))
def test_any_json_header(header: bytes) -> None:
    try:
        command = json.decode_header(header, b"")
    except ProtocolError:
        return
    assert type(command.remark) in (str, type(None))
    ext_fields(command)
    # Whatever could be read can be answered and passed on.
    decode_one(encode_frame(command.response(0, command.remark, command.ext_fields)))
    decode_one(encode_frame(command))


COMMANDS = st.builds(
    RemotingCommand,
    code=st.integers(-0x8000, 0x7FFF),
    flag=st.integers(-(2**31), 2**31 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    language=st.integers(0, 13),
    version=st.integers(-0x8000, 0x7FFF),
    remark=st.none() | st.text(max_size=10),
    ext_fields=st.none() | st.dictionaries(st.text(max_size=6), st.text(max_size=10), max_size=5),
    body=st.binary(max_size=20),
    serialization=st.sampled_from(Serialization),
)


@settings(max_examples=examples(300))
@given(COMMANDS)
def test_every_command_round_trips(command: RemotingCommand) -> None:
    read = decode_one(encode_frame(command))

    assert attributes(read) == attributes(command)
    assert read.serialization is command.serialization


@settings(max_examples=examples(100))
@given(st.integers(0, 255), st.binary(max_size=30))
def test_any_serialization_byte(serialization: int, header: bytes) -> None:
    decoder = FrameDecoder()
    for command in decoder.feed(raw_frame(header, serialization=serialization)):
        ext_fields(command)
    assert serialization < 2 or decoder.failure is not None
