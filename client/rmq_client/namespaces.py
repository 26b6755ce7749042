"""Namespaces: a prefix of all names keeps the applications of one cluster apart.

With the namespace `shop`, brokers know the topic `orders` as `shop%orders`, and the retry topic of the group
`till` as `%RETRY%shop%till`. Only clients know of namespaces. Source: Apache RocketMQ 5.3.3, NamespaceUtil.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from .names import check_group, check_topic, is_of_no_namespace, split_prefix

_SEPARATOR: Final = "%"


class Namespace:
    """One namespace. The empty name is no namespace and changes nothing.

    Brokers get full names. The application gets names without the namespace. A name that is already full
    stays as it is, so that names from administration tools can be used, too.
    """

    __slots__ = ("_prefix", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._prefix = f"{name}{_SEPARATOR}"

    def wrap(self, name: str) -> str:
        """Return the full name of a topic or group."""
        if not self.name or not name or is_of_no_namespace(name):
            return name
        kind, rest = split_prefix(name)
        return name if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"

    def unwrap(self, name: str) -> str:
        """Return the name without this namespace. A name of another namespace, or of none, stays full."""
        if not self.name:
            return name
        kind, rest = split_prefix(name)
        return f"{kind}{rest[len(self._prefix) :]}" if rest.startswith(self._prefix) else name

    def has(self, name: str) -> bool:
        """Whether a full name belongs to this namespace."""
        return not self.name or split_prefix(name)[1].startswith(self._prefix)

    def checked_group(self, group: str) -> str:
        """Return the full name of a group. Raises InvalidArgumentError for a name that no broker accepts."""
        check_group(group)
        full = self.wrap(group)
        check_group(full)
        return full

    def checked_topic(self, topic: str) -> str:
        """Return the full name of a topic. Raises InvalidArgumentError for a name that no broker accepts."""
        # A group's name, and so that of its retry topic, may be longer than other topics'.
        if not isinstance(topic, str) or not split_prefix(topic)[0]:
            check_topic(topic)
        full = self.wrap(topic)
        if not split_prefix(full)[0]:
            check_topic(full)
        return full

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue with the full name of its topic."""
        topic = self.wrap(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue with the application's name of its topic."""
        topic = self.unwrap(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return all queues with full names."""
        return [self.wrap_queue(queue) for queue in queues]

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return all queues with the application's names."""
        return [self.unwrap_queue(queue) for queue in queues]

    def unwrap_topics(self, messages: Iterable[MessageExt]) -> None:
        """Set the application's name of the topic in received messages."""
        if self.name:
            for message in messages:
                message.topic = self.unwrap(message.topic)


NO_NAMESPACE: Final = Namespace("")
