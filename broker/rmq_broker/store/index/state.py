"""The states of the index, and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class IndexState(Enum):
    """Where a message's entries come from.

    OFF          nowhere: messageIndexEnable is false
    CATCHING_UP  the log: `put` does nothing, the catch-up will reach the message
    LIVE         `put`

    CATCHING_UP becomes LIVE when the catch-up reaches the end of the log. LIVE becomes CATCHING_UP when no
    file can take the next entries: the disk is full, or the next file has not been created yet.
    """

    OFF = "off"
    CATCHING_UP = "catching up"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """For metrics and runtime information."""

    state: IndexState
    end_offset: int
    behind_bytes: int
    files: int
    entries: int
    size_bytes: int
    failure: str | None
