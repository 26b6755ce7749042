"""Every Python block of README and of the connector's pages runs in a Spark session, as printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.small_cluster import SmallCluster
from tests.support.code_blocks import CodeBlock, How, python_blocks

_PROGRAMS = python_blocks(How.IN_SPARK)
_ADDRESS = "127.0.0.1:9876"
_TOPICS = ("orders", "alerts")
_ALERTS = ("'{}' AS body", "'high' AS severity", "'host-1' AS host")


@pytest.fixture(scope="module")
def address(cluster: SmallCluster) -> str:
    """The name server of a broker with messages in the topics that the pages read."""
    for topic in _TOPICS:
        cluster.create_topic(topic, queues=2)
        cluster.send(topic, 0, [b"a", b"b"], tags="paid")
    return cluster.address


@pytest.fixture
def _queries_that_end(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def _alerts(spark: SparkSession, block: CodeBlock, where: dict[str, str]) -> DataFrame:
    """Return the DataFrame that the pages on writing take for granted: a table, or a stream of messages."""
    if "writeStream" in block.text:
        orders = spark.readStream.format("rocketmq").options(**where, startingOffsets="earliest").load()
        return orders.select("body")
    return spark.sql(f"SELECT {', '.join(_ALERTS)}")


@pytest.mark.long
@pytest.mark.usefixtures("_queries_that_end")
@pytest.mark.parametrize("page", _PROGRAMS)
def test_every_block_of_the_page_runs(page: str, spark: SparkSession, address: str, tmp_path: Path) -> None:
    where = {"rocketmq.namesrv.addr": address, "subscribe": "orders"}
    sink = {"rocketmq.namesrv.addr": address, "topic": "alerts"}
    names: dict[str, Any] = {"spark": spark, "where": where, "sink": sink}
    for block in _PROGRAMS[page]:
        names["alerts"] = _alerts(spark, block, where)
        # Relative names would be below the folder that the JVM was started in.
        program = block.text.replace(_ADDRESS, address)
        program = program.replace('"checkpoint"', f'"{tmp_path}/checkpoint-{block.line}"')
        program = program.replace('f"out/', f'f"{tmp_path}/out/')
        exec(compile(program, block.name, "exec"), names)
        for query in spark.streams.active:
            query.processAllAvailable()
            assert query.exception() is None, block.name
