"""The columns of a row: names, types in Spark and in Arrow, and the selection by a user's schema.

A schema given by the user selects and orders columns. Arrow batches must match Spark's schema exactly,
including the nullable flags (PySpark 4.3, `records_to_arrow_batches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .errors import SchemaError

PropertiesMode: TypeAlias = Literal["map", "raw", "none"]
"""Form of the column `properties`: a map, the text as stored, or no such column."""

ColumnsPreset: TypeAlias = Literal["all", "lean"]
"""Columns of a read without a schema: all of them, or those that Spark's Kafka source has."""

BODY: Final = "body"
PROPERTIES: Final = "properties"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `may_be_null`: whether a message can lack the value."""

    name: str
    spark_type: DataType
    arrow_type: pa.DataType
    may_be_null: bool = False


def _map_type(*, value_nullable: bool) -> pa.DataType:
    return pa.map_(
        pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=value_nullable)
    )


_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
COLUMNS: Final = (
    Column("topic", StringType(), pa.string()),
    Column("brokerName", StringType(), pa.string()),
    Column("queueId", IntegerType(), pa.int32()),
    Column("queueOffset", LongType(), pa.int64()),
    Column("msgId", StringType(), pa.string()),
    Column("offsetMsgId", StringType(), pa.string()),
    Column("keys", StringType(), pa.string(), may_be_null=True),
    Column("tags", StringType(), pa.string(), may_be_null=True),
    Column(BODY, BinaryType(), pa.binary()),
    Column(PROPERTIES, MapType(StringType(), StringType(), False), _map_type(value_nullable=False)),
    Column("bornTimestamp", TimestampType(), _TIMESTAMP),
    Column("storeTimestamp", TimestampType(), _TIMESTAMP),
    Column("bornHost", StringType(), pa.string()),
    Column("reconsumeTimes", IntegerType(), pa.int32()),
    Column("flag", IntegerType(), pa.int32()),
)
# As Spark's Kafka source without headers: key, value, topic, partition, offset, timestamp. A broker's name
# takes the place of the timestamp's type, because the queues of each broker are numbered from 0.
LEAN_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "keys", BODY, "storeTimestamp")
_RAW_PROPERTIES: Final = Column(PROPERTIES, StringType(), pa.string())


def columns_of(properties_mode: PropertiesMode) -> dict[str, Column]:
    """Return all columns by name, in order. Raises SchemaError for an unknown mode."""
    if properties_mode not in get_args(PropertiesMode):
        raise SchemaError(
            f"propertiesMode {properties_mode!r}: allowed are {', '.join(get_args(PropertiesMode))}"
        )
    columns = {column.name: column for column in COLUMNS}
    if properties_mode == "raw":
        columns[PROPERTIES] = _RAW_PROPERTIES
    elif properties_mode == "none":
        del columns[PROPERTIES]
    return columns


def spark_schema(properties_mode: PropertiesMode = "map", preset: ColumnsPreset = "all") -> StructType:
    """Return the schema of reads without a schema of their own. Raises SchemaError for an unknown preset.

    Columns that are never null are declared non-nullable, which saves Spark a check per value.
    """
    if preset not in get_args(ColumnsPreset):
        raise SchemaError(f"columns {preset!r}: allowed are {', '.join(get_args(ColumnsPreset))}")
    return StructType(
        [
            StructField(column.name, column.spark_type, column.may_be_null)
            for column in columns_of(properties_mode).values()
            if preset == "all" or column.name in LEAN_COLUMNS
        ]
    )


def check_selection(schema: StructType, properties_mode: PropertiesMode = "map") -> tuple[str, ...]:
    """Return the names of the columns that a user's schema selects, in its order.

    Raises SchemaError for a column that is unknown, has another type, appears twice, or can be null although
    the schema declares it non-nullable. The message names the column, its type and the allowed ones.
    """
    if not schema.fields:
        raise SchemaError("the schema has no columns: leave it out to read all of them")
    known = columns_of(properties_mode)
    selected: list[str] = []
    for field in schema.fields:
        _check_field(field, known, properties_mode)
        if field.name in selected:
            raise SchemaError(f"column {field.name!r} is in the schema twice")
        selected.append(field.name)
    return tuple(selected)


def arrow_schema(columns: Sequence[str], properties_mode: PropertiesMode = "map") -> pa.Schema:
    """Return the Arrow schema of these columns, matching `spark_schema`. Raises SchemaError for an unknown
    column.
    """
    known = columns_of(properties_mode)
    for name in columns:
        if name not in known:
            raise SchemaError(f"column {name!r} does not exist: {_allowed(known, properties_mode)}")
    return pa.schema(
        [pa.field(name, known[name].arrow_type, nullable=known[name].may_be_null) for name in columns]
    )


def arrow_schema_of(schema: StructType, properties_mode: PropertiesMode = "map") -> pa.Schema:
    """Return the Arrow schema that matches a user's schema, including its nullable flags.

    Raises SchemaError as `check_selection` does.
    """
    check_selection(schema, properties_mode)
    known = columns_of(properties_mode)
    fields = []
    for field in schema.fields:
        arrow_type = known[field.name].arrow_type
        if isinstance(field.dataType, MapType):
            arrow_type = _map_type(value_nullable=field.dataType.valueContainsNull)
        fields.append(pa.field(field.name, arrow_type, nullable=field.nullable))
    return pa.schema(fields)


def _check_field(field: StructField, known: dict[str, Column], properties_mode: PropertiesMode) -> None:
    shown = f"column {field.name!r} of type {field.dataType.simpleString()}"
    column = known.get(field.name)
    if column is None:
        raise SchemaError(f"{shown} does not exist: {_allowed(known, properties_mode)}")
    if not _same_type(field.dataType, column.spark_type):
        mode = f" with propertiesMode={properties_mode}" if field.name == PROPERTIES else ""
        raise SchemaError(f"{shown}: it must be of type {column.spark_type.simpleString()}{mode}")
    if column.may_be_null and not field.nullable:
        raise SchemaError(f"{shown}: not every message has {field.name}; declare the column nullable")


def _same_type(given: DataType, ours: DataType) -> bool:
    """Return whether the types are the same. Values of a map are never null, so that flag does not matter."""
    if isinstance(given, MapType) and isinstance(ours, MapType):
        return given.keyType == ours.keyType and given.valueType == ours.valueType
    return given == ours


def _allowed(known: dict[str, Column], properties_mode: PropertiesMode) -> str:
    listed = ", ".join(f"{column.name} {column.spark_type.simpleString()}" for column in known.values())
    return f"allowed with propertiesMode={properties_mode} are {listed}"
