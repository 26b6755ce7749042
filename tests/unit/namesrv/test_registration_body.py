"""Decoding of registrations: small, large, in pieces, compressed, damaged."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_namesrv import registration_body
from rmq_namesrv.registration_body import (
    RegisteredTopics,
    checksum_and_fingerprint,
    read_compressed,
    read_registration,
)
from rmq_namesrv.routes import QueueNumbers
from rmq_namesrv.slices import run_to_end
from rmq_remoting.bodies.register import VERSION_WITH_MAPPINGS, RegisterBrokerBody, inflate_registration
from rmq_remoting.bodies.static_topic import TopicConfigAndMappingSerializeWrapper, TopicQueueMappingInfo
from rmq_remoting.bodies.topic import DataVersion, TopicConfig
from rmq_remoting.errors import BodyError
from tests.support.golden import json_file
from tests.support.rows import each_row
from tests.unit.namesrv.parts import EIGHT_QUEUES

VERSION = DataVersion(counter=5, state_version=0, timestamp=1_700_000_000_000)


def read(body: bytes) -> RegisteredTopics:
    return run_to_end(read_registration(body))


def read_stream(stream: bytes, version: int = VERSION_WITH_MAPPINGS) -> RegisteredTopics:
    return run_to_end(read_compressed(stream, version))


def stream_of(topics: list[TopicConfig], **others: Any) -> bytes:
    return inflate_registration(body_of(topics, **others).encode_compressed())


def pauses(body: bytes) -> int:
    return sum(1 for _ in read_registration(body))


def config(name: str, number: int = 8, **others: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=number, write_queue_nums=number, **others)


def body_of(topics: list[TopicConfig], **others: Any) -> RegisterBrokerBody:
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=VERSION,
        mapping_data_version=VERSION,
        topic_config_table={topic.topic_name: topic for topic in topics},
        **others,
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


def large(number: int = 3000) -> list[TopicConfig]:
    return [
        config(f"topic-{index}", index % 5 + 1, attributes={"+message.type": "FIFO", "a{},": '"},"x":{'})
        for index in range(number)
    ]


def expected(number: int = 3000) -> dict[str, QueueNumbers]:
    return {f"topic-{index}": QueueNumbers(6, index % 5 + 1, index % 5 + 1, 0) for index in range(number)}


def test_a_golden_body() -> None:
    examples = json_file("protocol/bodies.json")["RegisterBrokerBody"]
    plain = read(examples["examples"][0]["json"].encode())
    assert plain == RegisteredTopics(VERSION, {"TopicTest": EIGHT_QUEUES}, {})
    compressed = bytes.fromhex(examples["compressed_example"]["hex"])
    assert read_stream(inflate_registration(compressed)) == plain
    checksum, _ = run_to_end(checksum_and_fingerprint(compressed))
    assert checksum == examples["compressed_example"]["crc32"]


def test_an_empty_body_has_no_topics() -> None:
    assert read(b"") == RegisteredTopics()


def test_a_large_body_is_decoded_in_pieces() -> None:
    body = body_of(large()).encode()
    assert len(body) > 8 * registration_body.PIECE_BYTES
    assert read(body) == RegisteredTopics(VERSION, expected(), {})
    assert pauses(body) > 10


def test_apaches_reference_to_the_first_version_is_resolved() -> None:
    body = body_of(large()).encode()
    version = VERSION.encode()
    assert body.count(version) == 2
    first, second, third = body.split(version)
    reference = b'{"$ref":"$.topicConfigSerializeWrapper.dataVersion"}'
    assert read(first + version + second + reference + third) == RegisteredTopics(VERSION, expected(), {})


def test_mappings_behind_a_large_table() -> None:
    mappings = {
        f"topic-{index}": TopicQueueMappingInfo(
            topic=f"topic-{index}", broker_name="broker-a", current_id_map={0: 0, 1: 1}, total_queues=2
        )
        for index in range(1000)
    }
    body = body_of(large(), topic_queue_mapping_info_map=mappings).encode()
    assert b"{0:0,1:1}" in body, "the dialect, not standard JSON"
    assert read(body) == RegisteredTopics(VERSION, expected(), mappings)
    assert pauses(body) > 10


@pytest.mark.parametrize(
    "topics",
    [
        {"A": {"topicName": "A", "perm": "6", "readQueueNums": 8, "writeQueueNums": "8"}},
        {"A": {"readQueueNums": 8, "writeQueueNums": 8}},
        {"A": {"topic_name": "A", "ReadQueueNums": 8, "write-queue-nums": 8}},
    ],
)
def test_fastjsons_spellings_are_accepted(topics: object) -> None:
    body = orjson.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": topics}})
    assert read(body).topics == {"A": EIGHT_QUEUES}


def test_an_indented_body_is_decoded_as_a_whole() -> None:
    body = orjson.dumps(orjson.loads(body_of(large(500)).encode()), option=orjson.OPT_INDENT_2)
    assert len(body) > registration_body.PIECE_BYTES
    assert read(body).topics == expected(500)


def test_members_in_another_order_are_decoded_as_a_whole() -> None:
    table = {
        name: {"topicName": name, "perm": 6, "readQueueNums": 8, "writeQueueNums": 8, "attributes": {}}
        for name in map(str, range(2000))
    }
    body = orjson.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}})
    assert read(body).topics == dict.fromkeys(table, EIGHT_QUEUES)


def test_a_reference_in_place_of_a_topic() -> None:
    topics = large()
    body = body_of([*topics, config("twin")]).encode()
    twin = b'"twin":' + config("twin").encode()
    assert twin in body
    path = b'"$.topicConfigSerializeWrapper.topicConfigTable.topic\\\\-7"'
    body = body.replace(twin, b'"twin":{"$ref":' + path + b"}")
    assert read(body).topics == expected()


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.tuples(st.integers(0, 7), st.integers(1, 9), st.dictionaries(st.text(), st.text(), max_size=3)),
        max_size=60,
    ),
    st.integers(40, 400),
)
def test_the_size_of_pieces_does_not_matter(
    topics: dict[str, tuple[int, int, dict[str, str]]], piece_bytes: int
) -> None:
    configs = [
        config(name, number, perm=perm, attributes=attributes)
        for name, (perm, number, attributes) in topics.items()
    ]
    body = body_of(configs).encode()
    whole = read(body)
    assert whole.topics == {
        name: QueueNumbers(perm, number, number, 0) for name, (perm, number, _) in topics.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration_body, "PIECE_BYTES", piece_bytes)
        assert read(body) == whole


@each_row(
    "damaged",
    [
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xff",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}x',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":7}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"perm":[]}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"readQueueNums":3000000000}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"topicName":[]}}}}',
        b'{"topicConfigSerializeWrapper":7}',
    ],
)
def test_a_damaged_body_is_refused(damaged: bytes) -> None:
    with pytest.raises(BodyError):
        read(damaged)


def test_a_large_damaged_body_is_refused() -> None:
    body = body_of(large()).encode()
    for damaged in (body[:-3], body.replace(b'"topic-2999":{', b'"topic-2999":[', 1), body + b"}"):
        with pytest.raises(BodyError):
            read(damaged)


# --- compressed registrations ---


def test_a_compressed_body_is_decoded_with_pauses() -> None:
    stream = stream_of(large())
    assert read_stream(stream) == RegisteredTopics(VERSION, expected(), {})
    assert sum(1 for _ in read_compressed(stream, VERSION_WITH_MAPPINGS)) > 10


def test_the_mappings_of_a_compressed_body() -> None:
    mapping = TopicQueueMappingInfo(topic="T", broker_name="broker-a", current_id_map={0: 0}, total_queues=2)
    stream = stream_of([config("T")], topic_queue_mapping_info_map={"T": mapping})
    assert read_stream(stream).mappings == {"T": mapping}
    assert read_stream(stream, version=VERSION_WITH_MAPPINGS - 1).mappings == {}


@pytest.mark.parametrize("line", ["", "T", "T 8 8", "T 8 8 x SINGLE_TAG", "T 8 3000000000 6 SINGLE_TAG"])
def test_a_damaged_line_of_a_compressed_body_is_refused(line: str) -> None:
    stream = stream_of([config("Topic")]).replace(
        _piece(config("Topic").to_line().encode()), _piece(line.encode())
    )
    with pytest.raises(BodyError):
        read_stream(stream)


@given(st.binary())
def test_random_streams_are_refused(stream: bytes) -> None:
    with pytest.raises(BodyError):
        read_stream(stream)


# --- limits ---


def test_too_many_topics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_body, "MAX_TOPICS", 3000)
    assert len(read(body_of(large(3000)).encode()).topics) == 3000
    for number in (3001, 5000):
        with pytest.raises(BodyError, match="more than 3000 topics"):
            read(body_of(large(number)).encode())
        with pytest.raises(BodyError, match="more than 3000 topics"):
            read_stream(stream_of(large(number)))


def test_a_body_in_another_layout_is_bounded() -> None:
    with pytest.raises(BodyError, match="more than 500000 values"):
        read(b'{"topicConfigSerializeWrapper": {"topicConfigTable": [' + b"1," * 500_000 + b"1]}}")
    with pytest.raises(BodyError, match="more than 50000 values"):
        read(b"{'topicConfigSerializeWrapper': [" + b"1," * 50_000 + b"1]}")


def _piece(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def test_checksums_are_computed_with_pauses() -> None:
    body = bytes(range(256)) * 5000
    steps = checksum_and_fingerprint(body)
    assert sum(1 for _ in steps) == 5
    checksum, fingerprint = run_to_end(checksum_and_fingerprint(body))
    assert checksum == zlib.crc32(body) & 0x7FFFFFFF
    assert fingerprint != run_to_end(checksum_and_fingerprint(body[:-1]))[1]
    assert run_to_end(checksum_and_fingerprint(b""))[0] == 0
