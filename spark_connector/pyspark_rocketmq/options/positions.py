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
    """The first message of every queue stored at a time or later, in milliseconds since 1970 UTC.

    `must_exist`: a queue without such a message is an error; otherwise its position is the end of the queue.
    """

    timestamp_ms: int
    must_exist: bool = False


@dataclass(frozen=True, slots=True)
class AtTimes:
    """As AtTime, with a time for each queue."""

    timestamps_ms: QueueOffsets
    must_exist: bool = False


Position: TypeAlias = Anchor | AtOffsets | AtTime | AtTimes
