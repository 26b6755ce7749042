"""Headers of offsets (codes 14, 15, 29 to 32, 222, 308, 314)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import RpcHeader, TopicHeader


class QueryConsumerOffsetRequestHeader(TopicHeader):
    """14; without `set_zero_if_not_found` an unknown group of a young topic is answered 0 as well."""

    consumer_group: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    topic: str


class QueryConsumerOffsetResponseHeader(Header):
    """The next offset that the group will consume."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(TopicHeader):
    """15: sets the next offset that the group will consume."""

    commit_offset: Int64
    consumer_group: str
    queue_id: Int32
    topic: str


class UpdateConsumerOffsetResponseHeader(Header):
    """An empty header."""


class BoundaryType(StrEnum):
    """Selects the first or the last of several messages with the same store time."""

    LOWER = "LOWER"
    UPPER = "UPPER"


def _boundary(value: Any) -> BoundaryType:
    return BoundaryType.UPPER if str(value).upper() == "UPPER" else BoundaryType.LOWER


class SearchOffsetRequestHeader(TopicHeader):
    """29: the offset of the first (or last) message that was stored at that time (ms) or later."""

    # As in Apache: any value but "upper" means the lower boundary.
    boundary_type: Annotated[BoundaryType, BeforeValidator(_boundary)] | None = None
    queue_id: Int32
    timestamp: Int64
    topic: str


class SearchOffsetResponseHeader(Header):
    """The offset."""

    offset: Int64


class GetMaxOffsetRequestHeader(TopicHeader):
    """30; `committed` excludes messages that a synchronous flush has not reached yet."""

    committed: bool = True
    queue_id: Int32
    topic: str


class GetMaxOffsetResponseHeader(Header):
    """The offset of the next message to be stored."""

    offset: Int64


class GetMinOffsetRequestHeader(TopicHeader):
    """31."""

    queue_id: Int32
    topic: str


class GetMinOffsetResponseHeader(Header):
    """The offset of the oldest message in the queue."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(TopicHeader):
    """32."""

    queue_id: Int32
    topic: str


class GetEarliestMsgStoretimeResponseHeader(Header):
    """The store time of the oldest message in ms since 1970; -1 if there is none."""

    timestamp: Int64


class ResetOffsetRequestHeader(TopicHeader):
    """222, and 220 from broker to clients: reset to the offset, or else to the time; queue -1 means all."""

    force: bool = Field(default=False, alias="isForce")
    group: str
    offset: Int64 | None = None
    queue_id: Int32 = -1
    timestamp: Int64 = 0
    topic: str


class QueryCorrectionOffsetHeader(TopicHeader):
    """308; the body of the response is a QueryCorrectionOffsetBody. Filter groups are separated by commas."""

    compare_group: str
    filter_groups: str | None = None
    topic: str


class CloneGroupOffsetRequestHeader(RpcHeader):
    """314: copies the offsets of a group to another one."""

    destination_group: str = Field(alias="destGroup")
    offline: bool = False
    source_group: str = Field(alias="srcGroup")
    topic: str | None = None


class InitConsumerOffsetRequestHeader(TopicHeader):
    """Without a code of its own in 5.3.3."""

    init_mode: Int32 = 0
    topic: str | None = None
