"""A user's program with Spark Connect: a listener in the client has the lag of a stream on the server.

Usage: `python -m tests.spark.deployments.listener_program REMOTE NAME_SERVERS TOPIC CHECKPOINT`. It prints
the lag after the first batches, and the metrics, as JSON.
"""

from __future__ import annotations

import json
import sys

from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

from pyspark_rocketmq.lag import LagListener
from tests.support.waiting import until_in_thread

_WAIT_SECONDS = 200


def main(remote: str, name_servers: str, topic: str, checkpoint: str) -> None:
    """Run a stream until its messages are read."""
    where = {"rocketmq.namesrv.addr": name_servers, "subscribe": topic}
    spark = SparkSession.builder.remote(remote).getOrCreate()
    registry = CollectorRegistry()
    listener = LagListener(where)
    listener.publish(registry)
    spark.streams.addListener(listener)
    source = spark.readStream.format("rocketmq").options(**where, startingOffsets="earliest")
    rows = source.option("maxOffsetsPerTrigger", 100).load()
    writer = rows.writeStream.queryName("connected").format("noop").option("checkpointLocation", checkpoint)
    query = writer.start()

    def is_read() -> bool:
        lag = listener.lag("connected")
        return lag is not None and lag.messages == 0

    until_in_thread(is_read, _WAIT_SECONDS)
    lag = listener.lag("connected")
    assert lag is not None
    metrics = generate_latest(registry).decode()
    query.stop()
    until_in_thread(lambda: listener.lag("connected") is None, _WAIT_SECONDS)
    spark.streams.removeListener(listener)
    listener.close()
    print(json.dumps({"rows": lag.rows, "query": lag.name, "metrics": metrics}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
