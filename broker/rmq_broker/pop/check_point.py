"""What was popped from a queue in one go, and what of it is acknowledged (PopCheckPoint)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class QueueKey(NamedTuple):
    """A group's place in a topic's queue."""

    topic: str
    group: str
    queue_id: int


class CheckPointKey(NamedTuple):
    """What an acknowledgement finds its check point by."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


@dataclass(slots=True, eq=False)
class CheckPoint:
    """Messages that are hidden until `revive_time` (ms).

    `offsets` are their places in the queue, ascending; bit n of `acked` says that the n-th is done with.
    `journal_offset` is where the check point stands in the journal. `given_back` are offsets of messages that
    have come back, which the journal does not say yet.
    """

    key: CheckPointKey
    invisible_time_ms: int
    offsets: tuple[int, ...]
    revive_queue_id: int
    acked: int = 0
    journal_offset: int = -1
    given_back: tuple[int, ...] = ()

    @property
    def queue_key(self) -> QueueKey:
        """The queue that the messages are from."""
        key = self.key
        return QueueKey(key.topic, key.group, key.queue_id)

    @property
    def revive_time(self) -> int:
        """When the messages come back that are not acknowledged by then."""
        return self.key.pop_time + self.invisible_time_ms

    @property
    def next_offset(self) -> int:
        """What follows the messages in their queue."""
        return self.offsets[-1] + 1

    @property
    def is_done(self) -> bool:
        """Whether nothing has to come back."""
        return self.acked == (1 << len(self.offsets)) - 1

    def ack(self, offset: int) -> bool:
        """Note that a message is done with; whether that is news. Raises ValueError for a stranger."""
        bit = 1 << self.offsets.index(offset)
        if self.acked & bit:
            return False
        self.acked |= bit
        return True

    def is_open(self, offset: int) -> bool:
        """Whether a message is not done with. Raises ValueError for a stranger."""
        return not self.acked >> self.offsets.index(offset) & 1

    def remaining(self) -> list[int]:
        """The offsets of the messages that are not done with."""
        return [offset for index, offset in enumerate(self.offsets) if not self.acked >> index & 1]
