"""All consumer offsets of the broker: code 43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection

    from ...offsets.table import ConsumerOffsetTable


class OffsetAdminProcessor:
    """Shows offsets; runs on the loop, as encoding them remembers what it has encoded."""

    def __init__(self, offsets: ConsumerOffsetTable) -> None:
        self._offsets = offsets

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """43: every committed offset, in the form of `consumerOffset.json`."""
        return request.response(ResponseCode.SUCCESS, body=self._offsets.encode())
