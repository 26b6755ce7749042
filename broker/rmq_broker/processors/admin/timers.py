"""Progress and number of pending timed messages: codes 60 and 61."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.codes import ResponseCode

if TYPE_CHECKING:
    from rmq_remoting.command import RemotingCommand
    from rmq_remoting.connection import Connection

    from ...timers.service import TimerService


class TimerAdminProcessor:
    """Read-only view of the timer's files, for slaves."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers

    def check_point(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """60: the content of `timercheck`; Apache's slaves read the seven values at its beginning."""
        return request.response(ResponseCode.SUCCESS, body=self._timers.pending.reported().encode())

    def counts(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """61: the content of `timermetrics`."""
        return request.response(ResponseCode.SUCCESS, body=self._timers.counts.encode())
