"""Pull headers in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.pull import (
    PullAnswers,
    PullHeaderDecoder,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmq_remoting.serialization import binary
from tests.support.frames import (
    GoldenFrame,
    as_described,
    binary_header,
    decode_one,
    ext_field,
    golden_frames,
)
from tests.support.rows import each_row

REQUEST = PullMessageRequestHeader(
    "CG", "TopicTest", 3, 2**40, 32, 6, 5, 15_000, "TagA || TagB", 7, "TAG", 262_144
)
REQUIRED = [
    "consumerGroup",
    "topic",
    "queueId",
    "queueOffset",
    "maxMsgNums",
    "sysFlag",
    "commitOffset",
    "suspendTimeoutMillis",
    "subVersion",
]
INT32_FIELDS = ["queueId", "maxMsgNums", "sysFlag", "maxMsgBytes", "requestSource"]
INT64_FIELDS = ["queueOffset", "commitOffset", "suspendTimeoutMillis", "subVersion"]


@pytest.mark.parametrize(
    "golden",
    [
        golden
        for golden in golden_frames()
        if golden.decoded["code"] in (11, 361) and not golden.decoded["flag"] & 1
    ],
    ids=str,
)
def test_golden_pull_requests(golden: GoldenFrame) -> None:
    command = decode_one(golden.frame)
    header = PullMessageRequestHeader.decode(command.ext_fields)

    assert header.encode() == as_described(golden.decoded)["extFields"]


@pytest.mark.parametrize(
    "golden",
    [
        golden
        for golden in golden_frames()
        if golden.name.startswith("pull response") and golden.decoded["extFields"]
    ],
    ids=str,
)
def test_golden_pull_responses(golden: GoldenFrame) -> None:
    command = decode_one(golden.frame)
    assert PullMessageResponseHeader.decode(command.ext_fields).encode() == golden.decoded["extFields"]


def test_request_survives_both_ways() -> None:
    assert PullMessageRequestHeader.decode(REQUEST.encode()) == REQUEST


def test_optional_fields_may_be_absent() -> None:
    fields = {name: value for name, value in REQUEST.encode().items() if name in REQUIRED}
    header = PullMessageRequestHeader.decode(fields)

    assert (header.subscription, header.expression_type, header.max_msg_bytes) == (None, None, None)
    assert (header.request_source, header.broker_name) == (None, None)
    assert header.encode() == fields


@pytest.mark.parametrize("name", REQUIRED)
def test_missing_field_is_named(name: str) -> None:
    fields = REQUEST.encode()
    del fields[name]

    with pytest.raises(HeaderError, match=f"^PullMessageRequestHeader: required field {name} is missing$"):
        PullMessageRequestHeader.decode(fields)


@each_row(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in INT32_FIELDS
            for value in ("", "x", "1.5", str(2**31), str(-(2**31) - 1))
        ),
        *(
            (name, value)
            for name in INT64_FIELDS
            for value in ("", "x", str(2**63), str(-(2**63) - 1), "9" * 5000)
        ),
    ],
)
def test_bad_number_is_named(name: str, value: str) -> None:
    with pytest.raises(HeaderError, match=f"^PullMessageRequestHeader: {name} must be an integer") as caught:
        PullMessageRequestHeader.decode({**REQUEST.encode(), name: value})
    assert len(str(caught.value)) < 300


@each_row(
    ("name", "value"),
    [
        *((name, value) for name in INT32_FIELDS for value in (-(2**31), 2**31 - 1)),
        *((name, value) for name in INT64_FIELDS for value in (-(2**63), 2**63 - 1)),
    ],
)
def test_numbers_may_be_as_large_as_javas(name: str, value: int) -> None:
    header = PullMessageRequestHeader.decode({**REQUEST.encode(), name: str(value)})
    assert header.encode()[name] == str(value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(HeaderError) as caught:
        PullMessageRequestHeader.decode({"queueId": "x"})
    for name in REQUIRED:
        assert name in str(caught.value)


@each_row("name", ["suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"])
@each_row("value", [None, "", "x"])
def test_bad_response_is_a_header_error(name: str, value: str | None) -> None:
    fields = {**PullMessageResponseHeader(0, 1, 2, 3).encode(), name: value}
    given = {key: text for key, text in fields.items() if text is not None}
    with pytest.raises(HeaderError, match=re.escape("PullMessageResponseHeader: bad or missing field")):
        PullMessageResponseHeader.decode(given)


@each_row("constant", [(0, 0, 0), (1, 5, 2**31 - 1), (37, 10, 100)])
@each_row("offsets", [(0, 0, 0), (2**63 - 1, -1, 2**62), (1, 2, 3)])
@each_row("body", [b"", b"stored messages" * 1000])
@each_row("serialization", Serialization)
def test_response_equals_that_of_the_general_encoder(
    constant: tuple[int, int, int],
    offsets: tuple[int, int, int],
    body: bytes,
    serialization: Serialization,
) -> None:
    request = RemotingCommand.request(11, serialization=serialization)
    answers = PullAnswers(*constant)

    frame = answers.found(request, *offsets, body)

    header = PullMessageResponseHeader(constant[0], *offsets, None, *constant[1:])
    assert frame == encode_frame(
        request.response(ResponseCode.SUCCESS, ext_fields=header.encode(), body=body)
    )
    response = decode_one(frame)
    assert response.serialization is serialization
    assert response.body == body
    assert PullMessageResponseHeader.decode(response.ext_fields) == header
    assert answers.header(*offsets) == header


# --- the decoder that keeps streams ---


def a_pull(fields: Mapping[str, str], serialization: Serialization = Serialization.BINARY) -> RemotingCommand:
    command = RemotingCommand.request(11, dict(fields), serialization=serialization)
    return decode_one(encode_frame(command))


class Stream:
    """Stands for what a broker keeps with the pulls of one header."""

    def __init__(self, header: PullMessageRequestHeader) -> None:
        self.header = header


def decoder_of_streams() -> PullHeaderDecoder[Stream]:
    return PullHeaderDecoder(Stream)


def kept(decoder: PullHeaderDecoder[Stream]) -> int:
    """How many streams the decoder keeps."""
    (cache,) = decoder.caches
    return len(cache)


def decoded(decoder: PullHeaderDecoder[Stream], command: RemotingCommand) -> PullMessageRequestHeader:
    stream, queue_offset, commit_offset = decoder.decode(command)
    return stream.header.at(queue_offset, commit_offset)


@pytest.mark.parametrize("serialization", Serialization)
def test_only_the_offsets_of_later_pulls_are_decoded(serialization: Serialization) -> None:
    decoder = decoder_of_streams()
    for queue_id, offset, commit in [(0, 0, 0), (1, 7, 0), (0, 99, 98), (1, 2**50, 10**17), (0, 5, 4)]:
        header = replace(REQUEST, queue_id=queue_id, queue_offset=offset, commit_offset=commit)
        assert decoded(decoder, a_pull(header.encode(), serialization)) == header
    assert kept(decoder) == 2


@pytest.mark.parametrize("serialization", Serialization)
def test_pulls_that_differ_in_their_offsets_alone_are_one_stream(serialization: Serialization) -> None:
    decoder = decoder_of_streams()
    streams = []
    for queue_id in (0, 1):
        header = replace(REQUEST, queue_id=queue_id)
        streams.append(decoder.decode(a_pull(header.encode(), serialization))[0])
    for queue_id in (1, 0):
        header = replace(REQUEST, queue_id=queue_id, queue_offset=99)
        stream, queue_offset, _ = decoder.decode(a_pull(header.encode(), serialization))
        assert stream is streams[queue_id]
        assert (stream.header.queue_offset, queue_offset) == (REQUEST.queue_offset, 99)


# Any text may hold marks and digits, and a field may be repeated.
_TEXTS = st.sampled_from(
    ["", "CG", "queueOffset", "\0\0", "\0\x0bqueueOffset\0\0\0\x015", "\0\x0ccommitOffset\0\0\0\x0212", "ü"]
)
_NUMBERS = st.sampled_from(
    [
        "0",
        "5",
        "-1",
        "+5",
        "1_0",
        "12 ",
        "\u00b2",
        "\u0663",
        "99999999999999999999",
        "9223372036854775807",
        "x",
    ]
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "consumerGroup": _TEXTS,
                "topic": _TEXTS,
                "queueId": st.sampled_from(["0", "1"]),
                "queueOffset": _NUMBERS,
                "commitOffset": _NUMBERS,
                "subscription": _TEXTS,
            }
        ).flatmap(lambda fields: st.permutations(list(fields.items()))),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(Serialization),
)
def test_decodes_like_a_decoder_without_a_cache(
    pulls: list[list[tuple[str, str]]], serialization: Serialization
) -> None:
    decoder = decoder_of_streams()
    for fields in pulls:
        command = a_pull({**REQUEST.encode(), **dict(fields)}, serialization)
        try:
            expected = PullMessageRequestHeader.decode(command.ext_fields)
        except HeaderError:
            with pytest.raises(HeaderError):
                decoder.decode(command)
        else:
            assert decoded(decoder, command) == expected


@pytest.mark.parametrize(
    "again", [("queueOffset", b"7"), ("commitOffset", b"7"), ("queueOffset", b"7" * 300)]
)
def test_a_header_with_a_repeated_field_is_not_kept(again: tuple[str, bytes]) -> None:
    fields = [*REQUEST.encode().items(), (again[0], again[1].decode())]
    ext = b"".join(ext_field(key.encode(), value.encode()) for key, value in fields)
    decoder = decoder_of_streams()
    for _ in range(2):
        command = binary.decode_header(header := binary_header(code=11, ext=ext), 0, len(header), b"")
        try:
            expected = PullMessageRequestHeader.decode(dict(fields))
        except HeaderError:
            with pytest.raises(HeaderError):
                decoder.decode(command)
        else:
            assert decoded(decoder, command) == expected
    assert kept(decoder) == 0


@pytest.mark.parametrize("serialization", Serialization)
def test_kept_streams_are_bounded(serialization: Serialization) -> None:
    decoder, most = decoder_of_streams(), 0
    for number in range(12_000):
        decoder.decode(a_pull(replace(REQUEST, topic=f"T{number}").encode(), serialization))
        most = max(most, kept(decoder))
    assert most == 10_000
    decoder = decoder_of_streams()
    decoder.decode(a_pull(replace(REQUEST, subscription="x" * 2000).encode(), serialization))
    assert kept(decoder) == 0
