"""Both header serializations: refusals, and deviations that are accepted from lenient writers."""

from __future__ import annotations

import struct

import orjson
import pytest

from rmq_remoting.codes import LanguageCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderDecodeError
from rmq_remoting.ext_fields import decode_binary, encode_binary
from rmq_remoting.framing import FrameDecoder, encode_frame
from rmq_remoting.serialization import binary, json
from tests.support.frames import binary_header, decode_one, ext_field, raw_frame
from tests.support.rows import each_row


def read_json(header: bytes) -> RemotingCommand:
    return json.decode_header(header, b"")


def read_binary(header: bytes) -> RemotingCommand:
    return binary.decode_header(header, 0, len(header), b"")


# --- JSON ---


@each_row(
    "header",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"code"',
        b"10",
        b"true",
        b'{"code":1} {"code":2}',
        b'{"remark":"\xff"}',
        b'{"\xc3\x28":"x"}',
        b'{"extFields":{"a":"\xed\xa0\x80"}}',
        b'{"remark":"\\ud800"}',
        b'{"code":NaN}',
        b"[" * 5000,
    ],
)
def test_json_that_is_no_header(header: bytes) -> None:
    with pytest.raises(HeaderDecodeError):
        read_json(header)


@each_row("name", ["code", "flag", "opaque", "version"])
@each_row("value", ['"10"', "1.0", "1.5", "true", "null", "[]", "{}", "1e3", "9" * 30])
def test_json_number_that_is_no_integer(name: str, value: str) -> None:
    with pytest.raises(HeaderDecodeError, match="must be integers"):
        read_json(f'{{"{name}":{value}}}'.encode())


@each_row("name", ["code", "flag", "opaque", "version"])
@each_row("value", [2**31, -(2**31) - 1, 2**63 - 1])
def test_json_number_over_32_bits(name: str, value: int) -> None:
    with pytest.raises(HeaderDecodeError, match="32 bits"):
        read_json(orjson.dumps({name: value}))


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_json_number_of_32_bits(value: int) -> None:
    command = read_json(orjson.dumps({"code": value, "opaque": value}))
    assert (command.code, command.opaque) == (value, value)


@pytest.mark.parametrize("value", ["[]", '"text"', "5", "true", '[["a","b"]]'])
def test_json_ext_fields_that_are_no_object(value: str) -> None:
    with pytest.raises(HeaderDecodeError, match="extFields must be an object"):
        read_json(f'{{"extFields":{value}}}'.encode())


def test_json_header_fields_are_optional() -> None:
    command = read_json(b"{}")

    assert (command.code, command.flag, command.opaque, command.version) == (0, 0, 0, 0)
    assert command.language == LanguageCode.JAVA
    assert command.remark is None
    assert not command.has_ext_fields
    assert command.ext_fields == {}


def test_json_values_that_are_no_strings_become_text() -> None:
    header = b'{"extFields":{"t":true,"f":false,"i":-12,"d":1.5,"n":null,"s":"x","o":{"a":[1]},"e":""}}'

    assert read_json(header).ext_fields == {
        "t": "true",
        "f": "false",
        "i": "-12",
        "d": "1.5",
        "s": "x",
        "o": '{"a":[1]}',
        "e": "",
    }


@pytest.mark.parametrize(
    ("value", "remark"),
    [("null", None), ('"x"', "x"), ('""', ""), ("5", "5"), ("true", "true"), ('{"a":1}', '{"a":1}')],
)
def test_json_remark_is_text(value: str, remark: str | None) -> None:
    assert read_json(f'{{"remark":{value}}}'.encode()).remark == remark


@pytest.mark.parametrize("where", ['{"remark":%s}', '{"extFields":{"a":%s}}'])
@pytest.mark.parametrize("depth", [260, 1000])
def test_json_nested_deeper_than_can_be_written_back(where: str, depth: int) -> None:
    with pytest.raises(HeaderDecodeError):
        read_json((where % ("[" * depth + "]" * depth)).encode())


@pytest.mark.parametrize(
    ("value", "language"),
    [
        ('"GO"', LanguageCode.GO),
        ('"RUST"', LanguageCode.RUST),
        ('"KLINGON"', LanguageCode.OTHER),
        ('"go"', LanguageCode.OTHER),
        ("null", LanguageCode.OTHER),
        ("9", LanguageCode.OTHER),
        ("[]", LanguageCode.OTHER),
        ("{}", LanguageCode.OTHER),
    ],
)
def test_json_unknown_language_is_other(value: str, language: LanguageCode) -> None:
    assert read_json(f'{{"language":{value}}}'.encode()).language == language


def test_json_unknown_members_are_ignored() -> None:
    assert read_json(b'{"code":7,"hashCode":1,"serializeTypeCurrentRPC":"ROCKETMQ"}').code == 7


def test_json_members_are_in_apaches_order() -> None:
    command = RemotingCommand(1, 0, 2, remark="r", ext_fields={"a": "b"})

    assert list(orjson.loads(json.encode_header(command))) == [
        "code",
        "extFields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serializeTypeCurrentRPC",
        "version",
    ]


def test_json_keeps_empty_values() -> None:
    command = decode_one(encode_frame(RemotingCommand.request(1, {"a": "", "b": "x"})))
    assert command.ext_fields == {"a": "", "b": "x"}


# --- binary ---


def test_binary_header_of_the_least_size() -> None:
    command = read_binary(binary_header())

    assert (command.code, command.flag, command.opaque, command.version) == (10, 0, 1, 479)
    assert command.remark is None
    assert command.ext_fields == {}


@each_row("size", range(21))
def test_binary_header_too_short(size: int) -> None:
    with pytest.raises(HeaderDecodeError, match="too short"):
        read_binary(binary_header()[:size])


