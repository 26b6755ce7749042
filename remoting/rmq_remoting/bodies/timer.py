"""Numbers of scheduled messages that wait on a broker."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int64
from .base import Body
from .topic import DataVersion


class TimerMetric(Body):
    """The number for one topic, and the time of its last change (ms)."""

    count: Int64 = 0
    timestamp_ms: Int64 = Field(default=0, alias="timeStamp")


class TimerMetricsSerializeWrapper(Body):
    """The numbers by topic: a broker's file `timermetrics`."""

    data_version: DataVersion | None = None
    timing_count: dict[str, TimerMetric] = Field(default_factory=dict)
