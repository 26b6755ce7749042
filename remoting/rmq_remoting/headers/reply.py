"""Header of a reply that the broker forwards to the requesting client (code 326)."""

from __future__ import annotations

from ..integers import Int32, Int64
from .rpc import TopicHeader


class ReplyMessageRequestHeader(TopicHeader):
    """326: the fields of the send request with the reply, and its hosts as `host:port`."""

    born_host: str
    born_timestamp: Int64
    default_topic: str
    default_topic_queue_nums: Int32
    flag: Int32
    producer_group: str
    properties: str | None = None
    queue_id: Int32
    reconsume_times: Int32 | None = None
    store_host: str
    store_timestamp: Int64 = 0
    sys_flag: Int32
    topic: str
    unit_mode: bool = False
