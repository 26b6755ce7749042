"""Replication: codes 906 (exchange addresses), 907 (status) and 908 (a replica's knowledge of its master).

Source: Apache RocketMQ 5.3.3, AdminBrokerProcessor, DefaultHAService.getRuntimeInfo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.bodies.ha import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmq_remoting.codes import ResponseCode
from rmq_remoting.headers.ha import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)

from ...registration.master_address import MasterAddress

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ...replication.service import ReplicationService
    from ...store.api import MessageStore


class ReplicationAdminProcessor:
    """Tells tools and the other brokers of the group about replication."""

    def __init__(
        self, replication: ReplicationService, store: MessageStore, address: str, ha_address: str
    ) -> None:
        """`address` is where clients connect to, `ha_address` where replicas do; both host:port."""
        self._replication = replication
        self._store = store
        self._address = address
        self._ha_address = ha_address

    def exchange(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """906: a master that starts announces itself to a replica, or a replica asks its master."""
        header = ExchangeHAInfoRequestHeader.decode(request.ext_fields)
        replication = self._replication
        if header.master_ha_address:
            if replication.follower is not None:
                replication.lookup.told(MasterAddress(header.master_ha_address, header.master_address or ""))
            return request.response(ResponseCode.SUCCESS)
        if replication.follower is not None:
            return request.response(ResponseCode.SUCCESS)
        fields = ExchangeHAInfoResponseHeader(
            master_address=self._address,
            master_flush_offset=self._store.flushed_offset,
            master_ha_address=self._ha_address,
        ).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=fields)

    def status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """907: the replicas of a master, or the state of a replica."""
        follower = self._replication.follower
        body = self._of_master() if follower is None else self._of_replica()
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def reset_master_flush_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """908: sets what a replica believes that its master has flushed; a master ignores it."""
        header = ResetMasterFlushOffsetHeader.decode(request.ext_fields)
        follower = self._replication.follower
        if follower is not None:
            follower.status.master_flushed = header.master_flush_offset
        return request.response(ResponseCode.SUCCESS)

    def _of_master(self) -> HARuntimeInfo:
        end = self._store.max_phy_offset()
        in_sync = self._store.replicas.in_sync()
        connections = [each for each in self._replication.server.connections if each.position is not None]
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
        follower = self._replication.follower
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
