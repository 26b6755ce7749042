"""What Spark does not offer to Python sources, so that the pages that say so are corrected when it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq.spark_versions import VERSION
from tests.spark.small_cluster import SmallCluster

_HAS_REAL_TIME = tuple(map(int, VERSION.split(".")[:2])) >= (4, 2)


@pytest.fixture
def stream(spark: SparkSession, cluster: SmallCluster, topic: str) -> DataFrame:
    cluster.create_topic(topic, queues=1)
    options = {"rocketmq.namesrv.addr": cluster.address, "subscribe": topic}
    return spark.readStream.format("rocketmq").schema("body binary").options(**options).load()


@pytest.mark.long
@pytest.mark.parametrize(
    "trigger",
    [
        {"continuous": "1 second"},
        pytest.param(
            {"realTime": "5 seconds"},
            marks=pytest.mark.skipif(not _HAS_REAL_TIME, reason=f"not in PySpark {VERSION}"),
        ),
    ],
)
def test_triggers_without_batches_are_refused(
    stream: DataFrame, trigger: dict[str, Any], tmp_path: Path
) -> None:
    writer = stream.writeStream.format("console").outputMode("update").trigger(**trigger)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException) as refusal:
        query = writer.start()
        try:
            query.awaitTermination(30)
        finally:
            query.stop()
    assert any(word in str(refusal.value).upper() for word in ("CONTINUOUS", "REAL-TIME", "REAL_TIME"))


@pytest.mark.long
def test_views_keep_options_and_tables_lose_them(
    spark: SparkSession, cluster: SmallCluster, topic: str
) -> None:
    cluster.create_topic(topic, queues=1)
    cluster.send(topic, 0, [b"in a view"])
    options = f"OPTIONS (`rocketmq.namesrv.addr` '{cluster.address}', subscribe '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW view_{topic} USING rocketmq {options}")
    try:
        rows = spark.sql(f"SELECT CAST(body AS STRING) AS body FROM view_{topic}").collect()
        assert [row.body for row in rows] == ["in a view"]
        with pytest.raises((AnalysisException, PySparkException), match=r"rocketmq\.namesrv\.addr"):
            spark.sql(f"CREATE TABLE table_{topic} USING rocketmq {options}")
            spark.sql(f"SELECT * FROM table_{topic}").collect()
    finally:
        spark.sql(f"DROP VIEW IF EXISTS view_{topic}")
        spark.sql(f"DROP TABLE IF EXISTS table_{topic}")
