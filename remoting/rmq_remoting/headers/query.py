"""Headers of queries for messages (codes 12, 33, 321)."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import TopicHeader

# An ext field of 12 that is not part of its header: `true` if the key is a unique key.
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


class QueryMessageRequestHeader(TopicHeader):
    """12: query messages with a key, stored between two times (ms)."""

    begin_timestamp: Int64
    end_timestamp: Int64
    key: str
    max_num: Int32
    topic: str


class QueryMessageResponseHeader(Header):
    """The progress of the index; the body is the stored messages, one after the other."""

    index_last_update_physical_offset: Int64 = Field(alias="indexLastUpdatePhyoffset")
    index_last_update_timestamp: Int64


class ViewMessageRequestHeader(Header):
    """33: fetch the message at a physical offset of the commit log."""

    offset: Int64
    topic: str | None = None


class ViewMessageResponseHeader(Header):
    """An empty header; the body is the stored message."""


class QueryConsumeQueueRequestHeader(TopicHeader):
    """321; the body of the response is a QueryConsumeQueueResponseBody."""

    consumer_group: str | None = None
    count: Int32 = 0
    index: Int64 = 0
    queue_id: Int32 = 0
    topic: str | None = None
