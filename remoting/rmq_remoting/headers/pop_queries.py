"""Headers of POP requests that take no message: peeks, notifications, polling info (200052, 200054, 200055).

All times are ms. Source: Apache RocketMQ 5.3.3, PeekMessageRequestHeader and so on.
"""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import TopicHeader


class PeekMessageRequestHeader(TopicHeader):
    """200052."""

    consumer_group: str
    max_msg_nums: Int32 = 0
    queue_id: Int32 = 0
    topic: str


class NotificationRequestHeader(TopicHeader):
    """200054: respond when there are messages to pop, or after `poll_time_ms`."""

    attempt_id: str | None = None
    born_time: Int64 = 0
    consumer_group: str
    order: bool = False
    poll_time_ms: Int64 = Field(default=0, alias="pollTime")
    queue_id: Int32 = 0
    topic: str


class NotificationResponseHeader(Header):
    """Whether there are messages, or too many requests are held already."""

    has_msg: bool = False
    polling_full: bool = False


class PollingInfoRequestHeader(TopicHeader):
    """200055."""

    consumer_group: str
    queue_id: Int32 = 0
    topic: str


class PollingInfoResponseHeader(Header):
    """The number of held pops."""

    polling_num: Int32 = 0
