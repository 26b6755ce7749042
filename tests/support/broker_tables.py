"""The tables of a broker in memory, without store, files and network."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.clients.producers import ProducerTable
from rmq_broker.groups.table import SubscriptionGroupTable
from rmq_broker.offsets.table import ConsumerOffsetTable
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.topics.table import TopicTable
from rmq_remoting.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rmq_remoting.codes import LanguageCode
from rmq_remoting.connection import Connection
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.peers import Peer

GROUP = "CG"


class BrokerTables:
    """Topics, groups, clients, offsets and statistics of one broker; time passes only on `clock`."""

    def __init__(self, **keys: object) -> None:
        """Settings by Apache's keys."""
        self.clock = Clock()
        self.settings = broker_settings(**keys)
        self.topics = TopicTable(
            self.settings, self.settings.broker_cluster_name, self.settings.broker_name, self.clock
        )
        self.groups = SubscriptionGroupTable(self.settings, self.clock)
        self.consumers, self.producers = ConsumerTable(), ProducerTable()
        self.offsets = ConsumerOffsetTable(self.clock)
        self.statistics = BrokerStatistics(self.topics.system_topics, self.clock)

    @cached_property
    def connection(self) -> Connection:
        """A client's connection; in a running loop."""
        return Peer().connection

    def join(
        self,
        client_id: str = "c1",
        *,
        peer: Peer | None = None,
        language: LanguageCode = LanguageCode.JAVA,
        version: int = 479,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
        subscriptions: Iterable[SubscriptionData] = (),
    ) -> Peer:
        """Connect a member of the group CG, or repeat its heartbeat; return its connection's peer."""
        peer = peer or Peer()
        data = ConsumerData(
            group_name=GROUP,
            message_model=model,
            consume_type=consume_type,
            subscription_data_set=list(subscriptions),
        )
        client = ConnectedClient(peer.connection, client_id, language, version, self.clock())
        self.consumers.register(Heartbeat(data), client)
        return peer
