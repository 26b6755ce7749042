"""Headers of the controller, which elects masters (codes 1001 to 1013).

`invoke_time` is the time of the request in ms since 1970.
"""

from __future__ import annotations

from pydantic import Field

from ..integers import Int32, Int64
from .base import Header


class AlterSyncStateSetRequestHeader(Header):
    """1001; the body is a SyncStateSet."""

    broker_name: str | None = None
    invoke_time: Int64 = 0
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None


class AlterSyncStateSetResponseHeader(Header):
    """The epoch of the new SyncStateSet."""

    new_sync_state_set_epoch: Int32 = 0


class ElectMasterRequestHeader(Header):
    """1002; with `designate_elect` only this broker may be elected."""

    broker_id: Int64 = -1
    broker_name: str = ""
    cluster_name: str = ""
    designate_elect: bool = False
    invoke_time: Int64 = 0


class ElectMasterResponseHeader(Header):
    """The new master; the body is an ElectMasterResponseBody."""

    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerToControllerRequestHeader(Header):
    """1003."""

    broker_address: str | None = None
    broker_id: Int64 | None = None
    broker_name: str | None = None
    cluster_name: str | None = None
    invoke_time: Int64 = 0


class RegisterBrokerToControllerResponseHeader(Header):
    """The current master; the body is a SyncStateSet."""

    broker_name: str | None = None
    cluster_name: str | None = None
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(Header):
    """1004."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(Header):
    """The current master; the body is a SyncStateSet."""

    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None


class GetMetaDataResponseHeader(Header):
    """1005; `peers` are `id-host:port`, separated by `;`."""

    controller_leader_address: str | None = None
    controller_leader_id: str | None = None
    group: str | None = None
    leader: bool = Field(default=False, alias="isLeader")
    peers: str | None = None


class NotifyBrokerRoleChangedRequestHeader(Header):
    """1008, from the controller to brokers; the body is a SyncStateSet."""

    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class CleanControllerBrokerDataRequestHeader(Header):
    """1011; ids are separated by `;`."""

    broker_controller_ids_to_clean: str | None = None
    broker_name: str
    clean_living_broker: bool = Field(default=False, alias="isCleanLivingBroker")
    cluster_name: str | None = None
    invoke_time: Int64 = 0


class GetNextBrokerIdRequestHeader(Header):
    """1012."""

    broker_name: str | None = None
    cluster_name: str | None = None


class GetNextBrokerIdResponseHeader(Header):
    """The id for which a new broker may apply."""

    broker_name: str | None = None
    cluster_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequestHeader(Header):
    """1013."""

    applied_broker_id: Int64 | None = None
    broker_name: str | None = None
    cluster_name: str | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(Header):
    """Confirmation that the id belongs to the broker."""

    broker_name: str | None = None
    cluster_name: str | None = None
