"""Bodies of the controller's requests (codes 1001 to 1008), which elects masters."""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Body
from .route import BrokerMemberGroup


class SyncStateSet(Body):
    """The brokers that have every acknowledged message; `sync_state_set_epoch` grows with each change."""

    sync_state_set: list[Int64] = Field(default_factory=list)
    sync_state_set_epoch: Int32 = 0


class ElectMasterResponseBody(Body):
    """1002: the in-sync set of the new master, and all brokers of the group."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = Field(default_factory=list)


class EpochEntry(Body):
    """A part of a log that one master wrote, from `start_offset` to `end_offset`."""

    end_offset: Int64 = 2**63 - 1
    epoch: Int32 = 0
    start_offset: Int64 = 0


class EpochEntryCache(Body):
    """1007: the epochs of a broker's log, and where that ends."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = Field(default_factory=list)
    max_offset: Int64 = 0


class ReplicaIdentity(Body):
    """A broker of a group, as the controller knows it; `alive`: its heartbeats come."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: Int64 = 0
    broker_name: str | None = None


class ReplicasInfo(Body):
    """The master and the replicas of a group."""

    in_sync_replicas: list[ReplicaIdentity] = Field(default_factory=list)
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 = 0
    not_in_sync_replicas: list[ReplicaIdentity] = Field(default_factory=list)
    sync_state_set_epoch: Int32 = 0


class BrokerReplicasInfo(Body):
    """1006: the groups that the request names, by the name of the brokers."""

    replicas_info_table: dict[str, ReplicasInfo] = Field(default_factory=dict)
