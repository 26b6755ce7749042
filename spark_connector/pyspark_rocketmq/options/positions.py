"""Where reading starts and ends, as options say it; what offsets that is, only the brokers know."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from ..offsets import QueueOffsets


class Anchor(enum.StrEnum):
    """A place that every queue has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"  # what the consumer group has committed


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each queue, among them EARLIEST and LATEST."""

    offsets: QueueOffsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """In every queue, the first message that was stored at that time or later. Milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each queue, in milliseconds since 1970."""

    timestamps_ms: QueueOffsets


Position: TypeAlias = Anchor | AtOffsets | AtTime | AtTimes
