"""Headers of consumer groups: administration, and messages that they send back (36, 207, 208, 300 …)."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import RpcHeader, TopicHeader


class ConsumerSendMsgBackRequestHeader(RpcHeader):
    """36: a consumer could not process a message, which is to be redelivered after a delay of that level."""

    delay_level: Int32
    group: str
    max_reconsume_times: Int32 | None = None
    offset: Int64
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False


class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    """352; the body of the response is a SubscriptionGroupConfig."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """207."""

    clean_offset: bool = False
    group_name: str


class UpdateGroupForbiddenRequestHeader(TopicHeader):
    """353; the body of the response is a GroupForbidden. Without `readable` nothing changes."""

    group: str
    readable: bool | None = None
    topic: str


class GetConsumeStatsRequestHeader(TopicHeader):
    """208; the body of the response is a ConsumeStats. `topic_list` is several topics, separated by `;`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """317; the body of the response is a ConsumeStatsList."""

    order: bool = Field(default=False, alias="isOrder")


class QueryTopicConsumeByWhoRequestHeader(TopicHeader):
    """300; the body of the response is a GroupList."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcHeader):
    """343; the body of the response is a TopicList."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicHeader):
    """345; the body of the response is a QuerySubscriptionResponseBody."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(TopicHeader):
    """303; the body of the response is a QueryConsumeTimeSpanBody."""

    group: str
    topic: str


class GetConsumerStatusRequestHeader(TopicHeader):
    """223, and 221 from the broker to a client; the body of the response is a GetConsumerStatusBody."""

    client_addr: str | None = None
    group: str
    topic: str
