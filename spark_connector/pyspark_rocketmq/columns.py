"""The columns of a row: their names, their types in Spark and in Arrow, and which of them a user chose.

A schema that the user gives selects and orders columns. What Spark gets as Arrow batches has to equal its own
schema exactly, the nullable flags included (PySpark 4.3, `records_to_arrow_batches`).
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
"""What the column `properties` is: a map, the stored text, or left out."""

BODY: Final = "body"
PROPERTIES: Final = "properties"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `may_be_null` says whether a row can be without a value."""

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
_RAW_PROPERTIES: Final = Column(PROPERTIES, StringType(), pa.string())


def columns_of(properties_mode: PropertiesMode) -> dict[str, Column]:
    """All columns by name, in their order. Raises SchemaError for an unknown mode."""
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


def spark_schema(properties_mode: PropertiesMode = "map") -> StructType:
    """The schema of all columns, for who chooses none.

    What is never null is declared so: Spark then leaves out a check for each value.
    """
    return StructType(
        [
            StructField(column.name, column.spark_type, column.may_be_null)
            for column in columns_of(properties_mode).values()
        ]
    )


def check_selection(schema: StructType, properties_mode: PropertiesMode = "map") -> tuple[str, ...]:
    """The names of the columns that a user's schema selects, in its order.

    Raises SchemaError, which names column, type and what is allowed, for a column that does not exist, is of
    another type, is there twice, or may be null although the schema rules it out.
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
    """The Arrow schema of these columns, as `spark_schema`. Raises SchemaError for an unknown column."""
    known = columns_of(properties_mode)
    for name in columns:
        if name not in known:
            raise SchemaError(f"column {name!r} does not exist: {_allowed(known, properties_mode)}")
    return pa.schema(
        [pa.field(name, known[name].arrow_type, nullable=known[name].may_be_null) for name in columns]
    )


def arrow_schema_of(schema: StructType, properties_mode: PropertiesMode = "map") -> pa.Schema:
    """The Arrow schema that equals a user's schema, its nullable flags included.

    Raises SchemaError as `check_selection`.
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
        raise SchemaError(f"{shown}: it has to be of type {column.spark_type.simpleString()}{mode}")
    if column.may_be_null and not field.nullable:
        raise SchemaError(f"{shown}: not every message has {field.name}, the column has to be nullable")


def _same_type(given: DataType, ours: DataType) -> bool:
    """Whether the types are the same; no value of a map is ever null, so that flag may be either."""
    if isinstance(given, MapType) and isinstance(ours, MapType):
        return given.keyType == ours.keyType and given.valueType == ours.valueType
    return given == ours


def _allowed(known: dict[str, Column], properties_mode: PropertiesMode) -> str:
    listed = ", ".join(f"{column.name} {column.spark_type.simpleString()}" for column in known.values())
    return f"allowed with propertiesMode={properties_mode} are {listed}"
