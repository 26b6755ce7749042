"""Message types of topics and configurations of consumer groups, as brokers have them.

Source: Apache RocketMQ 5.3.3, ClusterMetadataService and TopicMessageType.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping
from typing import Final

from rmq_client.errors import ClientError, PermissionDenied, TopicNotFound, readable
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.static_topic import TopicConfigAndQueueMapping
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.consumer import GetSubscriptionGroupConfigRequestHeader
from rmq_remoting.headers.topic import GetTopicConfigRequestHeader
from rmq_remoting.message_properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)

from .brokers import Brokers
from .protocol.definition_pb2 import Code
from .refreshing_cache import RefreshingCache
from .settings import ProxySettings
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

_MESSAGE_TYPE: Final = "message.type"
_DELAYS: Final = frozenset(
    {PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TIMER_DELIVER_MS, PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS}
)


class TopicType(enum.StrEnum):
    """Which messages a topic takes: its attribute `message.type`."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


def type_of(properties: Mapping[str, str]) -> TopicType:
    """Return the type of a message by its properties."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return TopicType.TRANSACTION
    if not _DELAYS.isdisjoint(properties):
        return TopicType.DELAY
    return TopicType.FIFO if PROPERTY_SHARDING_KEY in properties else TopicType.NORMAL


def check_type(expected: TopicType, actual: TopicType) -> None:
    """Refuse a message of another type than its topic's."""
    if actual is not expected and expected is not TopicType.MIXED:
        raise Refusal(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
        )


class Metadata:
    """Topics and groups of the cluster. Belongs to one loop."""

    def __init__(self, brokers: Brokers, settings: ProxySettings) -> None:
        self._brokers = brokers
        self._cluster = settings.rocketmq_cluster_name
        self._topics = RefreshingCache(
            "configuration of topic",
            self._load_topic,
            refresh_seconds=settings.topic_refresh_seconds,
            expire_seconds=settings.topic_expired_seconds,
            most=settings.topic_max_num,
        )
        self._groups = RefreshingCache(
            "configuration of group",
            self._load_group,
            refresh_seconds=settings.group_refresh_seconds,
            expire_seconds=settings.group_expired_seconds,
            most=settings.group_max_num,
        )
        self.caches = (self._topics, self._groups)

    async def topic_type(self, topic: str) -> TopicType:
        """Return the type of a topic's messages; UNSPECIFIED if no broker tells it."""
        try:
            return await self.allowed_topic_type(topic)
        except PermissionDenied as error:
            log.debug("type of topic unknown topic=%s cause=%s", topic, error)
            return TopicType.UNSPECIFIED

    async def allowed_topic_type(self, topic: str) -> TopicType:
        """Return the same. Raises PermissionDenied if brokers do not let the proxy ask."""
        try:
            return await self._topics.get(topic)
        except PermissionDenied:
            raise
        except ClientError as error:
            log.debug("type of topic unknown topic=%s cause=%s", topic, error)
            return TopicType.UNSPECIFIED

    async def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a consumer group; None if no broker has it."""
        try:
            return await self._groups.get(name)
        except ClientError as error:
            log.debug("configuration of group unknown group=%s cause=%s", name, error)
            return None

    async def stop(self) -> None:
        """Cancel the requests in flight."""
        await self._topics.stop()
        await self._groups.stop()

    async def _load_topic(self, topic: str) -> TopicType:
        address = await self._brokers.any_address(topic)
        if address is None:
            raise TopicNotFound(f"topic {topic} has no broker")
        about = f"configuration of topic {topic}"
        header = GetTopicConfigRequestHeader(topic=topic)
        response = await self._brokers.call(
            address, RequestCode.GET_TOPIC_CONFIG, header.encode(), about=about
        )
        with readable(address, about):
            config = TopicConfigAndQueueMapping.decode(response.body)
        text = config.attributes.get(_MESSAGE_TYPE, TopicType.NORMAL)
        return TopicType(text) if text in TopicType.__members__ else TopicType.UNSPECIFIED

    async def _load_group(self, name: str) -> SubscriptionGroupConfig:
        # Each broker registers a topic of its cluster's name.
        address = await self._brokers.any_address(self._cluster)
        if address is None:
            raise TopicNotFound(f"cluster {self._cluster} has no broker (rocketMQClusterName)")
        about = f"configuration of group {name}"
        header = GetSubscriptionGroupConfigRequestHeader(group=name)
        response = await self._brokers.call(
            address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header.encode(), about=about
        )
        with readable(address, about):
            return SubscriptionGroupConfig.decode(response.body)
