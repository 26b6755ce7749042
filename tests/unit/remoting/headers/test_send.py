"""Headers of sends: decoding by the cached bytes gives the same as decoding the map of fields."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand, Serialization
from rmq_remoting.errors import HeaderDecodeError, HeaderError, RemotingError
from rmq_remoting.ext_fields import decode_binary, decode_json, encode_binary
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, SendTarget
from rmq_remoting.headers.send_answers import SendResponseEncoder
from rmq_remoting.headers.send_decoding import SendHeaderDecoder
from tests.support.examples import examples
from tests.support.frames import GoldenFrame, decode_one, ext_field, golden_frames
from tests.support.rows import each_row

BORN = "1700000000000"
TARGET = SendTarget("PG", "TopicTest", "TBW102", 4, 2, broker_name="broker-a")
FIELDS = SendMessageRequestHeader(TARGET, int(BORN), b"KEYS\x01k\x02").encode_v2()
V2 = int(RequestCode.SEND_MESSAGE_V2)


def fast(decoder: SendHeaderDecoder, raw: bytes, code: int = V2) -> SendMessageRequestHeader:
    return decoder.decode(RemotingCommand(code, 0, 1, raw_ext=raw, serialization=Serialization.BINARY))


def slow(raw: bytes, code: int = V2) -> SendMessageRequestHeader:
    return SendHeaderDecoder().decode(RemotingCommand(code, 0, 1, ext_fields=decode_binary(raw)))


def json_of(fields: list[tuple[str, str]]) -> bytes:
    """Return the fields as a JSON object, which may name a field twice."""
    members = (f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False)}" for key, value in fields)
    return f"{{{','.join(members)}}}".encode()


def fast_json(decoder: SendHeaderDecoder, raw: bytes, code: int = V2) -> SendMessageRequestHeader:
    return decoder.decode(RemotingCommand(code, 0, 1, raw_ext=raw, serialization=Serialization.JSON))


def slow_json(raw: bytes, code: int = V2) -> SendMessageRequestHeader:
    return SendHeaderDecoder().decode(RemotingCommand(code, 0, 1, ext_fields=decode_json(raw)))


def values(header: SendMessageRequestHeader) -> dict[str, Any]:
    target = {field.name: getattr(header.target, field.name) for field in fields(SendTarget)}
    return {**target, "born_timestamp_ms": header.born_timestamp_ms, "properties": header.properties}


def outcome(decode: Any, *arguments: Any) -> Any:
    try:
        return values(decode(*arguments))
    except RemotingError as error:
        return type(error), str(error)


# --- Apache's headers ---


def is_send(golden: GoldenFrame) -> bool:
    is_request = golden.decoded["flag"] & 1 == 0
    return is_request and golden.decoded["code"] in (10, 310, 320, 325) and not golden.name.startswith("odd")


@each_row("golden", [golden for golden in golden_frames() if is_send(golden)], ids=str)
def test_golden_send_headers(golden: GoldenFrame) -> None:
    fields = golden.decoded["extFields"]
    is_v1 = golden.decoded["code"] == 10

    decoder = SendHeaderDecoder()
    header = decoder.decode(decode_one(golden.frame))
    again = decoder.decode(decode_one(golden.frame))

    assert header.target is again.target
    assert values(header) == values(again)
    assert header.target.topic == fields["topic" if is_v1 else "b"]
    assert str(header.target.queue_id) == fields["queueId" if is_v1 else "e"]
    assert header.properties.decode() == fields["properties" if is_v1 else "i"]
    assert (header.encode_v1() if is_v1 else header.encode_v2()) == fields


# --- the two ways ---

MARKS = [
    '"g":"',
    '"i":"x',
    '"\\',
    "\x00\x01g\x00\x00\x00\x0d",
    "\x00\x01i",
    "\x00\x01g\x00\x00\x00\x0d" + BORN,
    "\x00\x01i\x00\x00\x00\x05hello",
]
TEXTS = st.one_of(
    st.sampled_from(["T", "TopicTest", "", "主题", "\x00", *MARKS]),
    st.text(max_size=8),
    st.lists(st.sampled_from([*MARKS, "a", "é", "\x00\x01"]), max_size=4).map("".join),
)
NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "-1", "2147483647", "2147483648", "", "x", "01", BORN, MARKS[0]]),
    st.integers(-10, 70_000).map(str),
)
GOOD_BORNS = st.integers(10**12, 10**13 - 1).map(str)
BORNS = st.one_of(
    GOOD_BORNS,
    st.sampled_from(
        [BORN, "", "0", "-170000000000", "x" * 13, "1_70000000000", " 1700000000000", "9" * 13, "9" * 19]
    ),
)
BOOLEANS = st.sampled_from(["true", "false", "TRUE", "", "1"])
KEYS: dict[str, st.SearchStrategy[str]] = {
    "a": TEXTS,
    "b": TEXTS,
    "c": TEXTS,
    "d": NUMBERS,
    "e": NUMBERS,
    "f": NUMBERS,
    "g": BORNS,
    "h": NUMBERS,
    "i": TEXTS,
    "j": NUMBERS,
    "k": BOOLEANS,
    "l": NUMBERS,
    "m": BOOLEANS,
    "n": TEXTS,
}
# A field is a key and a value; None where the value changes from send to send.
Field = tuple[str, str | None]


@st.composite
def shapes(draw: st.DrawFn) -> list[Field]:
    """The fields of one producer's sends, mostly right."""
    fields: list[Field] = [(key, None if key in "gi" else FIELDS.get(key, "7")) for key in KEYS]
    for key in draw(st.lists(st.sampled_from("abcnabcndefhjklm"), max_size=2)):
        fields = [(name, draw(KEYS[name]) if name == key else value) for name, value in fields]
    change = draw(st.sampled_from(["none", "order", "missing", "extra", "repeated", "repeated", "repeated"]))
    if change == "order":
        return draw(st.permutations(fields))
    if change == "missing":
        left_out = draw(st.sets(st.sampled_from(sorted(KEYS)), max_size=4))
        return [field for field in fields if field[0] not in left_out]
    if change == "repeated":
        key = draw(st.sampled_from([*"gi" * 14, *KEYS]))
        value = None if draw(st.booleans()) else draw(KEYS[key])
        fields.insert(draw(st.integers(0, len(fields))), (key, value))
    if change == "extra":
        fields.insert(draw(st.integers(0, len(fields))), (draw(TEXTS), draw(TEXTS)))
    return fields


