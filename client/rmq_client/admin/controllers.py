"""Controllers, which elect masters: in-sync sets and epochs.

Source: Apache RocketMQ 5.3.3, ControllerRequestProcessor.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.controller import (
    BrokerReplicasInfo,
    EpochEntry,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.controller import GetMetaDataResponseHeader
from rmq_remoting.integer_bounds import INT64_MAX

from ..errors import ClientError, readable
from .arguments import checked
from .base import AdminBase
from .broker_results import BrokerEpochs, ControllerState, GroupMember, InSyncSet, LogEpoch


class ControllerAdmin(AdminBase):
    """Controllers and the groups of brokers that they know."""

    @checked
    async def controller_state(self, controller: str) -> ControllerState:
        """Return what a controller, `host:port`, says about itself and its peers. Raises ClientError."""
        about = f"state of controller {controller}"
        response = await self._api.call(controller, RequestCode.CONTROLLER_GET_METADATA_INFO, about=about)
        with readable(controller, about):
            header = GetMetaDataResponseHeader.decode(response.ext_fields)
        return ControllerState(
            group=header.group or "",
            is_leader=header.leader,
            leader_id=header.controller_leader_id or "",
            leader_address=header.controller_leader_address or "",
            peers=tuple(peer for peer in (header.peers or "").split(";") if peer),
        )

    @checked
    async def in_sync_sets(
        self, controller: str, broker_names: Sequence[str] | None = None
    ) -> dict[str, InSyncSet]:
        """Return masters and replicas by broker name, as the leader of the controllers knows them.

        `controller`: the address `host:port` of any controller. Without `broker_names`: of all brokers that
        the name servers know. Brokers without a controller are left out. Raises ClientError.
        """
        names = broker_names
        if names is None:
            names = list((await self.cluster_info()).brokers)
        address, about = await self._leader(controller), "in-sync sets"
        response = await self._api.call(
            address,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
            None,
            fastjson.dumps(list(names)),
            about=about,
        )
        with readable(address, about):
            found = BrokerReplicasInfo.decode(response.body)
        return {name: _in_sync_set(name, info) for name, info in sorted(found.replicas_info_table.items())}

    @checked
    async def broker_epochs(self, broker_name: str, broker_id: int = MASTER_BROKER_ID) -> BrokerEpochs:
        """Return which master wrote which part of a broker's log. Raises ClientError without a controller."""
        found = await self._body(
            await self._broker(broker_name, broker_id),
            RequestCode.GET_BROKER_EPOCH_CACHE,
            None,
            f"epochs of broker {broker_name}",
            EpochEntryCache.decode,
        )
        return BrokerEpochs(
            broker_name=found.broker_name or broker_name,
            broker_id=found.broker_id,
            log_end=found.max_offset,
            epochs=tuple(_epoch(each) for each in found.epoch_list),
        )

    async def _leader(self, controller: str) -> str:
        """Return the address of the leading controller. Raises ClientError."""
        state = await self.controller_state(controller)
        if not state.leader_address:
            raise ClientError(f"controller {controller} knows no leader now: repeat this after the election")
        return state.leader_address


def _epoch(entry: EpochEntry) -> LogEpoch:
    end = None if entry.end_offset == INT64_MAX else entry.end_offset
    return LogEpoch(entry.epoch, entry.start_offset, end)


def _in_sync_set(name: str, info: ReplicasInfo) -> InSyncSet:
    members = [_member(each, in_sync=True) for each in info.in_sync_replicas]
    members += [_member(each, in_sync=False) for each in info.not_in_sync_replicas]
    return InSyncSet(
        broker_name=name,
        master_id=info.master_broker_id,
        master_address=info.master_address or "",
        master_epoch=info.master_epoch,
        epoch=info.sync_state_set_epoch,
        members=tuple(sorted(members, key=lambda member: member.broker_id)),
    )


def _member(replica: ReplicaIdentity, *, in_sync: bool) -> GroupMember:
    return GroupMember(replica.broker_id, replica.broker_address or "", bool(replica.alive), in_sync)
