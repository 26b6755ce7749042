"""Lag of streaming queries: a listener for `spark.streams.addListener`, and gauges for Prometheus."""

from __future__ import annotations

from .listener import LagListener
from .reports import QueryLag, QueueLag, TopicLag

__all__ = ["LagListener", "QueryLag", "QueueLag", "TopicLag"]
