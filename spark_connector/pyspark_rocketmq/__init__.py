"""A PySpark data source for RocketMQ: `spark.read.format("rocketmq")`.

PySpark searches all packages named `pyspark_*` for a class `DefaultSource`. If the import of one package
fails, PySpark finds no data source at all. This module therefore imports only modules that PySpark has
already loaded.
"""

from __future__ import annotations

from .source import RocketMQDataSource

DefaultSource = RocketMQDataSource

__all__ = ["DefaultSource", "RocketMQDataSource"]
