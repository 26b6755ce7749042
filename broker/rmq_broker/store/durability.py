"""Durability of a message when the wait for it ends."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final


class Durability(Enum):
    """Durability of a message when the wait of its sender ends.

    DURABLE            on disk with SYNC_FLUSH, and on enough replicas with SYNC_MASTER
    FLUSH_TIMED_OUT    the flush is still running: the message may be on disk later
    FLUSH_FAILED       the flush failed: the message may be on disk or not
    REPLICA_TIMED_OUT  too few replicas acknowledged the message in time
    NO_REPLICA         too few replicas are connected and in sync: this broker alone has the message
    """

    DURABLE = "durable"
    FLUSH_TIMED_OUT = "flush timed out"
    FLUSH_FAILED = "flush failed"
    REPLICA_TIMED_OUT = "replica timed out"
    NO_REPLICA = "no replica in sync"


# Called once, on the event loop, when a wait ends.
DurabilityListener = Callable[[Durability], None]


class BothDurable:
    """Joins the two waits of a message: for its flush, and for its replicas.

    The listener is called when the second wait ends. The worse result counts: a failed flush before missing
    replicas, those before a late flush (Apache RocketMQ 5.3.3, CommitLog.handleDiskFlushAndHA).
    """

    __slots__ = ("_first", "_listener")

    def __init__(self, listener: DurabilityListener) -> None:
        self._listener = listener
        self._first: Durability | None = None

    def __call__(self, durability: Durability) -> None:
        """Take the result of one of the two waits."""
        first = self._first
        if first is None:
            self._first = durability
        else:
            self._listener(first if _RANKS[first] >= _RANKS[durability] else durability)


_RANKS: Final = {
    Durability.DURABLE: 0,
    Durability.FLUSH_TIMED_OUT: 1,
    Durability.REPLICA_TIMED_OUT: 2,
    Durability.NO_REPLICA: 3,
    Durability.FLUSH_FAILED: 4,
}
