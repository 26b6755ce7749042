"""Brokers by name: GET_BROKER_CLUSTER_INFO (106), GET_BROKER_MEMBER_GROUP (901)."""

from __future__ import annotations

from rmq_remoting.bodies.route import BrokerMemberGroup, ClusterInfo, GetBrokerMemberGroupResponseBody
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader

from ..brokers import BrokerTable


class MemberProcessor:
    """Lists clusters and the members of broker names."""

    def __init__(self, brokers: BrokerTable) -> None:
        self._brokers = brokers

    def get_broker_cluster_info(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """106. The body is a ClusterInfo."""
        body = ClusterInfo(
            broker_addr_table={group.name: group.body for group in self._brokers.groups()},
            cluster_addr_table=self._brokers.clusters(),
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def get_broker_member_group(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """901. The response for an unknown broker name is a group without members."""
        header = GetBrokerMemberGroupRequestHeader.decode(request.ext_fields)
        group = self._brokers.get(header.broker_name)
        members = BrokerMemberGroup(
            broker_addrs=dict(group.addresses) if group is not None else {},
            broker_name=header.broker_name,
            cluster=header.cluster_name,
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=members)
        return request.response(ResponseCode.SUCCESS, body=body.encode())
