"""Results of `Admin` about static topics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueuePart:
    """A part of a logical queue, which is a queue of one broker.

    `begin` is the logical offset of its first message; None while a move is not finished. `start` is the
    offset of this message in the broker's queue.
    """

    broker_name: str
    queue_id: int
    begin: int | None
    start: int = 0


@dataclass(frozen=True, slots=True)
class LogicalQueue:
    """A logical queue: `parts`, the oldest first. The last one's broker leads: it stores new messages."""

    queue_id: int
    parts: tuple[QueuePart, ...]

    @property
    def leader(self) -> str:
        """The broker that stores new messages."""
        return self.parts[-1].broker_name


@dataclass(frozen=True, slots=True)
class StaticTopic:
    """A static topic. `epoch` is the version of its mapping; each change has a higher one."""

    topic: str
    epoch: int
    queues: tuple[LogicalQueue, ...]


@dataclass(frozen=True, slots=True)
class QueueMove:
    """A logical queue that moves to another broker. `begin`: its first logical offset there, if known."""

    queue_id: int
    source: str
    target: str
    begin: int | None = None
