"""Namespaces: applications share a cluster as if each had it alone, by a word before every name.

With the namespace `shop`, topic `orders` is `shop%orders` to brokers, and the retries of group `till` are in
`%RETRY%shop%till`. Nobody but clients knows of it. Source: Apache RocketMQ 5.3.3, NamespaceUtil.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from .names import check_group, is_of_no_namespace, split_prefix

_SEPARATOR: Final = "%"


class Namespace:
    """One namespace; the empty name is none, and changes nothing.

    Names go to brokers in full, and come to the application without the namespace. A name that is full
    already stays as it is, so that what an administrator's tool shows can be used, too.
    """

    __slots__ = ("_prefix", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._prefix = f"{name}{_SEPARATOR}"

    def wrap(self, name: str) -> str:
        """The full name of a topic or group."""
        if not self.name or not name or is_of_no_namespace(name):
            return name
        kind, rest = split_prefix(name)
        return name if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"

    def unwrap(self, name: str) -> str:
        """The name as the application knows it; that of another namespace, or of none, stays full."""
        if not self.name:
            return name
        kind, rest = split_prefix(name)
        return f"{kind}{rest[len(self._prefix) :]}" if rest.startswith(self._prefix) else name

    def has(self, name: str) -> bool:
        """Whether a full name is one of this namespace."""
        return not self.name or split_prefix(name)[1].startswith(self._prefix)

    def checked_group(self, group: str) -> str:
        """The full name of a group. Raises UsageError for one that no broker takes."""
        check_group(group)
        full = self.wrap(group)
        check_group(full)
        return full

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue by its topic's full name."""
        topic = self.wrap(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the application knows it."""
        topic = self.unwrap(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def wrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """All of them by full names."""
        return [self.wrap_queue(queue) for queue in queues]

    def unwrap_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """All of them as the application knows them."""
        return [self.unwrap_queue(queue) for queue in queues]

    def unwrap_topics(self, messages: Iterable[MessageExt]) -> None:
        """Messages on their way to the application have its name of their topic."""
        if self.name:
            for message in messages:
                message.topic = self.unwrap(message.topic)


NO_NAMESPACE: Final = Namespace("")
