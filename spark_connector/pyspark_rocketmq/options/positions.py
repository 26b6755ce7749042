"""Positions where reading starts or ends, as given by options. The driver resolves them to offsets."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from ..offsets import QueueOffsets


class Anchor(enum.StrEnum):
    """A position that every queue has."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"  # the committed offset of the consumer group


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each queue, which may be EARLIEST or LATEST."""

    offsets: QueueOffsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message of every queue stored at a time or later, in milliseconds since 1970 UTC."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """As AtTime, with a time for each queue."""

    timestamps_ms: QueueOffsets


Position: TypeAlias = Anchor | AtOffsets | AtTime | AtTimes
