"""Heartbeats: every 30 seconds a client sends its id, its groups and their subscriptions to the brokers."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from . import constants
from .base import Body, WireEnum

SUBSCRIBE_ALL = constants.SUBSCRIBE_ALL
TAG_EXPRESSION = constants.TAG_EXPRESSION
SQL92_EXPRESSION = constants.SQL92_EXPRESSION


class ConsumeType(WireEnum):
    """How a consumer receives messages: it pulls, it is pushed to, or it pops."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(WireEnum):
    """Whether each consumer of a group gets all messages, or each message goes to one consumer."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(WireEnum):
    """Where a group without an offset starts; three values are obsolete, but count for the ordinals."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """A group's subscription to one topic.

    `sub_version` is its creation time, the latest wins; `code_set` holds the hashes of `tags_set`.
    """

    class_filter_mode: bool = False
    code_set: list[Int32] = Field(default_factory=list)
    expression_type: str = TAG_EXPRESSION
    # Decoded for old clients, never encoded (Apache RocketMQ 5.3.3, SubscriptionData).
    filter_class_source: str | None = Field(default=None, exclude=True)
    sub_string: str = SUBSCRIBE_ALL
    sub_version: Int64 = 0
    tags_set: list[str] = Field(default_factory=list)
    topic: str


class ProducerData(Body):
    """A producer group of a client."""

    group_name: str


class ConsumerData(Body):
    """A consumer group of a client."""

    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    group_name: str
    message_model: MessageModel = MessageModel.CLUSTERING
    subscription_data_set: list[SubscriptionData] = Field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body):
    """A heartbeat: a whole one, or with `without_sub` only the fingerprint of an unchanged one."""

    client_id: str = Field(alias="clientID")
    consumer_data_set: list[ConsumerData] = Field(default_factory=list)
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: list[ProducerData] = Field(default_factory=list)
    without_sub: bool = False
