"""Heartbeats, client lists and checks of filters: codes 34, 35, 38 and 46.

Source of the rules: Apache RocketMQ 5.3.3, ClientManageProcessor and ConsumerManageProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.checks import CheckClientRequestBody
from rmq_remoting.bodies.group import GetConsumerListByGroupResponseBody
from rmq_remoting.bodies.heartbeat import TAG_EXPRESSION, ConsumerData, ConsumeType, HeartbeatData
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)

from ..clients.client import ConnectedClient
from ..clients.consumers import Heartbeat
from ..clients.producers import MAX_GROUPS
from ..clients.subscription import ExpressionError, Subscription, check_tag_count
from ..groups.names import producer_group_problem
from ..topics.names import retry_topic
from ..topics.permissions import topic_system_flag

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ..clients.consumers import ConsumerTable
    from ..clients.producers import ProducerTable
    from ..clock import ClockMs
    from ..filtering.message_filters import MessageFilters
    from ..groups.table import SubscriptionGroupTable
    from ..store.api import PullSettings
    from ..topics.table import TopicTable

log = logging.getLogger("rmq.broker.processors")

# These fields tell a client that it may omit its subscriptions in heartbeats, and when it must send them.
_SUPPORTS_SHORT_HEARTBEATS: Final = "IS_SUPPORT_HEART_BEAT_V2"
_SUBSCRIPTION_CHANGED: Final = "IS_SUB_CHANGE"


class ClientProcessor:
    """Processes heartbeats and related requests."""

    def __init__(
        self,
        consumers: ConsumerTable,
        producers: ProducerTable,
        groups: SubscriptionGroupTable,
        topics: TopicTable,
        filters: MessageFilters,
        settings: PullSettings,
        steady_ms: ClockMs,
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._settings = settings
        self._steady_ms = steady_ms

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """34: the heartbeat of a client, with its producers and consumers."""
        data = HeartbeatData.decode_request(request.body)
        _check_bounds(data)
        client = ConnectedClient.of(connection, request, data.client_id, self._steady_ms())
        # First, because they may be refused: then nothing of the heartbeat counts.
        groups = dict.fromkeys(producer.group_name for producer in data.producer_data_set)
        self._producers.register_all(groups, client)
        changed = False
        for consumer in data.consumer_data_set:
            heartbeat = Heartbeat(consumer, data.heartbeat_fingerprint, data.without_sub)
            changed |= self._register(heartbeat, client)
        # A client without fingerprints always sends complete heartbeats.
        changed = changed or data.heartbeat_fingerprint == 0
        fields = {_SUPPORTS_SHORT_HEARTBEATS: "true", _SUBSCRIPTION_CHANGED: "true" if changed else "false"}
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    def unregister(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """35: a client leaves its groups."""
        header = UnregisterClientRequestHeader.decode(request.ext_fields)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group is not None:
            self._consumers.unregister(header.consumer_group, connection)
        return request.response(ResponseCode.SUCCESS)

    def list_consumers(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """38: the client ids of a group's members, which clients need for rebalancing."""
        name = GetConsumerListByGroupRequestHeader.decode(request.ext_fields).consumer_group
        group = self._consumers.find_group(name)
        if group is None:
            raise CommandError(ResponseCode.SYSTEM_ERROR, f"no consumer of group {name} is connected here")
        body = GetConsumerListByGroupResponseBody(consumer_id_list=group.client_ids())
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def check_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """46: check a client's filter expression."""
        data = CheckClientRequestBody.decode_request(request.body).subscription_data if request.body else None
        if data is not None:
            subscription = Subscription.of(data)
            if subscription.expression_type != TAG_EXPRESSION:
                self._filters.of_request("", subscription)
        return request.response(ResponseCode.SUCCESS)

    def _register(self, heartbeat: Heartbeat, client: ConnectedClient) -> bool:
        """Record one consumer group of a heartbeat; whether the client must send its subscriptions again."""
        data = heartbeat.data
        if self._settings.reject_pull_consumer_enable and data.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._groups.find(data.group_name)
        if config is None:
            # Its pulls get the error; heartbeats succeed, as with Apache.
            log.debug("heartbeat of an unknown group=%s peer=%s", data.group_name, client)
            return False
        self._topics.create_for_group(
            retry_topic(data.group_name),
            config.retry_queue_nums,
            order=self._is_order(heartbeat),
            system_flag=topic_system_flag(unit=False, has_unit_subscription=data.unit_mode),
        )
        return self._consumers.register(heartbeat, client)

    def _is_order(self, heartbeat: Heartbeat) -> bool:
        """Whether the group is subscribed to an ordered topic."""
        return any(self._topics.is_order(topic) for topic in self._topics_of(heartbeat))

    def _topics_of(self, heartbeat: Heartbeat) -> list[str]:
        data: ConsumerData = heartbeat.data
        if not heartbeat.without_subscriptions:
            return [subscription.topic for subscription in data.subscription_data_set]
        known = self._consumers.find_group(data.group_name)
        return [] if known is None else list(known.subscriptions)


def _check_bounds(data: HeartbeatData) -> None:
    """Check the numbers and names in a heartbeat before any of it counts. Raises CommandError."""
    groups = len(data.consumer_data_set) + len(data.producer_data_set)
    if groups > MAX_GROUPS:
        raise CommandError(
            ResponseCode.INVALID_PARAMETER, f"a heartbeat of {groups} groups, the limit is {MAX_GROUPS}"
        )
    for producer in data.producer_data_set:
        problem = producer_group_problem(producer.group_name)
        if problem is not None:
            raise CommandError(ResponseCode.INVALID_PARAMETER, problem)
    try:
        for consumer in data.consumer_data_set:
            for subscription in consumer.subscription_data_set:
                check_tag_count(max(len(subscription.tags_set), len(subscription.code_set)))
    except ExpressionError as error:
        raise CommandError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
