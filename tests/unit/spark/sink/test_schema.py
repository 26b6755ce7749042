"""Columns that the sink accepts, and the errors for others."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.sink.schema import sink_columns
from tests.support.rows import each_row

_STRING = StringType()


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_in_any_order_and_case() -> None:
    schema = _schema(
        BODY=BinaryType(),
        Topic=_STRING,
        tags=_STRING,
        keys=ArrayType(_STRING),
        properties=MapType(_STRING, _STRING, False),
        brokername=_STRING,
        queueId=IntegerType(),
        deliverTimestamp=TimestampType(),
    )
    assert sink_columns(schema, None).indexes == {
        "body": 0,
        "topic": 1,
        "tags": 2,
        "keys": 3,
        "properties": 4,
        "brokerName": 5,
        "queueId": 6,
        "deliverTimestamp": 7,
    }


@pytest.mark.parametrize("kind", [BinaryType(), _STRING])
def test_body_may_be_binary_or_string_and_is_the_only_required_column(kind: DataType) -> None:
    assert sink_columns(_schema(body=kind), "T").indexes == {"body": 0}


@each_row(
    ("columns", "said"),
    [
        ({"body": _STRING, "colour": _STRING}, "'colour' is unknown.*deliverTimestamp"),
        ({"body": IntegerType()}, "'body' is of type int, but must be binary or string"),
        ({"body": _STRING, "keys": ArrayType(IntegerType())}, "'keys' is of type array<int>"),
        ({"body": _STRING, "properties": MapType(_STRING, LongType())}, "but must be map<string,string>"),
        ({"body": _STRING, "queueId": LongType()}, "'queueId' is of type bigint, but must be int"),
        ({"body": _STRING, "deliverTimestamp": TimestampNTZType()}, "timestamp_ntz, but must be timestamp"),
        ({"tags": _STRING}, "'body' is missing"),
        ({"body": _STRING, "Body": _STRING}, "'body' is in the schema twice"),
        ({"body": _STRING, "queueId": IntegerType(), "shardingKey": _STRING}, "exclude each other"),
        ({"body": _STRING, "delayTimeLevel": IntegerType(), "deliverTimestamp": LongType()}, "exclude"),
        ({"body": _STRING, "brokerName": _STRING}, "'queueId', but that column is missing"),
    ],
)
def test_unwritable_columns_are_rejected(columns: dict[str, DataType], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        sink_columns(_schema(**columns), "T")


def test_topic_is_required_as_option_or_column() -> None:
    with pytest.raises(SchemaError, match="option topic, or add a column 'topic'"):
        sink_columns(_schema(body=_STRING), None)
