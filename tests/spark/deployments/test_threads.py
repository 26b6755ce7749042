"""Reads and writes in a Python thread other than the one that created the session.

Spark's writers look up Python data sources in the session that is active in their JVM thread, and a new
thread has none. docs/spark/how-to-troubleshoot.md describes the workaround.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from tests.spark.small_cluster import SmallCluster


@pytest.mark.long
def test_read_and_write_in_another_thread(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    options = {"rocketmq.namesrv.addr": cluster.address}

    def write_and_read() -> list[bytes]:
        spark.createDataFrame([], "body string")  # makes the session the active one in this thread
        rows = spark.sql("SELECT 'from a thread' AS body")
        rows.write.format("rocketmq").options(**options, topic=topic).mode("append").save()
        reader = spark.read.format("rocketmq").options(**options, subscribe=topic)
        return [bytes(row.body) for row in reader.load().collect()]

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(write_and_read).result() == [b"from a thread"]
