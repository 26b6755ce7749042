"""Typed headers: names, requirements and defaults equal Apache's."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting import headers
from rmq_remoting.errors import HeaderError
from rmq_remoting.headers.base import Header
from rmq_remoting.headers.client import ConsumeMessageDirectlyResultRequestHeader
from rmq_remoting.headers.consumer import GetConsumeStatsInBrokerHeader
from rmq_remoting.headers.namesrv import RegisterBrokerRequestHeader
from rmq_remoting.headers.offsets import (
    BoundaryType,
    GetMaxOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_remoting.headers.rpc import RpcHeader, TopicHeader
from rmq_remoting.headers.topic import CreateTopicRequestHeader
from rmq_remoting.integers import Int32, Int64
from tests.support.golden import json_file
from tests.support.rows import each_row

GOLDEN = {name: row for name, row in json_file("protocol/headers.json").items() if not name.startswith("_")}

# Values in Apache's raft log between its controllers: no client or broker ever sees them.
RAFT_LOG_PACKAGE = "org.apache.rocketmq.controller.impl.task"
# They travel with every message and have codecs of their own (send.py, pull.py, pop.py, transaction_end.py).
HOT = {
    "AckMessageRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeInvisibleTimeResponseHeader",
    "EndTransactionRequestHeader",
    "PopMessageRequestHeader",
    "PopMessageResponseHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
}
BASES = {"RpcRequestHeader", "TopicRequestHeader", "TopicQueueRequestHeader"}
# Apache's default is the time at which the header is made; here the caller passes the time in.
TIME_OF_MAKING = "invokeTime"

JAVA_TYPES: dict[object, set[str]] = {
    str: {"String"},
    bool: {"boolean", "Boolean"},
    Int32: {"int", "Integer"},
    Int64: {"long", "Long"},
    BoundaryType: {"BoundaryType"},
}


def _classes() -> dict[str, type[Header]]:
    modules = [
        importlib.import_module(f"rmq_remoting.headers.{module.name}")
        for module in pkgutil.iter_modules(headers.__path__)
    ]
    return {
        name: value
        for module in modules
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Header) and value not in (Header, RpcHeader, TopicHeader)
    }


CLASSES = _classes()
MODELLED = {
    name: row
    for name, row in GOLDEN.items()
    if row["package"] != RAFT_LOG_PACKAGE and name not in HOT and name not in BASES
}


def _sample(java_type: str) -> str:
    return {"String": "text", "boolean": "true", "Boolean": "true", "BoundaryType": "UPPER"}.get(
        java_type, "7"
    )


def test_every_header_is_modelled_and_no_other() -> None:
    assert set(CLASSES) == set(MODELLED)


@each_row("name", sorted(MODELLED))
def test_wire_names_are_apaches(name: str) -> None:
    assert sorted(field.alias or "" for field in CLASSES[name].model_fields.values()) == sorted(
        field["name"] for field in MODELLED[name]["fields"]
    )


@each_row("name", sorted(MODELLED))
def test_types_requirements_and_defaults_are_apaches(name: str) -> None:
    hints = typing.get_type_hints(CLASSES[name], include_extras=True)
    fields = {field.alias: (hints[own], field) for own, field in CLASSES[name].model_fields.items()}
    for golden in MODELLED[name]["fields"]:
        hint, field = fields[golden["name"]]
        java_types, optional = _java_types(hint)
        assert golden["type"] in java_types, golden
        # A required field with a value of its own: see rpc.py.
        assert field.is_required() == (golden["required"] and "default" not in golden), golden
        assert optional == (not golden["required"] and "default" not in golden), golden
        if not field.is_required() and golden["name"] != TIME_OF_MAKING:
            assert field.default == golden.get("default"), golden


def _java_types(hint: Any) -> tuple[set[str], bool]:
    """The Java types that a field's type stands for, and whether it may be absent."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        one, none = typing.get_args(hint)
        assert none is type(None)
        return _java_types(one)[0], True
    if hint in JAVA_TYPES:
        return JAVA_TYPES[hint], False
    return JAVA_TYPES[typing.get_args(hint)[0]], False


@each_row("name", sorted(MODELLED))
def test_every_field_is_decoded_and_encoded(name: str) -> None:
    ext_fields = {field["name"]: _sample(field["type"]) for field in MODELLED[name]["fields"]}
    header = CLASSES[name].decode({**ext_fields, "unknown": "x"})
    assert header.encode() == ext_fields
    assert CLASSES[name].decode(header.encode()) == header


