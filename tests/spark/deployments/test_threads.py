"""Reading and writing in another Python thread than the one that made the session.

Writers of Spark look for Python data sources in the session that is active in their thread of the JVM, and a
new thread has none: docs/spark.md says what to do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from tests.spark.small_cluster import SmallCluster


def test_another_thread_writes_and_reads(spark: SparkSession, cluster: SmallCluster, topic: str) -> None:
    cluster.create_topic(topic, queues=1)
    options = {"rocketmq.namesrv.addr": cluster.address}

    def write_and_read() -> list[bytes]:
        spark.createDataFrame([], "body string")  # makes the session the active one here
        rows = spark.sql("SELECT 'from a thread' AS body")
        rows.write.format("rocketmq").options(**options, topic=topic).mode("append").save()
        reader = spark.read.format("rocketmq").options(**options, subscribe=topic)
        return [bytes(row.body) for row in reader.load().collect()]

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(write_and_read).result() == [b"from a thread"]
