"""Headers of the name server's requests (codes 100 to 106, 205, 216 to 224, 322, 327, 901, 904, 905)."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header
from .rpc import TopicHeader


class RegisterBrokerRequestHeader(Header):
    """103; `body_crc32` is the CRC of the body as sent, 0 if it was not computed."""

    body_crc32: Int32 = 0
    broker_addr: str
    broker_id: Int64
    broker_name: str
    cluster_name: str
    compressed: bool = False
    enable_acting_master: bool | None = None
    ha_server_addr: str
    heartbeat_timeout_ms: Int64 | None = Field(default=None, alias="heartbeatTimeoutMillis")


class RegisterBrokerResponseHeader(Header):
    """The master's addresses, for a slave; the body may be a KVTable of order topics."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    """104."""

    broker_addr: str
    broker_id: Int64
    broker_name: str
    cluster_name: str


class BrokerHeartbeatRequestHeader(Header):
    """904: keeps a registration alive, and reports the broker's offsets to a controller."""

    broker_addr: str
    broker_id: Int64 | None = None
    broker_name: str
    cluster_name: str
    confirm_offset: Int64 | None = None
    election_priority: Int32 | None = None
    epoch: Int32 | None = None
    heartbeat_timeout_ms: Int64 | None = Field(default=None, alias="heartbeatTimeoutMills")
    max_offset: Int64 | None = None


class QueryDataVersionRequestHeader(Header):
    """322; the body is the broker's DataVersion."""

    broker_addr: str
    broker_id: Int64
    broker_name: str
    cluster_name: str


class QueryDataVersionResponseHeader(Header):
    """Whether the broker must register again; the body is the known DataVersion."""

    changed: bool


class GetRouteInfoRequestHeader(TopicHeader):
    """105; the body of the response is a TopicRouteData."""

    accept_standard_json_only: bool | None = None
    topic: str


class RegisterTopicRequestHeader(TopicHeader):
    """217; the body is a TopicRouteData."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicHeader):
    """216; without a cluster, the topic is deleted on all brokers."""

    cluster_name: str | None = None
    topic: str


class GetTopicsByClusterRequestHeader(Header):
    """224."""

    cluster: str


class RegisterOrderTopicRequestHeader(Header):
    """Not in use; order topics are KV configuration."""

    order_topic_string: str
    topic: str


class WipeWritePermOfBrokerRequestHeader(Header):
    """205."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """The number of topics that lost their write permission."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(Header):
    """327."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header):
    """The number of topics whose write permission was restored."""

    add_topic_count: Int32


class PutKVConfigRequestHeader(Header):
    """100."""

    key: str
    namespace: str
    value: str


class GetKVConfigRequestHeader(Header):
    """101."""

    key: str
    namespace: str


class GetKVConfigResponseHeader(Header):
    """The value, if there is one."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    """102."""

    key: str
    namespace: str


class GetKVListByNamespaceRequestHeader(Header):
    """219; the body of the response is a KVTable."""

    namespace: str


class GetBrokerMemberGroupRequestHeader(Header):
    """901; the body of the response is a GetBrokerMemberGroupResponseBody."""

    broker_name: str
    cluster_name: str


class NotifyMinBrokerIdChangeRequestHeader(Header):
    """905: notifies the brokers of one name that the smallest live broker id among them has changed."""

    broker_name: str | None = None
    ha_broker_addr: str | None = None
    min_broker_addr: str | None = None
    min_broker_id: Int64 | None = None
    offline_broker_addr: str | None = None
