"""A PySpark data source for RocketMQ: `spark.read.format("rocketmq")`.

PySpark looks through all packages named `pyspark_*` for a `DefaultSource`, and gives up on all of them where
one cannot be imported: so nothing is imported here but what PySpark itself has loaded by then.
"""

from __future__ import annotations

from .source import RocketMQDataSource

DefaultSource = RocketMQDataSource

__all__ = ["DefaultSource", "RocketMQDataSource"]