def filled(shape: list[Field], born: str, properties: str) -> list[tuple[str, str]]:
    changing = {"g": born, "i": properties}
    return [(key, changing.get(key, "") if value is None else value) for key, value in shape]


def raw_of(shape: list[Field], born: str, properties: str) -> bytes:
    return b"".join(ext_field(key.encode(), value.encode()) for key, value in filled(shape, born, properties))


@settings(max_examples=examples(400))
@given(
    st.lists(shapes(), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), GOOD_BORNS | BORNS, TEXTS), min_size=3, max_size=6),
    st.sampled_from([10, V2, 320]),
)
def test_both_ways_of_decoding_give_the_same(
    producers: list[list[Field]], sends: list[tuple[int, str, str]], code: int
) -> None:
    decoder = SendHeaderDecoder()
    for producer, born, properties in sends:
        raw = raw_of(producers[producer % len(producers)], born, properties)
        assert outcome(fast, decoder, raw, code) == outcome(slow, raw, code)
        raw = json_of(filled(producers[producer % len(producers)], born, properties))
        assert outcome(fast_json, decoder, raw, code) == outcome(slow_json, raw, code)


@settings(max_examples=examples(200))
@given(st.binary(max_size=60), st.integers(0, 200), st.booleans())
def test_damaged_maps_are_protocol_errors_when_the_target_is_cached(
    noise: bytes, at: int, insert: bool
) -> None:
    decoder = SendHeaderDecoder()
    good = encode_binary(FIELDS)
    fast(decoder, good)
    damaged = good[:at] + noise + good[at if insert else at + len(noise) :]

    result = outcome(fast, decoder, damaged)

    assert result == outcome(slow, damaged)


