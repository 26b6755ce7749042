"""Routes of topics, and the brokers of clusters."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from . import constants
from .base import Body
from .static_topic import TopicQueueMappingInfo

MASTER_BROKER_ID = constants.MASTER_BROKER_ID


class QueueData(Body):
    """The queues of a topic on one broker (a master and its slaves)."""

    broker_name: str
    perm: Int32 = 0
    read_queue_nums: Int32 = 0
    topic_sys_flag: Int32 = 0
    write_queue_nums: Int32 = 0


class BrokerData(Body):
    """A broker's addresses by broker id; 0 is the master."""

    broker_addrs: dict[Int64, str] = Field(default_factory=dict)
    broker_name: str
    cluster: str | None = None
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body):
    """The route of one topic."""

    broker_datas: list[BrokerData] = Field(default_factory=list)
    filter_server_table: dict[str, list[str]] = Field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = Field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body):
    """All brokers by name, and the names of each cluster's brokers."""

    broker_addr_table: dict[str, BrokerData] = Field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = Field(default_factory=dict)


class TopicList(Body):
    """Names of topics."""

    broker_addr: str | None = None
    topic_list: list[str] = Field(default_factory=list)


class BrokerMemberGroup(Body):
    """The live members of one broker name: addresses by broker id."""

    broker_addrs: dict[Int64, str] = Field(default_factory=dict)
    broker_name: str
    cluster: str | None = None


class GetBrokerMemberGroupResponseBody(Body):
    """Response to GET_BROKER_MEMBER_GROUP; without a group if the name server does not know it."""

    broker_member_group: BrokerMemberGroup | None = None
