"""Typed bodies: every example of Apache's classes in both directions, and refusals."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting import bodies
from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.base import Body
from rmq_remoting.bodies.broker_stats import BrokerStatsData, BrokerStatsItem
from rmq_remoting.bodies.connection import Connection, ProducerInfo
from rmq_remoting.bodies.group import CustomizedRetryPolicy, SubscriptionGroupWrapper
from rmq_remoting.bodies.heartbeat import ConsumerData, ConsumeType, HeartbeatData, SubscriptionData
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.lock import LockBatchRequestBody
from rmq_remoting.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    QueryCorrectionOffsetBody,
)
from rmq_remoting.bodies.pop import AckMsg, BatchAck, PopCheckPoint
from rmq_remoting.bodies.register import RegisterBrokerBody
from rmq_remoting.bodies.route import BrokerData, TopicRouteData
from rmq_remoting.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicOffset,
    TopicStatsTable,
)
from rmq_remoting.codes import LanguageCode
from rmq_remoting.errors import BodyError, JsonError
from rmq_remoting.message_queue import MessageQueue
from tests.support.golden import DATA, json_file
from tests.support.rows import each_row

GOLDEN = {name: body for name, body in json_file("protocol/bodies.json").items() if not name.startswith("_")}
TOLERANCE = json_file("protocol/bodies.json")["_reader_tolerance"]

# Controller, replica sets and access control: later.
NOT_MODELLED = {
    "AclInfo",
    "BrokerReplicasInfo",
    "ElectMasterResponseBody",
    "EpochEntry",
    "EpochEntryCache",
    "SyncStateSet",
    "UserInfo",
}
# Written without references, as every reader takes that; the text differs.
WRITTEN_WITH_REFERENCES = {
    ("BrokerStatsData", 0),
    ("GetConsumerStatusBody", 0),
    ("RegisterBrokerBody", 0),
    ("TopicConfigAndMappingSerializeWrapper", 0),
}
# What Apache's SubscriptionGroupManager writes beside its own wrapper's members.
MORE_THAN_APACHES_CLASS = {"SubscriptionGroupWrapper": {"forbiddenTable"}}
STANDARD = "route, standard JSON"
EXAMPLES = [
    (name, example)
    for name, body in GOLDEN.items()
    if name not in NOT_MODELLED
    for index, example in enumerate(body["examples"])
    if (name, index) not in WRITTEN_WITH_REFERENCES
]


def _modules() -> list[Any]:
    return [
        importlib.import_module(f"rmq_remoting.bodies.{module.name}")
        for module in pkgutil.iter_modules(bodies.__path__)
    ]


CLASSES: dict[str, type[Body]] = {
    name: value
    for module in _modules()
    for name, value in inspect.getmembers(module, inspect.isclass)
    if issubclass(value, Body) and value is not Body and not name.startswith("_")
}


def _decoded(name: str, text: str) -> Any:
    """An example as its class; a message queue is no body of its own."""
    if name == "MessageQueue":
        return fastjson.loads(text.encode())
    return CLASSES[name].decode(text.encode())


def _topic_of_line(line: str) -> TopicConfig:
    return TopicConfig.from_wire(TopicConfig.members_of_line(line))


def _encoded(value: Any) -> str:
    return (value.encode() if isinstance(value, Body) else fastjson.dumps(value)).decode()


def test_every_class_of_the_golden_data_is_modelled() -> None:
    assert set(GOLDEN) - NOT_MODELLED - {"MessageQueue"} <= set(CLASSES)


@pytest.fixture(autouse=True, scope="module")
def utc() -> Iterator[None]:
    """The examples' times of day were written in UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@each_row(("name", "example"), EXAMPLES)
def test_an_example_is_decoded_and_encoded_unchanged(name: str, example: dict[str, Any]) -> None:
    value = _decoded(name, example["json"])
    if example["example"] == STANDARD:
        assert value.encode_standard().decode() == example["json"]
    else:
        assert _encoded(value) == example["json"]


