"""Check points: the messages of one pop from one queue (Apache RocketMQ 5.3.3, PopCheckPoint)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

# Takes half of the time of `QueueKey(...)` or less, which calls a Python function first.
_new_tuple: Final = tuple.__new__


class QueueKey(NamedTuple):
    """A queue of a topic, as one group consumes it."""

    topic: str
    group: str
    queue_id: int


class CheckPointKey(NamedTuple):
    """Identifies a check point, and begins with the values of its queue's key.

    An acknowledgement carries the same values in its receipt.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


@dataclass(slots=True, eq=False)
class CheckPoint:
    """Messages that are invisible until `revive_time` (ms since 1970 UTC).

    `offsets` are the messages' offsets in their queue, ascending. Bit n of `acked` is set once the n-th
    message is acknowledged or redelivered; until then the message is open. `journal_offset` is the check
    point's offset in the journal. `redelivered` are offsets of redelivered messages that the journal does not
    list yet.
    """

    key: CheckPointKey
    invisible_time_ms: int
    offsets: tuple[int, ...]
    revive_queue_id: int
    acked: int = 0
    journal_offset: int = -1
    redelivered: tuple[int, ...] = ()

    @property
    def queue_key(self) -> QueueKey:
        """The queue that the messages were popped from."""
        return _new_tuple(QueueKey, self.key[:3])

    @property
    def revive_time(self) -> int:
        """When open messages become visible again, in ms since 1970 UTC."""
        return self.key.pop_time + self.invisible_time_ms

    @property
    def next_offset(self) -> int:
        """The offset behind the last message."""
        return self.offsets[-1] + 1

    @property
    def is_complete(self) -> bool:
        """Whether no message is open."""
        return self.acked == (1 << len(self.offsets)) - 1

    def ack(self, offset: int) -> bool:
        """Close a message; tell whether it was open. Raises ValueError for an offset of no message."""
        bit = 1 << self.offsets.index(offset)
        if self.acked & bit:
            return False
        self.acked |= bit
        return True

    def is_open(self, offset: int) -> bool:
        """Tell whether a message is open. Raises ValueError for an offset of no message."""
        return not self.acked >> self.offsets.index(offset) & 1

    def open_offsets(self) -> list[int]:
        """Return the offsets of the open messages."""
        return [offset for index, offset in enumerate(self.offsets) if not self.acked >> index & 1]
