"""Pull headers in both directions."""

from __future__ import annotations

import re

import pytest

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderError
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    encode_pull_response,
)
from tests.support.frames import GoldenFrame, as_described, decode_one, golden_frames

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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("name", ["suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"])
@pytest.mark.parametrize("value", [None, "", "x"])
def test_bad_response_is_a_header_error(name: str, value: str | None) -> None:
    fields = {**PullMessageResponseHeader(0, 1, 2, 3).encode(), name: value}
    given = {key: text for key, text in fields.items() if text is not None}
    with pytest.raises(HeaderError, match=re.escape("PullMessageResponseHeader: bad or missing field")):
        PullMessageResponseHeader.decode(given)


@pytest.mark.parametrize(
    "header",
    [
        PullMessageResponseHeader(0, 0, 0, 0),
        PullMessageResponseHeader(1, 2**63 - 1, -1, 2**62),
        PullMessageResponseHeader(0, 1, 2, 3, 4, 5, 6, 7),
        PullMessageResponseHeader(0, 1, 2, 3, forbidden_type=1),
    ],
)
@pytest.mark.parametrize("body", [b"", b"stored messages" * 1000])
@pytest.mark.parametrize("serialization", Serialization)
def test_response_is_what_the_slow_encoder_writes(
    header: PullMessageResponseHeader, body: bytes, serialization: Serialization
) -> None:
    request = RemotingCommand.request(11, serialization=serialization)

    answer = encode_pull_response(request, ResponseCode.SUCCESS, header, body)

    frame = answer if isinstance(answer, bytes) else encode_frame(answer)
    assert frame == encode_frame(
        request.response(ResponseCode.SUCCESS, ext_fields=header.encode(), body=body)
    )
    response = decode_one(frame)
    assert response.serialization is serialization
    assert response.body == body
    assert PullMessageResponseHeader.decode(response.ext_fields) == header
