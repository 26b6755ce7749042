"""Headers of topic administration (codes 17, 18, 21, 202, 215, 351)."""

from __future__ import annotations

from ..integers import Int32, Int64
from .base import Header
from .rpc import RpcHeader, TopicHeader


class CreateTopicRequestHeader(TopicHeader):
    """17; `attributes` are `+name=value` and `-name`, separated by commas."""

    attributes: str | None = None
    default_topic: str
    force: bool = False
    order: bool = False
    perm: Int32
    read_queue_nums: Int32
    topic: str
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    write_queue_nums: Int32


class CreateTopicListRequestHeader(RpcHeader):
    """18; the body is a CreateTopicListRequestBody."""


class DeleteTopicRequestHeader(TopicHeader):
    """215."""

    topic: str


class GetTopicConfigRequestHeader(TopicHeader):
    """351; the body of the response is a TopicConfigAndQueueMapping."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicHeader):
    """202; the body of the response is a TopicStatsTable."""

    topic: str


class GetAllTopicConfigResponseHeader(Header):
    """21; the body is a TopicConfigAndMappingSerializeWrapper."""


class StatisticsMessagesRequestHeader(TopicHeader):
    """Without a code of its own in 5.3.3; times are ms since 1970."""

    consumer_group: str
    from_time: Int64 = 0
    queue_id: Int32 = 0
    to_time: Int64 = 0
    topic: str
