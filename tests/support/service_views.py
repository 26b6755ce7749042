"""Short names for the services that tests of a broker look at."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rmq_broker.clients.consumers import ConsumerTable
from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.pop.service import PopService
from rmq_broker.services import Services
from rmq_broker.store.api import MessageStore
from rmq_broker.topics.table import TopicTable
from rmq_remoting.message import MessageExt
from rmq_testing.messages import read_queue


class ServiceViews(ABC):
    """The views that every harness with `Services` has."""

    @property
    @abstractmethod
    def services(self) -> Services:
        """The services of the broker."""

    @property
    def store(self) -> MessageStore:
        """The message store."""
        return self.services.storage.store

    @property
    def topics(self) -> TopicTable:
        """The topic table."""
        return self.services.topics.table

    @property
    def groups(self) -> SubscriptionGroupTable:
        """The table of consumer groups."""
        return self.services.groups.table

    @property
    def offsets(self) -> ConsumerOffsetTable:
        """The offsets that consumer groups have committed."""
        return self.services.offsets.table

    @property
    def consumers(self) -> ConsumerTable:
        """The connected consumers."""
        return self.services.clients.consumers

    @property
    def pops(self) -> PopService:
        """The POP service."""
        return self.services.pops

    # --- messages ---

    def stored(self, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
        """Return the messages of a queue, which need not exist."""
        return read_queue(self.store, topic, queue_id)

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Return the bodies of the messages of a queue."""
        return [message.body for message in self.stored(topic, queue_id)]