@each_row(("name", "example"), EXAMPLES)
def test_orjson_and_the_exact_writer_agree(name: str, example: dict[str, Any]) -> None:
    value = _decoded(name, example["json"])
    if isinstance(value, Body):
        assert value.encode() == fastjson.dumps(value)
        assert type(value).decode(value.encode_standard()) == value
        assert type(value).decode(value.encode_pretty()) == value


@pytest.mark.parametrize(("name", "index"), sorted(WRITTEN_WITH_REFERENCES))
def test_an_example_with_references_has_the_same_meaning(name: str, index: int) -> None:
    text = GOLDEN[name]["examples"][index]["json"]
    value = CLASSES[name].decode(text.encode())
    written = value.encode()
    assert b"$ref" not in written
    assert CLASSES[name].decode(written) == value


def test_references_are_resolved() -> None:
    status = GetConsumerStatusBody.decode(GOLDEN["GetConsumerStatusBody"]["examples"][0]["json"].encode())
    assert status.message_queue_table == {MessageQueue("TopicTest", "broker-a", 0): 5}
    assert status.consumer_table == {"10.0.0.3@1234": status.message_queue_table}
    stats = BrokerStatsData.decode(GOLDEN["BrokerStatsData"]["examples"][0]["json"].encode())
    assert (
        stats.stats_minute
        == stats.stats_hour
        == stats.stats_day
        == BrokerStatsItem(average_per_call=1.25, sum=10, tps=0.5)
    )


@each_row("name", sorted(CLASSES.keys() & GOLDEN.keys()))
def test_wire_names_are_apaches(name: str) -> None:
    own = {field.alias for field in CLASSES[name].model_fields.values()}
    read = {member["name"] for member in GOLDEN[name]["json_read"]}
    assert own - MORE_THAN_APACHES_CLASS.get(name, set()) == read


@each_row("name", sorted(CLASSES.keys() & GOLDEN.keys()))
def test_alternate_names_are_decoded(name: str) -> None:
    body = CLASSES[name]
    for member in GOLDEN[name]["json_read"]:
        for alternate in member.get("alternate_names", []):
            example = fastjson.loads(GOLDEN[name]["examples"][0]["json"].encode())
            assert isinstance(example, dict)
            renamed = {alternate if key == member["name"] else key: value for key, value in example.items()}
            assert renamed != example
            assert body.from_wire(renamed) == body.from_wire(example)


@each_row("row", TOLERANCE.values())
def test_fastjsons_spellings_are_decoded(row: dict[str, Any]) -> None:
    by_member: dict[object, type[Body]] = {
        "consumeTps": ConsumeStats,
        "correctionOffsets": QueryCorrectionOffsetBody,
        "brokerAddrs": BrokerData,
    }
    result = row["result"]["re_encoded"]
    first = next(iter(fastjson.loads(result.encode())))  # type: ignore[call-overload]
    if first in by_member:
        assert by_member[first].decode(row["input"].encode()).encode().decode() == result
    else:
        text = f'{{"clientId":"c","consumerGroup":"g","mqSet":[{row["input"]}]}}'
        (queue,) = LockBatchRequestBody.decode(text.encode()).mq_set
        assert fastjson.dumps(queue).decode() == result


def test_more_spellings() -> None:
    config = TopicConfig.decode(b'{"topicName":"T","isOrder":true,"PERM":"4","read-queue-nums":1.0}')
    assert config == TopicConfig(topic_name="T", order=True, perm=4, read_queue_nums=1)
    exact_wins = TopicConfig.decode(b'{"TOPICNAME":"no","topicName":"T","attributes":null}')
    assert exact_wins == TopicConfig(topic_name="T")
    table = KVTable.decode(b'{"table":{"a":1,"b":2.5,"c":"x"}}')
    assert table.table == {"a": "1", "b": "2.5", "c": "x"}


