"""JSON headers of known shapes are cut, with the same result as when they are decoded as a whole."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RemotingError
from rmq_remoting.serialization import json
from tests.support.examples import examples
from tests.support.frames import GoldenFrame, golden_frames
from tests.support.rows import each_row

JAVA = (
    b'{"code":11,"extFields":{"topic":"T","queueId":"2"},"flag":0,"language":"JAVA","opaque":111,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
GO = b'{"code":11,"language":"GO","version":317,"opaque":5,"flag":0,"remark":"","extFields":{"topic":"T"}}'
OPAQUE_LAST = b'{"extFields":{"a":"b"},"code":1,"opaque":7}'


def values(command: RemotingCommand) -> tuple[Any, ...]:
    head = (command.code, command.flag, command.opaque, command.language, command.version)
    return (*head, command.remark, command.ext_fields, command.has_ext_fields, command.body)


def outcome(data: bytes, *, whole: bool) -> Any:
    try:
        return values(json.decode_whole(data, b"b") if whole else json.decode_header(data, b"b"))
    except RemotingError as error:
        return type(error)


def is_cut(data: bytes) -> bool:
    """Whether the header's ext fields stay bytes."""
    return json.decode_header(data, b"").unread_raw_ext is not None


def header_of(golden: GoldenFrame) -> bytes:
    return golden.frame[8 : 8 + int.from_bytes(golden.frame[5:8], "big")]


@each_row(
    "golden", [golden for golden in golden_frames() if not golden.is_binary], ids=lambda golden: golden.name
)
def test_apaches_headers(golden: GoldenFrame) -> None:
    header = header_of(golden)
    for _ in range(2):
        assert outcome(header, whole=False) == outcome(header, whole=True)
    decoded = golden.decoded
    expected = decoded["extFields"] is not None and decoded["remark"] is None and decoded["opaque"] >= 0
    assert is_cut(header) is expected


@pytest.mark.parametrize("header", [JAVA, OPAQUE_LAST])
def test_another_request_of_a_known_shape(header: bytes) -> None:
    json.decode_header(header, b"")
    for ext in (
        b"{}",
        b'{"k":"v"}',
        b'{"opaque":"5"}',
        '{"ü":"\\"opaque\\":}"}'.encode(),
        b'{"n":5,"o":{"a":1}}',
    ):
        opaque_at = header.index(b'"opaque":') + 9
        other = header[:opaque_at] + b"12345" + header[opaque_at:].lstrip(b"0123456789")
        begin, end = other.index(b"{", 1), other.index(b"}") + 1
        other = other[:begin] + ext + other[end:]
        assert is_cut(other)
        assert outcome(other, whole=False) == outcome(other, whole=True)


def test_ext_fields_at_the_end() -> None:
    plain = GO.replace(b'"remark":"",', b"")
    json.decode_header(plain, b"")
    other = plain.replace(b'{"topic":"T"}', b'{"topic":"U","queueId":"3"}').replace(b":5,", b":678,")
    assert is_cut(other)
    assert outcome(other, whole=False) == outcome(other, whole=True)


@pytest.mark.parametrize(
    "header",
    [
        GO,  # has a remark
        JAVA.replace(b'"opaque":111', b'"opaque":-111'),
        JAVA.replace(b'"opaque":111', b'"opaque":2147483647'),
        JAVA.replace(b'"flag":0', b'"flag":0,"opaque":5'),
        JAVA.replace(b'"flag":0', b'"flag":0,"extFields":{"topic":"T","queueId":"2"}'),
        JAVA.replace(b'"flag":0', b'"x":{"extFields":{"topic":"T","queueId":"2"}}'),
        b'{"x":{"extFields":{"a":"b"}},"opaque":7,"code":1}',
        JAVA[:-1] + b',"hash":"' + b"x" * 600 + b'"}',
    ],
)
def test_headers_that_are_decoded_as_a_whole(header: bytes) -> None:
    for _ in range(2):
        assert not is_cut(header)
        assert outcome(header, whole=False) == outcome(header, whole=True)


@settings(max_examples=examples(300))
@given(st.sampled_from([JAVA, GO, OPAQUE_LAST]), st.binary(max_size=12), st.integers(0, 170), st.booleans())
def test_damaged_headers(header: bytes, noise: bytes, at: int, insert: bool) -> None:
    json.decode_header(header, b"")
    damaged = header[:at] + noise + header[at if insert else at + len(noise) :]
    assert outcome(damaged, whole=False) == outcome(damaged, whole=True)


@given(
    st.dictionaries(st.text(max_size=6), st.text(max_size=12) | st.integers(-9, 9) | st.none(), max_size=4)
)
def test_any_ext_fields(fields: dict[str, Any]) -> None:
    json.decode_header(JAVA, b"")
    header = JAVA.replace(b'{"topic":"T","queueId":"2"}', orjson.dumps(fields))
    assert is_cut(header)
    assert outcome(header, whole=False) == outcome(header, whole=True)


def test_shapes_are_bounded() -> None:
    for code in range(5000):
        json.decode_header(JAVA.replace(b":11,", b":%d," % code), b"")
        assert len(json.shapes) <= 4096
    json.shapes.clear()
