"""Columns: their types in Spark and Arrow, and the selection by a user's schema."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.columns import (
    LEAN_COLUMNS,
    PropertiesMode,
    arrow_schema,
    arrow_schema_of,
    check_selection,
    columns_of,
    spark_schema,
)
from pyspark_rocketmq.errors import SchemaError
from tests.unit.spark.spark_arrow import to_arrow_schema


def schema(*fields: StructField) -> StructType:
    return StructType(list(fields))


class TestAllColumns:
    def test_names_and_types(self) -> None:
        assert spark_schema().simpleString() == (
            "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,msgId:string,"
            "offsetMsgId:string,keys:string,tags:string,body:binary,properties:map<string,string>,"
            "bornTimestamp:timestamp,storeTimestamp:timestamp,bornHost:string,reconsumeTimes:int,flag:int>"
        )

    def test_properties_by_mode(self) -> None:
        assert spark_schema("raw")["properties"].dataType == StringType()
        assert spark_schema("raw").names == spark_schema("map").names
        assert spark_schema("none").names == [name for name in spark_schema().names if name != "properties"]

    @pytest.mark.parametrize("mode", ["map", "raw", "none"])
    def test_arrow_schema_equals_the_one_spark_expects(self, mode: PropertiesMode) -> None:
        expected = to_arrow_schema(spark_schema(mode))
        assert arrow_schema(list(columns_of(mode)), mode).equals(expected)
        assert arrow_schema_of(spark_schema(mode), mode).equals(expected)

    def test_only_keys_and_tags_may_be_null(self) -> None:
        nullable = [field.name for field in spark_schema().fields if field.nullable]
        assert nullable == ["keys", "tags"]
        assert spark_schema()["properties"].dataType == MapType(StringType(), StringType(), False)

    def test_lean_preset_has_the_columns_of_the_kafka_source(self) -> None:
        assert spark_schema(preset="lean").simpleString() == (
            "struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint,keys:string,body:binary,"
            "storeTimestamp:timestamp>"
        )
        assert arrow_schema_of(spark_schema("raw", "lean"), "raw").names == list(LEAN_COLUMNS)

    def test_unknown_preset(self) -> None:
        with pytest.raises(SchemaError, match="columns 'few': allowed are all, lean"):
            spark_schema("map", "few")  # type: ignore[arg-type]

    def test_unknown_mode(self) -> None:
        with pytest.raises(SchemaError, match="propertiesMode 'json': allowed are map, raw, none"):
            columns_of("json")  # type: ignore[arg-type]


class TestSelection:
    def test_selects_and_orders(self) -> None:
        chosen = schema(StructField("body", BinaryType()), StructField("topic", StringType()))
        assert check_selection(chosen) == ("body", "topic")
        assert arrow_schema_of(chosen).equals(to_arrow_schema(chosen))

    def test_nullable_flags_of_the_user_are_kept(self) -> None:
        chosen = schema(
            StructField("properties", MapType(StringType(), StringType(), False), False),
            StructField("bornTimestamp", TimestampType(), False),
        )
        assert arrow_schema_of(chosen).equals(to_arrow_schema(chosen))

    @pytest.mark.parametrize("name", ["keys", "tags"])
    def test_column_that_can_be_null_must_be_nullable(self, name: str) -> None:
        with pytest.raises(SchemaError, match=f"'{name}' of type string: not every message has {name}"):
            check_selection(schema(StructField(name, StringType(), False)))

    def test_unknown_column(self) -> None:
        with pytest.raises(SchemaError, match=r"'Body' of type binary does not exist: .* body binary,"):
            check_selection(schema(StructField("Body", BinaryType())))

    def test_wrong_type(self) -> None:
        with pytest.raises(SchemaError, match="'queueId' of type bigint: it must be of type int"):
            check_selection(schema(StructField("queueId", LongType())))

    def test_type_of_properties_depends_on_the_mode(self) -> None:
        chosen = schema(StructField("properties", StringType()))
        assert check_selection(chosen, "raw") == ("properties",)
        with pytest.raises(SchemaError, match=r"of type map<string,string> with propertiesMode=map"):
            check_selection(chosen)
        with pytest.raises(SchemaError, match="does not exist: allowed with propertiesMode=none"):
            check_selection(chosen, "none")

    def test_map_with_wrong_types(self) -> None:
        chosen = schema(StructField("properties", MapType(StringType(), BinaryType())))
        with pytest.raises(SchemaError, match="map<string,binary>: it must be of type map<string,string>"):
            check_selection(chosen)

    def test_duplicate_column(self) -> None:
        with pytest.raises(SchemaError, match="'body' is in the schema twice"):
            check_selection(schema(StructField("body", BinaryType()), StructField("body", BinaryType())))

    def test_no_columns(self) -> None:
        with pytest.raises(SchemaError, match="no columns"):
            check_selection(StructType([]))