@settings(max_examples=examples(200))
@given(st.binary(max_size=40), st.integers(0, 250), st.booleans())
def test_damaged_json_is_decoded_as_without_a_cached_target(noise: bytes, at: int, insert: bool) -> None:
    decoder = SendHeaderDecoder()
    good = json_of(list(FIELDS.items()))
    fast_json(decoder, good)
    damaged = good[:at] + noise + good[at if insert else at + len(noise) :]
    assert outcome(fast_json, decoder, damaged) == outcome(slow_json, damaged)


def test_a_cached_target_is_found_by_its_bytes() -> None:
    decoder = SendHeaderDecoder()
    first = fast(decoder, encode_binary(FIELDS))
    insertions = [cache.insertions for cache in decoder.caches]

    second = fast(decoder, encode_binary({**FIELDS, "g": "1800000000001", "i": "TAGS\x01a\x02"}))

    assert second.target is first.target
    assert (second.born_timestamp_ms, second.properties) == (1_800_000_000_001, b"TAGS\x01a\x02")
    assert [cache.insertions for cache in decoder.caches] == insertions


def test_a_cached_target_is_found_by_its_json() -> None:
    decoder = SendHeaderDecoder()
    in_apaches_order = sorted({**FIELDS, "i": "KEYS\x01k\x02"}.items())
    first = fast_json(decoder, json_of(in_apaches_order))
    insertions = [cache.insertions for cache in decoder.caches]

    later = {**dict(in_apaches_order), "g": "1800000000001", "i": "TAGS\x01ключ\x02"}
    second = fast_json(decoder, json_of(list(later.items())))

    assert second.target is first.target
    assert (second.born_timestamp_ms, second.properties.decode()) == (1_800_000_000_001, "TAGS\x01ключ\x02")
    assert [cache.insertions for cache in decoder.caches] == insertions


@each_row("where", ["first", "between", "last"])
@each_row(("key", "value"), [("g", "1800000000001"), ("g", "5"), ("i", "other"), ("i", "")])
@each_row("properties", ["mine", ""])
def test_a_repeated_field_does_not_move_the_cut(where: str, key: str, value: str, properties: str) -> None:
    shape: list[Field] = [(name, None if name in "gi" else text) for name, text in FIELDS.items()]
    shape.sort(key=lambda field: field[0])
    keys = [name for name, _ in shape]
    shape.insert({"first": 0, "between": keys.index("h"), "last": len(shape)}[where], (key, value))
    decoder = SendHeaderDecoder()
    fast(decoder, raw_of(shape, BORN, "something"))

    raw = raw_of(shape, "1700000000007", properties)

    assert outcome(fast, decoder, raw) == outcome(slow, raw)


@each_row("mark", MARKS)
@each_row("key", ["a", "b", "c", "n", "i"])
def test_a_value_that_holds_a_mark_does_not_move_the_cut(mark: str, key: str) -> None:
    decoder = SendHeaderDecoder()
    for value in (mark, "x" + mark, mark + "x", mark + mark):
        for born in (BORN, "1700000000999"):
            raw = encode_binary({**FIELDS, key: value, "g": born})
            assert outcome(fast, decoder, raw) == outcome(slow, raw)
            raw = json_of(list({**FIELDS, key: value, "g": born}.items()))
            assert outcome(fast_json, decoder, raw) == outcome(slow_json, raw)