@pytest.mark.parametrize("length", [-1, -(2**31), 4, 5, 2**31 - 1])
def test_binary_impossible_remark_length(length: int) -> None:
    with pytest.raises(HeaderDecodeError, match="remark length"):
        read_binary(binary_header(remark=b"abc", remark_length=length))


@pytest.mark.parametrize("length", [-1, -(2**31), 8, 2**31 - 1])
def test_binary_impossible_ext_length(length: int) -> None:
    with pytest.raises(HeaderDecodeError, match="ext fields length"):
        read_binary(binary_header(ext=ext_field(b"a", b""), ext_length=length))


@pytest.mark.parametrize("remark", [b"\xff", b"ok\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_binary_remark_that_is_no_utf8(remark: bytes) -> None:
    with pytest.raises(HeaderDecodeError, match="remark is not UTF-8"):
        read_binary(binary_header(remark=remark))


@each_row(
    ("ext", "problem"),
    [
        (ext_field(b"\xff", b"x"), "not UTF-8"),
        (ext_field(b"a", b"\xc3"), "not UTF-8"),
        (ext_field(b"\xff", b""), "not UTF-8"),
        (b"\x00", "in the middle"),
        (b"\x00\x01a\x00\x00\x00", "in the middle"),
        (b"\x00\x05a", "in the middle"),
        (b"\x7f\xff", "in the middle"),
        (b"\x00\x01a\x00\x00\x00\x02b", "exceeds"),
        (b"\x00\x01a\x7f\xff\xff\xff", "exceeds"),
        (b"\x00\x01a\xff\xff\xff\xff", "exceeds"),
        (b"\xff\xff" + bytes(10), "exceeds"),
        (b"\x80\x00" + bytes(40_000), "ext fields"),
        (ext_field(b"a", b"b") + b"\x00\x00\x00", "in the middle"),
    ],
)
def test_binary_ext_fields_are_decoded_on_demand(ext: bytes, problem: str) -> None:
    command = read_binary(binary_header(ext=ext))

    assert command.code == 10
    with pytest.raises(HeaderDecodeError, match=problem):
        _ = command.ext_fields
    with pytest.raises(HeaderDecodeError, match=problem):
        _ = command.ext_fields


def test_binary_empty_value_counts_as_absent() -> None:
    command = read_binary(binary_header(ext=ext_field(b"a", b"") + ext_field(b"b", b"x")))
    assert command.ext_fields == {"b": "x"}


@pytest.mark.parametrize(("last", "read"), [(b"2", {"a": "2"}), (b"", {})])
def test_binary_last_of_equal_keys_wins(last: bytes, read: dict[str, str]) -> None:
    ext = ext_field(b"a", b"1") + ext_field(b"a", last)
    assert read_binary(binary_header(ext=ext)).ext_fields == read


def test_binary_bytes_after_the_ext_fields_are_ignored() -> None:
    command = read_binary(binary_header(ext=ext_field(b"a", b"b")) + b"more")
    assert command.ext_fields == {"a": "b"}


def test_binary_header_is_decoded_within_its_bounds() -> None:
    before, header = b"\xff" * 5, binary_header(ext=ext_field(b"a", b"b"))

    command = binary.decode_header(before + header + b"\xff" * 9, 5, 5 + len(header), b"")

    assert command.ext_fields == {"a": "b"}
    with pytest.raises(HeaderDecodeError):
        binary.decode_header(before + header + b"\xff" * 9, 5, 5 + len(header) - 1, b"")


def test_binary_numbers_are_signed() -> None:
    command = read_binary(binary_header(code=-1000, language=-3, version=-1, opaque=-(2**31), flag=-1))
    assert (command.code, command.language, command.version) == (-1000, -3, -1)
    assert (command.opaque, command.flag) == (-(2**31), -1)


def test_binary_command_of_an_unknown_language_can_be_shown_in_json() -> None:
    language = read_binary(binary_header(language=-3)).language
    shown = RemotingCommand(1, 0, 1, language, serialization=Serialization.JSON)
    assert decode_one(encode_frame(shown)).language == LanguageCode.OTHER


@pytest.mark.parametrize("code", [0x8000, -0x8001, 200_050])
def test_binary_code_over_16_bits_is_not_encoded(code: int) -> None:
    with pytest.raises(ValueError, match="does not fit a binary header"):
        binary.encode_header(RemotingCommand(code, 0, 1))


def test_binary_empty_remark_is_none() -> None:
    assert read_binary(binary.encode_header(RemotingCommand(1, 0, 1, remark=""))).remark is None


def test_binary_ext_fields_keep_their_order() -> None:
    fields = {"z": "1", "a": "2", "ä": "😀", "m": "\x00\x01g"}

    raw = encode_binary(fields)

    assert raw.startswith(ext_field(b"z", b"1") + ext_field(b"a", b"2"))
    assert list(decode_binary(raw).items()) == list(fields.items())


def test_binary_command_round_trips() -> None:
    command = RemotingCommand.request(0x7FFF, {"k": "v" * 100_000}, serialization=Serialization.BINARY)
    assert decode_one(encode_frame(command)).ext_fields == {"k": "v" * 100_000}


@pytest.mark.parametrize("serialization", Serialization)
def test_body_is_untouched(serialization: Serialization) -> None:
    body = bytes(range(256)) * 5
    assert (
        decode_one(encode_frame(RemotingCommand.request(1, body=body, serialization=serialization))).body
        == body
    )


def test_damaged_header_ends_the_stream() -> None:
    decoder = FrameDecoder()
    frame = raw_frame(struct.pack(">h", 10), serialization=1)
    assert decoder.feed(frame) == []
    assert isinstance(decoder.failure, HeaderDecodeError)