@each_row("name", sorted(MODELLED))
def test_a_missing_field_is_named(name: str) -> None:
    ext_fields = {field["name"]: _sample(field["type"]) for field in MODELLED[name]["fields"]}
    for field in MODELLED[name]["fields"]:
        rest = {key: value for key, value in ext_fields.items() if key != field["name"]}
        if field["required"] and "default" not in field:
            with pytest.raises(HeaderError, match=f"^{name}: {field['name']}: Field required$"):
                CLASSES[name].decode(rest)
        else:
            assert field.get("default") is not None or CLASSES[name].decode(rest).encode() == rest


@each_row("name", sorted(MODELLED))
def test_a_bad_value_is_named(name: str) -> None:
    ext_fields = {field["name"]: _sample(field["type"]) for field in MODELLED[name]["fields"]}
    for field in MODELLED[name]["fields"]:
        if field["type"] not in ("String", "BoundaryType"):
            with pytest.raises(HeaderError, match=rf"^{name}: {field['name']}: .*\(got 'no number'\)$"):
                CLASSES[name].decode({**ext_fields, field["name"]: "no number"})


@given(
    st.sampled_from(sorted(CLASSES)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.dictionaries(
                st.sampled_from([field["name"] for field in MODELLED[name]["fields"]] or ["x"]), st.text()
            ),
        )
    )
)
def test_random_fields_are_decoded_or_refused(case: tuple[str, dict[str, str]]) -> None:
    name, ext_fields = case
    try:
        header = CLASSES[name].decode(ext_fields)
    except HeaderError as error:
        assert str(error).startswith(f"{name}: ")
    else:
        assert CLASSES[name].decode(header.encode()) == header


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        (GetMaxOffsetRequestHeader, "queueId", "2147483648"),
        (GetMaxOffsetRequestHeader, "queueId", "-2147483649"),
        (ResetOffsetRequestHeader, "timestamp", "9223372036854775808"),
    ],
)
def test_numbers_must_fit_java_types(header: type[Header], field: str, value: str) -> None:
    with pytest.raises(HeaderError, match=rf"{field}: .*\(got '{value}'\)"):
        header.decode({"topic": "T", "group": "g", "queueId": "0", field: value})


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("lower", BoundaryType.LOWER),
        ("?", BoundaryType.LOWER),
    ],
)
def test_boundary_types_are_decoded_in_any_case(text: str, boundary: BoundaryType) -> None:
    header = SearchOffsetRequestHeader.decode(
        {"topic": "T", "queueId": "1", "timestamp": "5", "boundaryType": text}
    )
    assert header.boundary_type is boundary
    assert header.encode()["boundaryType"] == boundary.value


def test_absent_values_are_left_out_and_booleans_are_words() -> None:
    header = CreateTopicRequestHeader(
        default_topic="TBW102",
        order=True,
        perm=6,
        read_queue_nums=8,
        topic="T",
        topic_filter_type="SINGLE_TAG",
        write_queue_nums=8,
    )
    assert header.encode() == {
        "defaultTopic": "TBW102",
        "force": "false",
        "order": "true",
        "perm": "6",
        "readQueueNums": "8",
        "topic": "T",
        "topicFilterType": "SINGLE_TAG",
        "writeQueueNums": "8",
    }


def test_the_common_fields_have_readable_names() -> None:
    ext_fields: dict[str, Any] = {
        "bname": "broker-a",
        "brokerName": "broker-b",
        "consumerGroup": "g",
        "lo": "true",
        "ns": "n",
        "nsd": "false",
        "oway": "true",
    }
    header = ConsumeMessageDirectlyResultRequestHeader.decode(ext_fields)
    assert (header.broker_name, header.stored_broker_name) == ("broker-a", "broker-b")
    assert (header.logical, header.namespace, header.namespaced, header.oneway) == (True, "n", False, True)


def test_defaults_of_apache() -> None:
    assert GetConsumeStatsInBrokerHeader.decode({}).order is False
    assert ResetOffsetRequestHeader.decode({"topic": "T", "group": "g"}).queue_id == -1
    registration = RegisterBrokerRequestHeader(
        broker_addr="a", broker_id=0, broker_name="b", cluster_name="c", ha_server_addr="h"
    )
    assert registration.encode()["bodyCrc32"] == "0"
    offset = UpdateConsumerOffsetRequestHeader(commit_offset=5, consumer_group="g", queue_id=1, topic="T")
    assert offset.encode() == {"commitOffset": "5", "consumerGroup": "g", "queueId": "1", "topic": "T"}
