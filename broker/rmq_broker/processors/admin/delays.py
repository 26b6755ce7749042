"""Progress of delayed messages: code 45."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ...delivery.delay_offsets import DelayOffsets


class DelayAdminProcessor:
    """Read-only view of the offsets of the delay levels."""

    def __init__(self, offsets: DelayOffsets) -> None:
        self._offsets = offsets

    def get_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """45: the content of `delayOffset.json`, for slaves."""
        return request.response(ResponseCode.SUCCESS, body=self._offsets.encode())