def test_enums_are_decoded_by_name_and_ordinal() -> None:
    by_ordinal = ConsumerData.decode(b'{"groupName":"g","consumeType":0,"messageModel":0}')
    assert by_ordinal.consume_type is ConsumeType.CONSUME_ACTIVELY
    with pytest.raises(BodyError, match=r"ConsumerData: consumeType: .*got 'NO'"):
        ConsumerData.decode(b'{"groupName":"g","consumeType":"NO"}')
    with pytest.raises(BodyError, match=r"ConsumerData: consumeType: .*got 3"):
        ConsumerData.decode(b'{"groupName":"g","consumeType":3}')


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('"GO"', LanguageCode.GO),
        ("12", LanguageCode.RUST),
        ('"COBOL"', LanguageCode.OTHER),
        ("99", LanguageCode.OTHER),
    ],
)
def test_unknown_languages_are_other(text: str, language: LanguageCode) -> None:
    connection = Connection.decode(f'{{"language":{text}}}'.encode())
    assert connection.language is language
    assert f'"language":"{language.name}"'.encode() in connection.encode()
    assert ProducerInfo(language=language).to_wire()["language"] == language.name


@each_row(
    ("body", "text", "problem"),
    [
        (TopicConfig, "{}", "TopicConfig: topicName: Field required"),
        (TopicConfig, "[]", "TopicConfig: a JSON object is needed, not a list"),
        (TopicConfig, "null", "TopicConfig: a JSON object is needed, not a NoneType"),
        (TopicConfig, '{"topicName":{}}', r"TopicConfig: topicName: .* \(got \{\}\)"),
        (TopicConfig, '{"topicName":"T","perm":2147483648}', r"perm: .*less than or equal.*got 2147483648"),
        (TopicConfig, '{"topicName":"T","perm":1.5}', r"perm: .*integer.*got 1\.5"),
        (TopicConfig, '{"topicName":"T","order":"perhaps"}', r"order: .*boolean.*got 'perhaps'"),
        (DataVersion, '{"counter":9223372036854775808}', "DataVersion: counter: "),
        (TopicRouteData, '{"queueDatas":[{"perm":1}]}', r"queueDatas\.0\.brokerName: Field required"),
        (BrokerData, '{"brokerName":"b","brokerAddrs":{"x":"a"}}', r"BrokerData: brokerAddrs\.x\."),
        (ConsumeStats, '{"offsetTable":{"x":{}}}', "a value is expected, found 'x'"),
        (ConsumeStats, '{"offsetTable":{5:{}}}', "MessageQueue: a JSON object is needed, not a int"),
        (ConsumeStats, '{"offsetTable":{{"topic":"T"}:{}}}', "MessageQueue: brokerName: Field required"),
        (BatchAck, '{"c":"g","t":"T","b":"*"}', "BatchAck: b: "),
        (
            TopicRouteData,
            '{"queueDatas":[{},{},{},{},{}]}',
            "queueDatas.2.brokerName: Field required; and 2 more$",
        ),
    ],
)
def test_errors_name_class_and_field(body: type[Body], text: str, problem: str) -> None:
    with pytest.raises(BodyError, match=problem):
        body.decode(text.encode())


def test_many_problems_are_only_counted() -> None:
    with pytest.raises(BodyError, match="TopicRouteData: 101 missing or invalid fields"):
        TopicRouteData.decode(b'{"queueDatas":[' + b"{}," * 100 + b"{}]}")


def test_a_request_is_bounded() -> None:
    text = b'{"table":{' + b",".join(b'"%d":"v"' % number for number in range(40_000)) + b"}}"
    assert len(KVTable.decode(text).table) == 40_000
    with pytest.raises(JsonError, match="more than 32768 values"):
        KVTable.decode_request(text)
    assert KVTable.decode_request(b'{"table":{"a":"b"}}').table == {"a": "b"}


