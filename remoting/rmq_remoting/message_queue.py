"""One queue of a topic on one broker."""

from __future__ import annotations

from dataclasses import dataclass

from .java_hash import string_hash_code


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """A queue: a value that can be a dictionary key and has an order.

    The order is that which all clients of a group share, so that they divide queues alike
    (Apache RocketMQ 5.3.3, MessageQueue.compareTo): by topic, broker name and queue id, texts by UTF-16 code
    units.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __lt__(self, other: MessageQueue) -> bool:
        return _sort_key(self) < _sort_key(other)

    def __le__(self, other: MessageQueue) -> bool:
        return _sort_key(self) <= _sort_key(other)

    def __gt__(self, other: MessageQueue) -> bool:
        return _sort_key(self) > _sort_key(other)

    def __ge__(self, other: MessageQueue) -> bool:
        return _sort_key(self) >= _sort_key(other)

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    def java_hash_code(self) -> int:
        """Java's `hashCode` of this queue, a signed 32 bit integer."""
        total = (31 + string_hash_code(self.broker_name)) * 31 + self.queue_id
        total = (total * 31 + string_hash_code(self.topic)) & 0xFFFFFFFF
        return total - 0x100000000 if total & 0x80000000 else total

    def to_wire(self) -> dict[str, object]:
        """The members of its JSON form, which also stands as a map key."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}


def _sort_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Java compares strings by UTF-16 code units."""
    return (
        queue.topic.encode("utf-16-be", "surrogatepass"),
        queue.broker_name.encode("utf-16-be", "surrogatepass"),
        queue.queue_id,
    )