@pytest.mark.parametrize("properties", [b"\xff", b"KEYS\x01\xc3\x02", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
@pytest.mark.parametrize("known", [False, True])
def test_properties_that_are_not_utf8(properties: bytes, known: bool) -> None:
    decoder = SendHeaderDecoder()
    if known:
        fast(decoder, encode_binary(FIELDS))
    raw = encode_binary({**FIELDS, "i": "\x00"}).replace(
        ext_field(b"i", b"\x00"), ext_field(b"i", properties)
    )

    with pytest.raises(HeaderDecodeError, match="not UTF-8"):
        fast(decoder, raw)


def test_properties_in_any_script() -> None:
    decoder = SendHeaderDecoder()
    for _ in range(2):
        raw = encode_binary({**FIELDS, "i": "ключ\x01値😀\x02"})
        assert fast(decoder, raw).properties.decode() == "ключ\x01値😀\x02"


def test_damaged_length_of_the_properties_with_a_cached_target() -> None:
    decoder = SendHeaderDecoder()
    good = encode_binary({**FIELDS, "i": "x" * 30})
    fast(decoder, good)
    mark = good.index(b"\x00\x01i\x00") + 3

    for length in (-1, -(2**31), 2**31 - 1, 31, 200):
        raw = good[:mark] + length.to_bytes(4, "big", signed=True) + good[mark + 4 :]
        with pytest.raises(HeaderDecodeError):
            fast(decoder, raw)


# --- fields ---


@each_row("code", [10, V2, 320])
@each_row("index", range(7))
def test_the_error_names_a_missing_field(code: int, index: int) -> None:
    header = SendMessageRequestHeader(TARGET, int(BORN), b"")
    names = ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "flag"]
    fields = header.encode_v1() if code == 10 else header.encode_v2()
    del fields[names[index] if code == 10 else "abcdefh"[index]]

    with pytest.raises(HeaderError, match=f"required field {names[index]} "):
        SendHeaderDecoder().decode(RemotingCommand(code, 0, 1, ext_fields=fields))


@pytest.mark.parametrize("born", [None, "", "x", "1.5", str(2**63), str(-(2**63) - 1), "9" * 5000])
def test_the_error_names_an_invalid_born_timestamp(born: str | None) -> None:
    fields = {key: value for key, value in {**FIELDS, "g": born}.items() if value is not None}
    for _ in range(2):
        with pytest.raises(HeaderError, match="bornTimestamp") as caught:
            SendHeaderDecoder().decode(RemotingCommand(V2, 0, 1, ext_fields=fields))
        assert len(str(caught.value)) < 300


@each_row("key", list("defhjl"))
@each_row("value", ["", "x", "1.5", str(2**31), str(-(2**31) - 1), "9" * 5000])
def test_the_error_names_an_invalid_number_and_nothing_is_cached(key: str, value: str) -> None:
    decoder = SendHeaderDecoder()
    for _ in range(2):
        with pytest.raises(HeaderError, match="must be a 32-bit integer") as caught:
            decoder.decode(RemotingCommand(V2, 0, 1, ext_fields={**FIELDS, key: value}))
        assert len(str(caught.value)) < 300
    assert not any(map(len, decoder.caches))


def test_optional_fields_have_defaults() -> None:
    fields = {key: value for key, value in FIELDS.items() if key in "abcdefgh"}
    header = SendHeaderDecoder().decode(RemotingCommand(V2, 0, 1, ext_fields=fields))
    assert values(header) == values(
        SendMessageRequestHeader(replace(TARGET, broker_name=None), int(BORN), b"")
    )


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)]
)
def test_booleans_are_read_as_by_java(text: str, value: bool) -> None:
    fields = {**FIELDS, "k": text, "m": text}
    target = SendHeaderDecoder().decode(RemotingCommand(V2, 0, 1, ext_fields=fields)).target
    assert (target.unit_mode, target.batch) == (value, value)


def test_both_versions_of_a_header_share_their_target() -> None:
    decoder = SendHeaderDecoder()
    header = SendMessageRequestHeader(replace(TARGET, max_reconsume_times=3, batch=True), int(BORN), b"p")

    first = decoder.decode(RemotingCommand(10, 0, 1, ext_fields=header.encode_v1()))
    second = decoder.decode(RemotingCommand(V2, 0, 1, ext_fields=header.encode_v2()))
    third = fast(decoder, encode_binary(header.encode_v2()))

    assert first.target is second.target is third.target
    assert values(first) == values(third) == values(header)


# --- caches ---


def test_the_caches_of_targets_are_bounded() -> None:
    decoder = SendHeaderDecoder(max_bytes=100_000)
    largest = [0, 0]
    for number in range(1000):
        fields = {**FIELDS, "b": f"Topic{number}"}
        for _ in range(2):
            assert fast(decoder, encode_binary(fields)).target.topic == f"Topic{number}"
        largest = [max(size, len(cache)) for size, cache in zip(largest, decoder.caches, strict=True)]
    assert all(10 < size <= 50 for size in largest)