def test_a_message_queue_is_a_value() -> None:
    queue = MessageQueue("T", "b", 1)
    stats = TopicStatsTable(offset_table={queue: TopicOffset(min_offset=1)})
    assert stats.offset_table[MessageQueue("T", "b", 1)].min_offset == 1


@given(st.text(), st.text())
def test_both_writers_encode_any_text_alike(name: str, value: str) -> None:
    table = KVTable(table={"null": "null", name: value})
    assert table.encode() == fastjson.dumps(table)
    if name != "$ref":
        assert KVTable.decode(table.encode()) == table
        assert json.loads(table.encode_standard())["table"][name] == value


@given(st.sampled_from(sorted(CLASSES)), st.binary() | st.text(alphabet='{}[]:,"0 ').map(str.encode))
def test_random_bytes_are_refused(name: str, data: bytes) -> None:
    try:
        CLASSES[name].decode(data)
    except BodyError:
        return
    assert data.lstrip(b" \t\r\n\f\b").startswith(b"{")


class TestRegistration:
    golden = GOLDEN["RegisterBrokerBody"]["compressed_example"]

    def _body(self) -> RegisterBrokerBody:
        text = GOLDEN["RegisterBrokerBody"]["examples"][0]["json"]
        return RegisterBrokerBody.decode(text.encode())

    def test_the_compressed_form_is_decoded(self) -> None:
        body = RegisterBrokerBody.decode_compressed(bytes.fromhex(self.golden["hex"]))
        wrapper = body.topic_config_serialize_wrapper
        assert wrapper.topic_config_table == self._body().topic_config_serialize_wrapper.topic_config_table
        assert wrapper.data_version == DataVersion(counter=5, timestamp=1700000000000)
        assert body.filter_server_list == []

    def test_the_compressed_form_is_encoded(self) -> None:
        compressed = self._body().encode_compressed()
        assert zlib.decompress(compressed).hex() == self.golden["inflated_hex"]
        (config,) = self._body().topic_config_serialize_wrapper.topic_config_table.values()
        assert config.to_line() == self.golden["topic_config_line"]

    def test_compressed_form_keeps_mappings_and_filter_servers(self) -> None:
        mapping = GOLDEN["TopicQueueMappingInfo"]["examples"][0]["json"]
        body = RegisterBrokerBody.decode(
            b'{"filterServerList":["a:1"],"topicConfigSerializeWrapper":'
            b'{"topicQueueMappingInfoMap":{"StaticTopic":%b}}}' % mapping.encode()
        )
        assert RegisterBrokerBody.decode_compressed(body.encode_compressed()) == body
        old = RegisterBrokerBody.decode_compressed(body.encode_compressed(), broker_version=412)
        assert old.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {}

    @each_row("length", range(0, 110, 7))
    def test_a_truncated_stream_is_refused(self, length: int) -> None:
        inflated = bytes.fromhex(self.golden["inflated_hex"])
        with pytest.raises(BodyError, match="RegisterBrokerBody: the stream ends"):
            RegisterBrokerBody.decode_compressed(zlib.compress(inflated[:length]))
        with pytest.raises(BodyError, match="RegisterBrokerBody"):
            RegisterBrokerBody.decode_compressed(bytes.fromhex(self.golden["hex"])[:length])

    def test_a_negative_length_is_refused(self) -> None:
        with pytest.raises(BodyError, match="-1 is not a possible number of bytes of the data version"):
            RegisterBrokerBody.decode_compressed(zlib.compress(b"\xff\xff\xff\xff"))

    def test_a_too_large_stream_is_refused_before_it_is_inflated(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rmq_remoting.bodies.register.MAX_INFLATED_BYTES", 1000)
        with pytest.raises(BodyError, match="more than 1000 bytes"):
            RegisterBrokerBody.decode_compressed(zlib.compress(bytes(100_000)))

    @given(st.binary())
    def test_random_streams_are_refused(self, inflated: bytes) -> None:
        with pytest.raises(BodyError):
            RegisterBrokerBody.decode_compressed(zlib.compress(inflated))

    def test_a_topic_line_may_have_blanks_in_its_attributes(self) -> None:
        config = TopicConfig(topic_name="T", attributes={"a": "b c"})
        assert _topic_of_line(config.to_line()) == config

    def test_an_old_topic_line_has_no_attributes(self) -> None:
        expected = TopicConfig(topic_name="T", perm=2, topic_filter_type=TopicFilterType.MULTI_TAG)
        assert _topic_of_line("T 16 16 2 MULTI_TAG") == expected
        assert _topic_of_line("T 16 16 2 MULTI_TAG ") == expected

    @pytest.mark.parametrize(
        "line", ["", "T 1 2 3", "T 1 2 x SINGLE_TAG", "T 1 2 3 NO", "T 1 2 3 SINGLE_TAG {"]
    )
    def test_a_broken_topic_line_is_refused(self, line: str) -> None:
        with pytest.raises(BodyError):
            _topic_of_line(line)


class TestConfigurationFiles:
    """Files that Apache's broker wrote."""

    @pytest.mark.parametrize(
        ("body", "name"),
        [
            (TopicConfigSerializeWrapper, "topics"),
            (SubscriptionGroupWrapper, "subscriptionGroup"),
            (DelayOffsetSerializeWrapper, "delayOffset"),
        ],
    )
    def test_are_decoded_and_encoded_unchanged(self, body: type[Body], name: str) -> None:
        text = (DATA / "protocol" / "config" / f"{name}.json").read_bytes()
        assert body.decode(text).encode_pretty().decode() == text.decode()

    def test_surplus_members_of_consumer_offsets_are_ignored(self) -> None:
        text = (DATA / "protocol" / "config" / "consumerOffset.json").read_bytes()
        tree = fastjson.loads(text)
        assert fastjson.dumps_pretty(tree).decode() == text.decode()
        offsets = ConsumerOffsetSerializeWrapper.decode(text)
        assert offsets.offset_table["TopicPop@CG_pop"] == {0: 5, 1: 10}


def test_defaults_of_apache() -> None:
    assert HeartbeatData(client_id="c").encode() == (
        b'{"clientID":"c","consumerDataSet":[],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}'
    )
    assert SubscriptionData(topic="T").encode() == (
        b'{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":0,'
        b'"tagsSet":[],"topic":"T"}'
    )
    delays = CustomizedRetryPolicy().next
    assert len(delays) == 18
    assert (delays[0], delays[-1]) == (1000, 7_200_000)
    assert PopCheckPoint(pop_time=5, invisible_time_ms=7).revive_time == 12
    assert AckMsg().encode() == b'{"ao":0,"pt":0,"q":0,"so":0}'


def test_data_version_counts() -> None:
    assert DataVersion(counter=4, timestamp=1).next(now_ms=9) == DataVersion(counter=5, timestamp=9)


def test_acknowledged_bits() -> None:
    ack = BatchAck(consumer_group="g", topic="T", bit_set=1 << 65 | 1)
    assert BatchAck.decode(ack.encode()) == ack
    assert BatchAck(consumer_group="g", topic="T").to_wire()["b"] == ""


# Imports each module in a forked process: starting an interpreter per module would take half a second each.
_IMPORT_EACH = """
import importlib, os, sys
import orjson, pydantic

for name in sys.argv[1:]:
    process = os.fork()
    if process == 0:
        importlib.import_module(name)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    assert status == 0, name
"""


def test_a_module_can_be_imported_alone() -> None:
    names = [f"rmq_remoting.bodies.{module.name}" for module in pkgutil.iter_modules(bodies.__path__)]
    subprocess.run([sys.executable, "-W", "error", "-c", _IMPORT_EACH, *names], check=True)
