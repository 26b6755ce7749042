"""The data source, called as Spark does, without a Spark session."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

import pyspark_rocketmq
from pyspark_rocketmq.batch_reader import BatchReader
from pyspark_rocketmq.columns import LEAN_COLUMNS
from pyspark_rocketmq.errors import OptionError, SchemaError
from pyspark_rocketmq.stream_reader import StreamReader

ADDRESS = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}


def source(**options: str) -> pyspark_rocketmq.RocketMQDataSource:
    return pyspark_rocketmq.RocketMQDataSource({**ADDRESS, **options})


def test_spark_finds_the_source_by_name() -> None:
    assert issubclass(pyspark_rocketmq.DefaultSource, DataSource)
    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"


def test_discovery_imports_few_modules() -> None:
    program = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_rocketmq; "
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('pyspark_rocketmq')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("mode", "kind"), [("map", "map"), ("RAW", "string"), ("none", None)])
def test_schema_depends_on_the_properties_mode(mode: str, kind: str | None) -> None:
    schema = source(propertiesMode=mode).schema()
    types = {field.name: field.dataType.typeName() for field in schema.fields}
    assert types.get("properties") == kind
    with pytest.raises(SchemaError, match=r"propertiesMode 'tuple'.*map, raw, none"):
        source(propertiesMode="tuple").schema()


def test_schema_depends_on_the_preset_of_columns() -> None:
    assert len(source().schema()) == 15
    assert source(columns=" Lean").schema().names == list(LEAN_COLUMNS)


def test_readers_survive_pickling() -> None:
    made = source(subscribe="T")
    for reader in (made.reader(made.schema()), made.streamReader(made.schema())):
        copy = cloudpickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]
        assert type(copy) in (BatchReader, StreamReader)
        assert copy._tasks == reader._tasks


@pytest.mark.parametrize("method", ["reader", "streamReader"])
def test_options_and_schema_are_checked_on_creation(method: str) -> None:
    schema = source().schema()
    with pytest.raises(OptionError, match="subscribe"):
        getattr(source(), method)(schema)
    with pytest.raises(SchemaError, match="colour"):
        getattr(source(subscribe="T"), method)(StructType().add("colour", "string"))


def test_stream_options_are_rejected_for_a_batch() -> None:
    made = source(subscribe="T", groupId="G", commitOffsetsToGroup="true")
    made.streamReader(made.schema())
    with pytest.raises(OptionError, match="commitOffsetsToGroup"):
        made.reader(made.schema())
