"""Maintenance of a broker: WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

from __future__ import annotations

import logging

from rmq_remoting.answers import Answer, Result
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

from ..registry import BrokerRegistry
from ..slices import SerialLane, Steps

log = logging.getLogger("rmq.namesrv.permissions")


class PermissionProcessor:
    """Withdraws the write permission of a broker's topics, and restores it."""

    def __init__(self, registry: BrokerRegistry, lane: SerialLane) -> None:
        self._registry = registry
        self._lane = lane

    def wipe_write_permission(self, connection: Connection, request: RemotingCommand) -> Result:
        """205. In force until the broker's topics change, or until 327."""
        name = WipeWritePermOfBrokerRequestHeader.decode(request.ext_fields).broker_name
        return self._lane.run(self._wipe(connection, request, name))

    def add_write_permission(self, connection: Connection, request: RemotingCommand) -> Result:
        """327."""
        name = AddWritePermOfBrokerRequestHeader.decode(request.ext_fields).broker_name
        return self._lane.run(self._add(connection, request, name))

    def _wipe(self, connection: Connection, request: RemotingCommand, name: str) -> Steps[Answer]:
        topics = yield from self._registry.wipe_write_permission(name)
        log.info("write permission wiped broker=%s peer=%s topics=%d", name, connection.peer, topics)
        header = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=topics)
        return request.response(ResponseCode.SUCCESS, ext_fields=header.encode())

    def _add(self, connection: Connection, request: RemotingCommand, name: str) -> Steps[Answer]:
        topics = yield from self._registry.add_write_permission(name)
        log.info("write permission restored broker=%s peer=%s topics=%d", name, connection.peer, topics)
        header = AddWritePermOfBrokerResponseHeader(add_topic_count=topics)
        return request.response(ResponseCode.SUCCESS, ext_fields=header.encode())
