"""Columns that the sink accepts, checked on the driver before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ..errors import SchemaError

TOPIC: Final = "topic"
BODY: Final = "body"
TAGS: Final = "tags"
KEYS: Final = "keys"
PROPERTIES: Final = "properties"
BROKER_NAME: Final = "brokerName"
QUEUE_ID: Final = "queueId"
SHARDING_KEY: Final = "shardingKey"
DELAY_TIME_LEVEL: Final = "delayTimeLevel"
DELIVER_TIMESTAMP: Final = "deliverTimestamp"
ROW_ID: Final = "rowId"

_STRINGS: Final = ArrayType(StringType())
_STRING_MAP: Final = MapType(StringType(), StringType())
_TYPES: Final[Mapping[str, tuple[DataType, ...]]] = {
    TOPIC: (StringType(),),
    BODY: (BinaryType(), StringType()),
    TAGS: (StringType(),),
    KEYS: (StringType(), _STRINGS),
    PROPERTIES: (_STRING_MAP,),
    BROKER_NAME: (StringType(),),
    QUEUE_ID: (IntegerType(),),
    SHARDING_KEY: (StringType(),),
    DELAY_TIME_LEVEL: (IntegerType(),),
    DELIVER_TIMESTAMP: (TimestampType(), LongType()),
    ROW_ID: (StringType(),),
}
_EITHER_OR: Final = ((QUEUE_ID, SHARDING_KEY), (DELAY_TIME_LEVEL, DELIVER_TIMESTAMP))


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The index of each known column in a row, by name."""

    indexes: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.indexes


def sink_columns(schema: StructType, topic_option: str | None) -> SinkColumns:
    """Find the columns to write. Raises SchemaError, which names the wrong column and the allowed ones.

    Column names are compared case-insensitively, as in Spark. Without a column `topic` the option of that
    name is required; if both are given, the option wins, as in Spark's Kafka sink.
    """
    by_lower_case = {name.lower(): name for name in _TYPES}
    indexes: dict[str, int] = {}
    for index, column in enumerate(schema.fields):
        name = by_lower_case.get(column.name.lower())
        if name is None:
            raise SchemaError(
                f"column {column.name!r} is unknown to the sink: allowed are {_allowed()}; remove it with "
                "select(), or make it part of the body"
            )
        if name in indexes:
            raise SchemaError(f"column {name!r} is in the schema twice")
        if not any(_same(column.dataType, allowed) for allowed in _TYPES[name]):
            raise SchemaError(
                f"column {name!r} is of type {column.dataType.simpleString()}, but must be "
                f"{_names(_TYPES[name])}: use cast()"
            )
        indexes[name] = index
    _check_together(indexes, topic_option)
    return SinkColumns(indexes)


def _check_together(indexes: Mapping[str, int], topic_option: str | None) -> None:
    if BODY not in indexes:
        raise SchemaError(f"column {BODY!r} is missing: it holds the message, as {_names(_TYPES[BODY])}")
    if TOPIC not in indexes and topic_option is None:
        raise SchemaError("no topic: set the option topic, or add a column 'topic' of type string")
    for one, other in _EITHER_OR:
        if one in indexes and other in indexes:
            raise SchemaError(f"columns {one!r} and {other!r} exclude each other: remove one of them")
    if BROKER_NAME in indexes and QUEUE_ID not in indexes:
        raise SchemaError(
            f"column {BROKER_NAME!r} selects the broker of {QUEUE_ID!r}, but that column is missing"
        )


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types are equal, ignoring nullable flags."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same(one.keyType, other.keyType) and _same(one.valueType, other.valueType)
    # A string with a collation is accepted as a string.
    return isinstance(one, type(other))


def _names(types: tuple[DataType, ...]) -> str:
    return " or ".join(one.simpleString() for one in types)


def _allowed() -> str:
    return ", ".join(f"{name} ({_names(types)})" for name, types in _TYPES.items())
