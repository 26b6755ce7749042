"""Export of POP's records: code 200056."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection


class PopRecordProcessor:
    """Answers the request for POP's records of RocksDB in the log, where this broker always keeps them.

    (Apache RocketMQ 5.3.3, AdminBrokerProcessor.transferPopToFsStore: without records in RocksDB, success.)
    """

    def export(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """200056: no record has to be moved."""
        return request.response(ResponseCode.SUCCESS)