@pytest.mark.parametrize("key", ["b", "x"])
def test_a_huge_target_is_not_cached(key: str) -> None:
    decoder = SendHeaderDecoder()
    fields = {**FIELDS, key: "x" * 1_000_000}
    for _ in range(2):
        assert fast(decoder, encode_binary(fields)).target.queue_id == 2
    # The key by fields leaves out the unknown field "x", so it is small.
    assert [len(cache) for cache in decoder.caches] == [0, 0 if key == "b" else 1]


# --- responses ---

MSG_ID = b"0A00000300002A9F0000000000000064"


@each_row("trace_on", [True, False])
@each_row("transaction_id", ["", "7F00000100002A9F", "k" * 300, 'ключ"\\ %d\x00'])
@each_row("further", [{}, {"recallHandle": "djEg", "batchUniqId": "K%s"}])
@each_row("region", ["DefaultRegion", 'r%d "1"'])
@each_row("serialization", Serialization)
def test_a_response_equals_that_of_the_general_encoder(
    trace_on: bool, transaction_id: str, further: dict[str, str], region: str, serialization: Serialization
) -> None:
    encoder = SendResponseEncoder(region, trace_on)
    request = RemotingCommand.request(V2, serialization=serialization)
    constant = {"MSG_REGION": region, "TRACE_ON": "true" if trace_on else "false"}
    for queue_id, offset in ((0, 0), (7, 2**63 - 1), (0, 12)):
        fields = {"msgId": MSG_ID.decode(), "queueId": str(queue_id), "queueOffset": str(offset)}
        if transaction_id:
            fields["transactionId"] = transaction_id

        frame = encoder.encode(request, MSG_ID, queue_id, offset, transaction_id.encode(), further)

        response = request.response(ResponseCode.SUCCESS, ext_fields={**fields, **constant, **further})
        assert frame == encode_frame(response)
    assert encoder.constant_fields == constant


def test_a_json_request_is_answered_in_json() -> None:
    encoder = SendResponseEncoder("DefaultRegion", True)
    request = RemotingCommand.request(V2)

    response = encoder.encode(request, MSG_ID, 3, 4, b"K", {"recallHandle": "djEg"})

    read = decode_one(response)
    assert read.serialization is Serialization.JSON
    assert (read.opaque, read.code, read.is_response) == (request.opaque, 0, True)
    header = SendMessageResponseHeader.decode(read.ext_fields)
    assert header == SendMessageResponseHeader(MSG_ID.decode(), 3, 4, "K", recall_handle="djEg")


def test_a_binary_response_to_a_batch_has_the_ids_of_all_messages() -> None:
    encoder = SendResponseEncoder("region", False)
    request = RemotingCommand.request(320, serialization=Serialization.BINARY)
    ids = b",".join([MSG_ID] * 1000)

    frame = encoder.encode(request, ids, 0, 0)

    response = decode_one(frame)
    assert response.language == LanguageCode.PYTHON
    assert response.ext_fields["msgId"] == ids.decode()


@pytest.mark.parametrize(
    "golden",
    [
        golden
        for golden in golden_frames()
        if golden.name.startswith("send response") and golden.decoded["extFields"]
    ],
    ids=str,
)
def test_golden_send_responses(golden: GoldenFrame) -> None:
    fields = golden.decoded["extFields"]
    if "msgId" not in fields:
        with pytest.raises(HeaderError):
            SendMessageResponseHeader.decode(fields)
        return

    header = SendMessageResponseHeader.decode(decode_one(golden.frame).ext_fields)

    assert header.msg_id == fields["msgId"]
    assert str(header.queue_id) == fields["queueId"]
    assert str(header.queue_offset) == fields["queueOffset"]
    assert header.recall_handle == fields.get("recallHandle")
    assert header.transaction_id == fields.get("transactionId")
    assert header.batch_uniq_id == fields.get("batchUniqId")
