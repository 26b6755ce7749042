"""Connected clients and their subscriptions: codes 203, 204, 300, 328, 343 and 345."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.connection import (
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rmq_remoting.bodies.group import GroupList, QuerySubscriptionResponseBody
from rmq_remoting.bodies.route import TopicList
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rmq_remoting.headers.consumer import (
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...clients.client import ConnectedClient
    from ...clients.consumers import ConsumerTable
    from ...clients.producers import ProducerTable
    from ...offsets.table import ConsumerOffsetTable


class ConnectionAdminProcessor:
    """Read-only views of clients. `broker_address` is the address that clients use."""

    def __init__(
        self,
        consumers: ConsumerTable,
        producers: ProducerTable,
        offsets: ConsumerOffsetTable,
        broker_address: str,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._broker_address = broker_address

    def consumers_of_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """203: a group's members and subscriptions."""
        name = GetConsumerConnectionListRequestHeader.decode(request.ext_fields).consumer_group
        group = self._consumers.find_group(name)
        if group is None:
            remark = f"no consumer of group {name} is connected to this broker"
            raise CommandError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        body = ConsumerConnection(
            connection_set=[client.to_body() for client in group.members.values()],
            consume_from_where=group.consume_from_where,
            consume_type=group.consume_type,
            message_model=group.message_model,
            subscription_table={
                topic: subscription.to_body() for topic, subscription in group.subscriptions.items()
            },
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def producers_of_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """204: a group's members."""
        name = GetProducerConnectionListRequestHeader.decode(request.ext_fields).producer_group
        clients = self._producers.find_group(name)
        if clients is None:
            remark = f"no producer of group {name} is connected to this broker"
            raise CommandError(ResponseCode.SYSTEM_ERROR, remark)
        body = ProducerConnection(connection_set=[client.to_body() for client in clients])
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def all_producers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """328: all producers by group."""
        groups = self._producers.groups()
        body = ProducerTableInfo(data={name: list(map(_info, clients)) for name, clients in groups.items()})
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def groups_of_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """300: the groups that are subscribed to a topic or have offsets of it."""
        topic = QueryTopicConsumeByWhoRequestHeader.decode(request.ext_fields).topic
        groups = self._consumers.groups_subscribed_to(topic) | self._offsets.groups_of(topic)
        return request.response(ResponseCode.SUCCESS, body=GroupList(group_list=sorted(groups)).encode())

    def topics_of_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """343: the topics that a group has offsets of."""
        group = QueryTopicsByConsumerRequestHeader.decode(request.ext_fields).group
        topics = sorted(self._offsets.topics_of(group))
        body = TopicList(broker_addr=self._broker_address, topic_list=topics)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def subscription(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """345: a group's subscription to a topic; none if it has none."""
        header = QuerySubscriptionByConsumerRequestHeader.decode(request.ext_fields)
        found = self._consumers.find_subscription(header.group, header.topic or "")
        body = QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic,
            subscription_data=None if found is None else found.to_body(),
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())


def _info(client: ConnectedClient) -> ProducerInfo:
    return ProducerInfo(
        client_id=client.client_id,
        language=client.language,
        last_update_timestamp=client.last_seen_ms,
        remote_ip=client.connection.peer,
        version=client.version,
    )
