"""Headers about clients: heartbeats, members, locks, running state (34, 35, 38, 40 to 42, 203, 307 …)."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32
from .base import Header
from .rpc import RpcHeader, TopicHeader


class HeartbeatRequestHeader(RpcHeader):
    """34; the body is a HeartbeatData."""


class UnregisterClientRequestHeader(RpcHeader):
    """35: a client leaves the named groups."""

    client_id: str = Field(alias="clientID")
    consumer_group: str | None = None
    producer_group: str | None = None


class UnregisterClientResponseHeader(Header):
    """An empty header."""


class GetConsumerListByGroupRequestHeader(RpcHeader):
    """38."""

    consumer_group: str


class GetConsumerListByGroupResponseHeader(Header):
    """An empty header; the body is a GetConsumerListByGroupResponseBody."""


class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    """40: a broker notifies a consumer that the members of its group have changed."""

    consumer_group: str


class LockBatchMqRequestHeader(RpcHeader):
    """41; the body is a LockBatchRequestBody."""


class UnlockBatchMqRequestHeader(RpcHeader):
    """42; the body is an UnlockBatchRequestBody."""


class GetConsumerConnectionListRequestHeader(RpcHeader):
    """203; the body of the response is a ConsumerConnection."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader):
    """204; the body of the response is a ProducerConnection."""

    producer_group: str


class GetAllProducerInfoRequestHeader(Header):
    """328; the body of the response is a ProducerTableInfo."""


class GetConsumerRunningInfoRequestHeader(RpcHeader):
    """307, forwarded by the broker to the client; the body of the response is a ConsumerRunningInfo."""

    client_id: str
    consumer_group: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicHeader):
    """309, forwarded by the broker to the client with the message; answered ConsumeMessageDirectlyResult."""

    client_id: str | None = None
    consumer_group: str
    group_sys_flag: Int32 | None = None
    msg_id: str | None = None
    stored_broker_name: str | None = Field(default=None, alias="brokerName")
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
