"""Headers of POP consumption (codes 200050 to 200055); all times are ms."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import TopicHeader


class PopMessageRequestHeader(TopicHeader):
    """200050; queue -1 means any, `init_mode` 0 starts a new group at the oldest message, 1 at the newest."""

    attempt_id: str | None = None
    born_time: Int64 = 0
    consumer_group: str
    expression: str | None = Field(default=None, alias="exp")
    expression_type: str | None = Field(default=None, alias="expType")
    init_mode: Int32 = 0
    invisible_time_ms: Int64 = Field(default=0, alias="invisibleTime")
    max_msg_nums: Int32 = 0
    order: bool = False
    poll_time_ms: Int64 = Field(default=0, alias="pollTime")
    queue_id: Int32 = 0
    topic: str


class PopMessageResponseHeader(Header):
    """What was popped; the infos are lists that the message properties' receipts are made of."""

    invisible_time_ms: Int64 = Field(default=0, alias="invisibleTime")
    msg_offset_info: str | None = None
    order_count_info: str | None = None
    pop_time: Int64 = 0
    rest_num: Int64 = 0
    revive_queue_id: Int32 = Field(default=0, alias="reviveQid")
    start_offset_info: str | None = None


class PeekMessageRequestHeader(TopicHeader):
    """200052."""

    consumer_group: str
    max_msg_nums: Int32 = 0
    queue_id: Int32 = 0
    topic: str


class AckMessageRequestHeader(TopicHeader):
    """200051; `extra_info` is the receipt."""

    consumer_group: str
    extra_info: str
    offset: Int64
    queue_id: Int32
    topic: str


class ChangeInvisibleTimeRequestHeader(TopicHeader):
    """200053; `extra_info` is the receipt."""

    consumer_group: str
    extra_info: str
    invisible_time_ms: Int64 = Field(alias="invisibleTime")
    offset: Int64
    queue_id: Int32
    topic: str


class ChangeInvisibleTimeResponseHeader(Header):
    """Parts of the new receipt."""

    invisible_time_ms: Int64 = Field(default=0, alias="invisibleTime")
    pop_time: Int64 = 0
    revive_queue_id: Int32 = Field(default=0, alias="reviveQid")


class NotificationRequestHeader(TopicHeader):
    """200054: answer when there is something to pop, or after `poll_time_ms`."""

    attempt_id: str | None = None
    born_time: Int64 = 0
    consumer_group: str
    order: bool = False
    poll_time_ms: Int64 = Field(default=0, alias="pollTime")
    queue_id: Int32 = 0
    topic: str


class NotificationResponseHeader(Header):
    """Whether there is something, or too many are waiting already."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicHeader):
    """200055."""

    consumer_group: str
    queue_id: Int32 = 0
    topic: str


class PollingInfoResponseHeader(Header):
    """How many polls are waiting."""

    polling_num: Int32 = 0
