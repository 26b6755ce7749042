"""The broker's group: codes 905 (smallest broker id), 906 (addresses), 907 (status), 908 (master's flushing).

With a controller also 1007 (epochs) and 1008 (the master has changed).

Source: Apache RocketMQ 5.3.3, AdminBrokerProcessor, DefaultHAService.getRuntimeInfo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.controller import EpochEntry, EpochEntryCache
from rmq_remoting.bodies.ha import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmq_remoting.bodies.route import MASTER_BROKER_ID
from rmq_remoting.codes import ResponseCode
from rmq_remoting.daemon.deferred_answers import deferred_answer
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.ha import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)
from rmq_remoting.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

from ...registration.master_address import MasterAddress

if TYPE_CHECKING:
    from rmq_remoting.answers import Result
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ...acting.smallest_broker import SmallestBroker
    from ...pop.closed_pops import ClosedPops
    from ...registration.announcements import BrokerIdentity
    from ...replication.service import ReplicationService
    from ...store.api import MessageStore

_NO_CONTROLLER: Final = "this broker has no controller (enableControllerMode)"
_LARGEST: Final = 2**63 - 1  # the end of the newest epoch


class ReplicationAdminProcessor:
    """Tells tools and the other brokers of the group about replication."""

    def __init__(
        self,
        replication: ReplicationService,
        smallest: SmallestBroker,
        store: MessageStore,
        identity: BrokerIdentity,
        closed: ClosedPops,
    ) -> None:
        """`closed`: the popped messages that this broker has closed as an acting replica."""
        self.replication = replication
        self.smallest = smallest
        self._store = store
        self._identity = identity
        self._closed = closed

    def smallest_id_changed(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """905: a name server tells the smallest living id of the group. Raises CommandError, HeaderError.

        Only replicas with `enableSlaveActingMaster` heed it.
        """
        header = NotifyMinBrokerIdChangeRequestHeader.decode(request.ext_fields)
        if header.min_broker_id is None or header.min_broker_id < 0:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"minBrokerId={header.min_broker_id} is no broker id: send a number from 0 on",
            )
        address = header.min_broker_addr or ""
        is_new = self.smallest.told(header.min_broker_id, address)
        if is_new and header.min_broker_id == MASTER_BROKER_ID and header.ha_broker_addr:
            self._master_is(MasterAddress(header.ha_broker_addr, address))
        return request.response(ResponseCode.SUCCESS)

    def _master_is(self, master: MasterAddress) -> None:
        if self.replication.follower is not None:
            self.replication.lookup.told(master)

    def exchange(self, connection: Connection, request: RemotingCommand) -> Result:
        """906: a master that starts announces itself to a replica, or a replica asks its master.

        A replica that acts as the master answers once it does so no longer.
        """
        header = ExchangeHAInfoRequestHeader.decode(request.ext_fields)
        replication = self.replication
        if header.master_ha_address:
            self._master_is(MasterAddress(header.master_ha_address, header.master_address or ""))
            self.smallest.master_starts()
            if not self.smallest.acts:
                return self._left(request)
            return deferred_answer(self._leave(request), "leave to the master")
        if replication.follower is not None:
            return request.response(ResponseCode.SUCCESS)
        fields = ExchangeHAInfoResponseHeader(
            master_address=self._identity.address,
            master_flush_offset=self._store.flushed_offset,
            master_ha_address=self._identity.ha_address,
        ).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    async def _leave(self, request: RemotingCommand) -> RemotingCommand:
        await self.smallest.acts_no_more()
        return self._left(request)

    def _left(self, request: RemotingCommand) -> RemotingCommand:
        """Answer with the popped messages that this replica has closed; Apache's master ignores them."""
        body = self._closed.encode() if len(self._closed) else b""
        return request.response(ResponseCode.SUCCESS, body=body)

    def status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """907: the replicas of a master, or the state of a replica."""
        follower = self.replication.follower
        body = self._of_master() if follower is None else self._of_replica()
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def reset_master_flush_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """908: sets what a replica believes that its master has flushed; a master ignores it."""
        header = ResetMasterFlushOffsetHeader.decode(request.ext_fields)
        follower = self.replication.follower
        if follower is not None:
            follower.status.master_flushed = header.master_flush_offset
        return request.response(ResponseCode.SUCCESS)

    def epochs(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """1007: the epochs of this log."""
        controlled = self.replication.controlled
        if controlled is None:
            return request.response(ResponseCode.SYSTEM_ERROR, _NO_CONTROLLER)
        identity, epochs = self._identity, controlled.epochs.epochs
        ends = [epoch.start for epoch in epochs[1:]] + [_LARGEST]
        body = EpochEntryCache(
            broker_id=identity.broker_id,
            broker_name=identity.name,
            cluster_name=identity.cluster,
            epoch_list=[
                EpochEntry(epoch=epoch.number, start_offset=epoch.start, end_offset=end)
                for epoch, end in zip(epochs, ends, strict=False)
            ],
            max_offset=self._store.max_phy_offset(),
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def role_changed(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """1008: somebody says that the master has changed; the broker asks the controller."""
        controlled = self.replication.controlled
        if controlled is None:
            return request.response(ResponseCode.SYSTEM_ERROR, _NO_CONTROLLER)
        controlled.member.wake()
        return request.response(ResponseCode.SUCCESS)

    def _of_master(self) -> HARuntimeInfo:
        end = self._store.max_phy_offset()
        in_sync = self._store.replicas.in_sync()
        connections = [each for each in self.replication.server.connections if each.position is not None]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=len(in_sync),
            ha_connection_info=[
                HAConnectionRuntimeInfo(
                    addr=each.name,
                    slave_ack_offset=each.position.acknowledged,
                    diff=end - each.position.acknowledged,
                    in_sync=each.position in in_sync,
                    transferred_byte_in_second=each.bytes_per_second,
                    transfer_from_where=each.next_offset,
                )
                for each in connections
                if each.position is not None
            ],
        )

    def _of_replica(self) -> HARuntimeInfo:
        follower = self.replication.follower
        assert follower is not None
        status = follower.status
        return HARuntimeInfo(
            ha_client_runtime_info=HAClientRuntimeInfo(
                master_addr="" if status.master is None else status.master.ha,
                max_offset=self._store.max_phy_offset(),
                last_read_timestamp=status.last_read_ms,
                last_write_timestamp=status.last_write_ms,
                transferred_byte_in_second=status.bytes_per_second,
                master_flush_offset=status.master_flushed,
            )
        )
