"""A user's program with Spark Connect: a listener in the client has the lag of a stream on the server.

Usage: `python -m tests.spark.deployments.listener_program REMOTE CHECKPOINT OPTIONS`. OPTIONS is JSON with
the options of the stream. It prints the lag and the metrics as JSON, after the first batch and at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.lag import LagListener, QueryLag
from tests.support.waiting import until_in_thread

_WAIT_SECONDS = 200
_NAME = "connected"


def main(remote: str, checkpoint: str, given: str) -> None:
    """Read one batch, then the rest in a second run of the query."""
    options = json.loads(given)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    registry = CollectorRegistry()
    source = {name: options[name] for name in ("rocketmq.namesrv.addr", "subscribe")}
    listener = LagListener(source)
    listener.publish(registry, per_queue=True)
    spark.streams.addListener(listener)

    def started(trigger: dict[str, Any]) -> StreamingQuery:
        rows = spark.readStream.format("rocketmq").options(**options).load()
        writer = rows.writeStream.queryName(_NAME).format("noop").option("checkpointLocation", checkpoint)
        return writer.trigger(**trigger).start()

    def reported(condition: Callable[[QueryLag], bool]) -> dict[str, Any]:
        """Wait until the lag meets a condition, and return it with the metrics."""

        def is_met() -> bool:
            lag = listener.lag(_NAME)
            return lag is not None and condition(lag)

        until_in_thread(is_met, _WAIT_SECONDS)
        lag = listener.lag(_NAME)
        assert lag is not None
        return {
            "rows": lag.rows,
            "messages": lag.messages,
            "seconds": lag.seconds,
            "lost": lag.lost_messages,
            "ranges": [loss.ranges for loss in lag.losses],
            "metrics": generate_latest(registry).decode(),
        }

    def stop(query: StreamingQuery) -> None:
        query.stop()
        until_in_thread(lambda: listener.lag(_NAME) is None, _WAIT_SECONDS)

    query = started({"processingTime": "1 hour"})
    # The listener asks the broker for the store time of the oldest unread message.
    first = reported(lambda lag: not lag.at_least)
    stop(query)
    query = started({"processingTime": "0 seconds"})
    last = reported(lambda lag: lag.messages == 0)
    stop(query)
    spark.streams.removeListener(listener)
    listener.close()
    print(json.dumps({"first": first, "last": last}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
