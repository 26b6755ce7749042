"""Every option with invalid values and with a valid one. A new option without test cases fails here."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets import QueueKey, QueueOffsets
from pyspark_rocketmq.options import Anchor, AtOffsets, AtTimes, ReadOptions, WriteOptions
from pyspark_rocketmq.options.parsing import Mode, OptionGroup, OptionInfo, OtherMode, option_infos
from rmq_remoting.command import Serialization
from rmq_remoting.compression import CompressionType
from tests.support.examples import examples
from tests.support.rows import each_row

from .samples import base_for, mode_of

_BY_QUEUE = '{"orders":{"b":{"3":7}}}'
_KEY = QueueKey("orders", "b", 3)
_LONG = str(2**63)
_WRONG_FLAGS = ["yes", "1", "", "tru e"]
_WRONG_DURATIONS = ["0", "-1s", "1.5s", "soon", "5 years", "", "25d", "999999999999999d"]

# Option -> texts that are rejected.
_WRONG = {
    "rocketmq.namesrv.addr": ["", ";", "localhost", "h:99999", "h:x"],
    "rocketmq.serialize.type": ["", "XML"],
    "rocketmq.requestTimeout": _WRONG_DURATIONS,
    "rocketmq.connectTimeout": _WRONG_DURATIONS,
    "rocketmq.heartbeatInterval": _WRONG_DURATIONS,
    "rocketmq.routeRefreshInterval": _WRONG_DURATIONS,
    "rocketmq.maxUnpackedBodyBytes": ["0", "1k", str(2**31)],
    "rocketmq.accessKey": ["", " "],
    "rocketmq.secretKey": ["", "sesa\0me"],
    "rocketmq.securityToken": ["", "sesa\0me"],
    "rocketmq.tls.enable": _WRONG_FLAGS,
    "rocketmq.tls.caFile": ["", " "],
    "rocketmq.tls.certFile": ["", " "],
    "rocketmq.tls.keyFile": ["", " "],
    "rocketmq.tls.keyPassword": ["", " "],
    "rocketmq.tls.serverName": ["", " "],
    "rocketmq.tls.verify": ["", "true", "host"],
    "subscribe": ["", " , ", "a b", "x" * 128, "a,ö"],
    "subscribePattern": ["", "(", "a{1,99999999999999999999}"],
    "assign": ["", "{}", "[]", "orders", '{"orders":{"b":[]}}', '{"orders":{"b":[1,1]}}',
               '{"orders":{"b":["1"]}}', '{"orders":{"b":[true]}}',
               '{"orders":{"b":[-1]}}', '{"a b":{"b":[1]}}', '{"orders":[1]}'],
    "startingOffsets": ["", "first", "{}", "{", '{"orders":{"b":{"3":-3}}}', '{"orders":{"b":{"3":1.5}}}',
                        '{"orders":{}}', '{"other":{"b":{"3":1}}}', '{"a b":{"b":{"3":1}}}', "group"],
    "startingTimestamp": ["", "-1", "now", "2026-01-31T12:00:00", "2026-13-01T00:00:00Z", "1.5", _LONG,
                          "9" * 30, "1969-12-31T23:59:59Z"],
    "startingOffsetsByTimestamp": ["", "earliest", "5", "{}", '{"orders":{"b":{"3":-1}}}',
                                   '{"orders":{"b":{"3":true}}}', '{"orders":{"b":{"3":"2026-01-31"}}}',
                                   '{"orders":{"b":{"3":null}}}', '{"other":{"b":{"3":1}}}'],
    "startingOffsetsByTimestampStrategy": ["", "earliest", "fail"],
    "endingOffsets": ["", "earliest", "last", "{}", '{"orders":{"b":{"3":-2}}}', '{"other":{"b":{"3":1}}}',
                      "group"],
    "endingTimestamp": ["", "-1", "tomorrow", "2026-01-31"],
    "endingOffsetsByTimestamp": ["", "latest", '{"orders":{"b":{"3":-1}}}', '{"other":{"b":{"3":1}}}'],
    "maxOffsetsPerTrigger": ["", "0", "-5", "1e6", "many", _LONG],
    "minOffsetsPerTrigger": ["", "0", "some", _LONG],
    "maxTriggerDelay": _WRONG_DURATIONS,
    "minPartitions": ["", "0", "100001", "x"],
    "maxRecordsPerPartition": ["", "0", _LONG],
    "packBelowRecords": ["", "-1", _LONG],
    "subExpression": ["", " ", "||", " || "],
    "subExpressionType": ["", "SQL", "REGEX"],
    "pushDownFilters": _WRONG_FLAGS,
    "columns": ["", "few"],
    "propertiesMode": ["", "json"],
    "checkCrc": _WRONG_FLAGS,
    "includeDecompressed": _WRONG_FLAGS,
    "groupId": ["", "a b", "x" * 256],
    "commitOffsetsToGroup": _WRONG_FLAGS,
    "groupIdPrefix": ["", "a b", "x" * 121],
    "failOnDataLoss": _WRONG_FLAGS,
    "lossReports": ["", "on", "driver", "driver:0", "driver:65536"],
    "retiredQueues": ["", "ignore"],
    "brokerTimeout": _WRONG_DURATIONS,
    "pullBatchSize": ["0", "65537"],
    "pullMaxBytes": ["1023", str(2**23 + 1)],
    "pullsInFlight": ["0", "257"],
    "batchMessages": ["0", "1000001"],
    "batchBytes": ["65535", str(2**28 + 1)],
    "cores": ["", "0", "all"],
    "tuneWorkers": _WRONG_FLAGS,
    "topic": ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX"],
    "writeId": ["", "a b", "ö", "x" * 201],
    "sendBatchSize": ["0", "10001"],
    "sendBatchBytes": ["1023", str(2**22 + 1)],
    "maxInFlight": ["0", "1025"],
    "compression": ["", "snappy"],
    "compressFromBytes": ["-1", str(2**31)],
    "sendTimeout": _WRONG_DURATIONS,
    "topicTimeout": _WRONG_DURATIONS,
    "deadLetterTopic": ["", "a b", "SCHEDULE_TOPIC_XXXX"],
    "deadLetterPath": ["", "  "],
}  # fmt: skip

# Option -> a text that is not its default, and its value.
_RIGHT: dict[str, tuple[str, object]] = {
    "rocketmq.namesrv.addr": (" a:1, b:2;a:1 ", "a:1;b:2"),
    "rocketmq.serialize.type": ("json", Serialization.JSON),
    "rocketmq.requestTimeout": ("250", 250),
    "rocketmq.connectTimeout": ("2 s", 2000),
    "rocketmq.heartbeatInterval": ("1m", 60_000),
    "rocketmq.routeRefreshInterval": ("10S", 10_000),
    "rocketmq.maxUnpackedBodyBytes": ("1024", 1024),
    "rocketmq.accessKey": (" shop ", "shop"),
    "rocketmq.secretKey": ("open-sesame", "open-sesame"),
    "rocketmq.securityToken": ("0815", "0815"),
    "rocketmq.tls.enable": ("true", True),
    "rocketmq.tls.caFile": ("/tls/ca.pem", "/tls/ca.pem"),
    "rocketmq.tls.certFile": ("/tls/spark.pem", "/tls/spark.pem"),
    "rocketmq.tls.keyFile": ("/tls/spark.key", "/tls/spark.key"),
    "rocketmq.tls.keyPassword": ("open-sesame", "open-sesame"),
    "rocketmq.tls.serverName": ("brokers.example", "brokers.example"),
    "rocketmq.tls.verify": ("Certificate", "certificate"),
    "subscribe": (" b, a ,b", ("b", "a")),
    "assign": ('{"orders":{"b":[3]}}', (_KEY,)),
    "startingOffsets": (" Earliest", Anchor.EARLIEST),
    "startingTimestamp": ("2026-01-31T12:00:00.5+01:00", 1769857200500),
    "startingOffsetsByTimestamp": (
        '{"orders":{"b":{"3":"2026-01-31T11:00:00.5Z"}}}',
        AtTimes(QueueOffsets({_KEY: 1769857200500})),
    ),
    "startingOffsetsByTimestampStrategy": ("Error", "error"),
    "endingOffsets": (_BY_QUEUE, AtOffsets(QueueOffsets({_KEY: 7}))),
    "endingTimestamp": ("1769857200500", 1769857200500),
    "endingOffsetsByTimestamp": (_BY_QUEUE, AtTimes(QueueOffsets({_KEY: 7}))),
    "maxOffsetsPerTrigger": ("1000000", 1_000_000),
    "minOffsetsPerTrigger": ("+10", 10),
    "maxTriggerDelay": ("2h", 7_200_000),
    "minPartitions": ("16", 16),
    "maxRecordsPerPartition": ("5000", 5000),
    "packBelowRecords": ("0", 0),
    "subExpression": ("a || b", "a || b"),
    "subExpressionType": ("sql92", "SQL92"),
    "pushDownFilters": ("TRUE", True),
    "columns": ("Lean", "lean"),
    "propertiesMode": ("Raw", "raw"),
    "checkCrc": ("true", True),
    "includeDecompressed": ("false", False),
    "groupId": ("readers", "readers"),
    "cores": ("64", 64),
    "tuneWorkers": ("false", False),
    "groupIdPrefix": ("team-a", "team-a"),
    "lossReports": (" driver.example:7077", "driver.example:7077"),
    "retiredQueues": ("Fail", "fail"),
    "commitOffsetsToGroup": ("true", True),
    "failOnDataLoss": ("false", False),
    "brokerTimeout": ("1min", 60_000),
    "pullBatchSize": ("32", 32),
    "pullMaxBytes": ("262144", 262_144),
    "pullsInFlight": ("1", 1),
    "batchMessages": ("2000", 2000),
    "batchBytes": ("4194304", 4_194_304),
    "topic": ("orders", "orders"),
    "writeId": ("alerts:17", "alerts:17"),
    "sendBatchSize": ("1", 1),
    "sendBatchBytes": ("65536", 65_536),
    "maxInFlight": ("1", 1),
    "compression": ("zstd", CompressionType.ZSTD),
    "compressFromBytes": ("0", 0),
    "sendTimeout": ("10s", 10_000),
    "topicTimeout": ("1d", 86_400_000),
    "deadLetterTopic": ("dead", "dead"),
    "deadLetterPath": ("/data/dead", "/data/dead"),
}

_TLS = {"rocketmq.tls.enable": "true"}
_TLS_AND_CERTIFICATE = {**_TLS, "rocketmq.tls.certFile": "/tls/spark.pem"}
_PAIR = {"rocketmq.accessKey": "shop", "rocketmq.secretKey": "open-sesame"}
# Other options that an option requires.
_WITH = {
    "rocketmq.accessKey": _PAIR,
    "rocketmq.secretKey": _PAIR,
    "rocketmq.securityToken": _PAIR,
    "rocketmq.tls.caFile": _TLS,
    "rocketmq.tls.certFile": _TLS,
    "rocketmq.tls.keyFile": _TLS_AND_CERTIFICATE,
    "rocketmq.tls.keyPassword": _TLS_AND_CERTIFICATE,
    "rocketmq.tls.serverName": _TLS,
    "rocketmq.tls.verify": _TLS,
    "commitOffsetsToGroup": {"groupId": "readers"},
    "subExpressionType": {"subExpression": "a > 1"},
}

_OPTIONS = [(model, info) for model in (ReadOptions, WriteOptions) for info in option_infos(model)]


def _read(model: type[OptionGroup], info: OptionInfo, text: str) -> OptionGroup:
    base = {**_base(model, info), **_WITH.get(info.name, {})}
    return model.read({**base, info.name: text}, mode_of(info.only))


def _base(model: type[OptionGroup], info: OptionInfo) -> Mapping[str, str]:
    return base_for(info.name) if model is ReadOptions else {"rocketmq.namesrv.addr": "a:1"}


@each_row(
    ("model", "info", "text"),
    # An option without test cases fails here, because 'no case' is not rejected.
    [(model, info, text) for model, info in _OPTIONS for text in _WRONG.get(info.name, ["no case"])],
)
def test_invalid_value_is_rejected_with_name_value_and_allowed_values(
    model: type[OptionGroup], info: OptionInfo, text: str
) -> None:
    assert info.name in _WRONG
    with pytest.raises(OptionError) as refusal:
        _read(model, info, text)
    error = refusal.value
    if text == "group":
        assert error.option == "groupId"
        return
    assert error.option == info.name
    assert error.allowed
    if info.secret:
        _assert_shown_nowhere("sesa", error)
        return
    assert error.value == text
    if text.strip():
        assert text[:20] in str(error)


def _assert_shown_nowhere(secret: str, error: OptionError) -> None:
    assert error.value == "(not shown)"
    assert secret not in "".join(traceback.format_exception(error))


@each_row(("model", "info"), _OPTIONS)
def test_valid_value_is_parsed(model: type[OptionGroup], info: OptionInfo) -> None:
    if info.name == "subscribePattern":
        pattern = ReadOptions.for_batch({**base_for(info.name), info.name: "ord.*"}).subscribe_pattern
        assert pattern is not None
        assert pattern.pattern == "ord.*"
        return
    text, value = _RIGHT[info.name]
    read = getattr(_read(model, info, text), info.field_name)
    assert read == value
    assert type(read) is type(value)
    if not info.required:
        assert default_of(model, info) != value


def default_of(model: type[OptionGroup], info: OptionInfo) -> object:
    return next(field.default for field in fields(model) if field.name == info.field_name)


def test_every_test_case_belongs_to_an_option() -> None:
    names = {info.name for _, info in _OPTIONS}
    assert names == set(_WRONG) == {*_RIGHT, "subscribePattern"}


@each_row(("model", "info"), [(m, i) for m, i in _OPTIONS if i.only is not None])
def test_option_of_the_other_mode_is_rejected_or_logged(
    model: type[OptionGroup], info: OptionInfo, caplog: pytest.LogCaptureFixture
) -> None:
    other = Mode.BATCH if info.only is Mode.STREAM else Mode.STREAM
    text, _ = _RIGHT[info.name]
    options = {**_base(model, info), info.name: text}
    if info.in_other_mode is OtherMode.REJECTED:
        problem = f"{info.name} is .* it must be left out: it is for {model.purpose()} a"
        with pytest.raises(OptionError, match=problem):
            model.read(options, other)
        return
    read = model.read(options, other)
    default = default_of(model, info)
    assert getattr(read, info.field_name) == default
    assert f"option without effect option={info.name} mode={other.value}" in caplog.text


_json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["orders", "b", "3"]), inner),
    max_leaves=8,
).map(json.dumps)
_time_like = st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{0,15}(Z|[+-][0-9:]{0,8})?", fullmatch=True)
_edge_times = st.sampled_from(
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999999-14:00",
        "2026-W05-6T00:00:00Z",
        "00010101T000000+2359",
    ]
)
_texts = st.text(max_size=20) | _json_like | _time_like | _edge_times | st.integers().map(str)


@given(st.sampled_from(_OPTIONS), _texts)
@settings(max_examples=examples(600))
def test_any_text_is_parsed_or_rejected(option: tuple[type[OptionGroup], OptionInfo], text: str) -> None:
    model, info = option
    try:
        _read(model, info, text)
    except OptionError as error:
        assert error.option in (info.name, "groupId")
        assert len(str(error)) < 1000
