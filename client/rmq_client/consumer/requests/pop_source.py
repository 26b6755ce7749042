"""Sources of POP: the queues that one pop request names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmq_remoting.message_queue import MessageQueue

# All queues of the topic on a broker.
ANY_QUEUE: Final = -1


@dataclass(frozen=True, slots=True)
class PopSource:
    """The queues to pop: all queues of a topic on one broker, or one of them."""

    topic: str
    broker_name: str
    queue_id: int = ANY_QUEUE

    @property
    def queue(self) -> MessageQueue:
        """The source as a queue."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)
