"""Producers and consumers of this client, and the groups that they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Protocol

from rmq_remoting.message import MessageExt
from rmq_remoting.message_queue import MessageQueue

from ..errors import UsageError

if TYPE_CHECKING:
    from rmq_remoting.bodies.heartbeat import ConsumerData, HeartbeatData
    from rmq_remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo


class ConsumerMember(Protocol):
    """A consumer as brokers and administrators see it. All methods are called on the network loop."""

    @property
    def group(self) -> str:
        """The consumer group."""

    def heartbeat_data(self) -> ConsumerData:
        """Return the consumer's mode and subscriptions."""

    def rebalance_soon(self) -> None:
        """Rebalance soon, because the group or a topic has changed."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets, by an administrator's order."""

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumed offset of each of its queues of the topic."""

    def running_info(self) -> ConsumerRunningInfo:
        """Return the state of the consumer for administrators."""

    def consume_directly(self, message: MessageExt) -> Awaitable[ConsumeMessageDirectlyResult]:
        """Pass this one message to the listener, apart from all queues."""


class Members:
    """The producers and consumers of one client instance. Belongs to the network loop."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.consumers: dict[str, ConsumerMember] = {}
        self._producers: Counter[str] = Counter()

    def add_producer(self, group: str) -> None:
        """Add a producer of the group."""
        self._producers[group] += 1

    def remove_producer(self, group: str) -> bool:
        """Remove a producer; whether it was the last one of the group."""
        self._producers[group] -= 1
        if self._producers[group] > 0:
            return False
        del self._producers[group]
        return True

    def add_consumer(self, member: ConsumerMember) -> None:
        """Add a consumer. Raises UsageError if this client already has one of its group."""
        if member.group in self.consumers:
            raise UsageError(
                f"group {member.group} already has a consumer in this process: raise its number of workers, "
                "or use a client of its own with settings=ClientSettings(instance_name='second')"
            )
        self.consumers[member.group] = member

    def remove_consumer(self, member: ConsumerMember) -> bool:
        """Remove a consumer; whether it was there."""
        if self.consumers.get(member.group) is not member:
            return False
        del self.consumers[member.group]
        return True

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a producer nor a consumer."""
        return not self.consumers and not self._producers

    def heartbeat(self) -> HeartbeatData:
        """Return the body of a heartbeat."""
        from rmq_remoting.bodies.heartbeat import HeartbeatData, ProducerData  # noqa: PLC0415

        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self._producers)],
            consumer_data_set=[member.heartbeat_data() for member in self.consumers.values()],
        )
