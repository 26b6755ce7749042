"""The clients of a broker in memory."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.answers import Answer
from rmq_remoting.bodies.group import GetConsumerListByGroupResponseBody
from rmq_remoting.bodies.heartbeat import HeartbeatData
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.client import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
)

from .server import FakeServer


@dataclass(slots=True)
class FakeClient:
    """A client as its heartbeats describe it."""

    client_id: str
    connection: Connection
    heartbeat: HeartbeatData


class FakeMembers(FakeServer):
    """Knows the clients that send heartbeats, and tells the members of a group about its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, FakeClient] = {}

    def heartbeat(self, connection: Connection, request: RemotingCommand) -> Answer:
        data = HeartbeatData.decode(request.body)
        before = self._groups(data.client_id)
        self.clients[data.client_id] = FakeClient(data.client_id, connection, data)
        self._tell(before ^ self._groups(data.client_id))
        return request.response(ResponseCode.SUCCESS)

    def unregister(self, connection: Connection, request: RemotingCommand) -> Answer:
        header = UnregisterClientRequestHeader.decode(request.ext_fields)
        client = self.clients.get(header.client_id)
        if client is not None and header.consumer_group is not None:
            client.heartbeat.consumer_data_set = [
                data
                for data in client.heartbeat.consumer_data_set
                if data.group_name != header.consumer_group
            ]
            self._tell({header.consumer_group})
        return request.response(ResponseCode.SUCCESS)

    def consumer_list(self, connection: Connection, request: RemotingCommand) -> Answer:
        group = GetConsumerListByGroupRequestHeader.decode(request.ext_fields).consumer_group
        ids = [client_id for client_id in self.clients if group in self._groups(client_id)]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def members(self, group: str) -> list[str]:
        return [client_id for client_id in self.clients if group in self._groups(client_id)]

    def _groups(self, client_id: str) -> set[str]:
        client = self.clients.get(client_id)
        if client is None or client.connection.is_closed:
            return set()
        return {data.group_name for data in client.heartbeat.consumer_data_set}

    def _closed(self, connection: Connection) -> None:
        gone = {client.client_id for client in self.clients.values() if client.connection is connection}
        groups = {
            data.group_name
            for client_id in gone
            for data in self.clients[client_id].heartbeat.consumer_data_set
        }
        for client_id in gone:
            del self.clients[client_id]
        self._tell(groups)

    def _tell(self, groups: set[str]) -> None:
        for group in groups:
            for client_id in self.members(group):
                header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
                request = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header.encode())
                self.clients[client_id].connection.send_oneway(request)
