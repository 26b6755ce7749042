"""Checks of a client's subscription, and entries of consume queues for administrators."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body
from .heartbeat import SubscriptionData


class CheckClientRequestBody(Body):
    """A client's subscription, whose filter expression the broker is asked to compile."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumeQueueData(Body):
    """An entry of a consume queue; `eval` tells whether it matches the filter of the group."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physical_offset: Int64 = Field(default=0, alias="physicOffset")
    physical_size: Int32 = Field(default=0, alias="physicSize")
    tags_code: Int64 = 0


class QueryConsumeQueueResponseBody(Body):
    """A range of a consume queue, with the group's subscription and filter."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueData] | None = None
    subscription_data: SubscriptionData | None = None
