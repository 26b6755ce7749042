"""A connection without a network, and its far end."""

from __future__ import annotations

from collections.abc import Callable

from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection, ConnectionSettings, ConnectionStatistics
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.framing import encode_frame
from tests.support.frames import decode_all
from tests.support.transports import FakeTransport


class Peer:
    """The far end of a Connection; must be made on a running loop."""

    def __init__(
        self,
        dispatcher: Dispatcher | None = None,
        settings: ConnectionSettings | None = None,
        *,
        taking: bool = True,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.statistics = ConnectionStatistics()
        self.connection = Connection(
            dispatcher or Dispatcher(), settings or ConnectionSettings(), self.statistics, on_open, on_close
        )
        self.transport = FakeTransport(self.connection.as_protocol, taking=taking)

    def send(self, *commands: RemotingCommand) -> None:
        """Let the commands arrive in one read."""
        self.send_bytes(b"".join(map(encode_frame, commands)))

    def send_bytes(self, data: bytes) -> None:
        """Let these bytes arrive in one read."""
        self.connection.data_received(data)

    @property
    def received(self) -> list[RemotingCommand]:
        """The commands written to this side so far."""
        return decode_all(b"".join(self.transport.writes))

    @property
    def answers(self) -> dict[int, RemotingCommand]:
        """The responses so far, by request number."""
        responses = [command for command in self.received if command.is_response]
        by_number = {command.opaque: command for command in responses}
        assert len(by_number) == len(responses), "a request was answered twice"
        return by_number
