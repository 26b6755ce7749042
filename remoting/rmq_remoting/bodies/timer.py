"""How many timed messages wait on a broker."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int64
from .base import Body
from .topic import DataVersion


class TimerMetric(Body):
    """Of one topic, and when that changed last (ms)."""

    count: Int64 = 0
    timestamp_ms: Int64 = Field(default=0, alias="timeStamp")


class TimerMetricsSerializeWrapper(Body):
    """By topic; a broker's `timermetrics`."""

    data_version: DataVersion | None = None
    timing_count: dict[str, TimerMetric] = Field(default_factory=dict)
