"""How far a consumer is behind, queue by queue."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class ConsumerQueueLag:
    """A consumer's progress in one queue.

    `position` is the offset of the next message that the consumer processes, `end` that of the next message
    that a producer sends. `committed` is the group's offset on the broker, None without one.
    """

    queue: MessageQueue
    position: int
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        """Number of messages that the consumer has not processed. Filters count them, too."""
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """A consumer's progress in its queues."""

    queues: tuple[ConsumerQueueLag, ...]

    @property
    def total(self) -> int:
        """Number of messages that the consumer has not processed in all its queues."""
        return sum(one.lag for one in self.queues)

    def by_topic(self) -> dict[str, int]:
        """Return the number of messages by topic."""
        found: dict[str, int] = {}
        for one in self.queues:
            found[one.queue.topic] = found.get(one.queue.topic, 0) + one.lag
        return found
