"""One queue of a topic on one broker."""

from __future__ import annotations

from dataclasses import dataclass

from .java_hash import string_hash_code


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """A queue: a hashable value with an order.

    All clients of a group must share the order, because each of them computes the assignment of queues: by
    topic, broker name and queue id, texts by UTF-16 code units (Apache RocketMQ 5.3.3,
    MessageQueue.compareTo).
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
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"

    def java_text(self) -> str:
        """Return the text that Java's `toString` gives, the input of consistent hashing."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    def java_hash_code(self) -> int:
        """Return Java's `hashCode` of the queue, a signed 32 bit integer."""
        total = (31 + string_hash_code(self.broker_name)) * 31 + self.queue_id
        total = (total * 31 + string_hash_code(self.topic)) & 0xFFFFFFFF
        return total - 0x100000000 if total & 0x80000000 else total

    def to_wire(self) -> dict[str, object]:
        """Return the members of the queue's JSON form, which is also used as a map key."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}


def java_order(text: str) -> bytes:
    """Return the key to sort texts by as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _sort_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id
