"""One side of a connection as a pure state machine: bytes, events and the time in; requests to run out.

No socket, no event loop and no clock: `connection.py` is the thin asyncio shell around it. The shell reports
bytes, the back-pressure of its transport and the passing of time, runs the requests that it is given, and
reads from the peer while `wants_data` says so.
"""

from __future__ import annotations

from .command import RemotingCommand
from .errors import ProtocolError
from .framing import FrameDecoder
from .pending_requests import PendingRequests
from .request_turns import MAX_WAITING_REQUESTS, TURN_REQUESTS, RequestTurns


class Exchange:
    """Requests and responses of both directions.

    Responses go to the replies of `pending`. Requests of the peer run in `turns`, and only while the peer
    takes responses (`peer_reads`) and few of its requests are in a thread pool (`is_busy`). With
    `takes_turns` false all of them run at once and reading never stops: of two sides that talk much only one
    may stop reading, or both could wait for each other for ever. The server does, the client does not.
    """

    __slots__ = (
        "_decoder",
        "_takes_turns",
        "failure",
        "is_busy",
        "last_command_at",
        "peer_reads",
        "pending",
        "turns",
    )

    def __init__(
        self,
        *,
        max_frame_bytes: int,
        max_header_bytes: int,
        max_pending_requests: int,
        takes_turns: bool,
        now: float = 0.0,
    ) -> None:
        self._decoder = FrameDecoder(max_frame_bytes, max_header_bytes)
        self._takes_turns = takes_turns
        self.pending = PendingRequests(max_pending_requests)
        self.turns = RequestTurns()
        # Set once the peer has broken the protocol: the connection ends after the requests before that.
        self.failure: ProtocolError | None = None
        self.peer_reads = True  # false while the transport's write buffer is over its high watermark
        # Bytes that complete no command do not count: with a few of them a peer could hold the connection.
        self.last_command_at = now
        self.is_busy = False  # true while as many of the peer's requests as allowed are in a thread pool

    def receive(self, data: bytes, now: float) -> list[RemotingCommand]:
        """Take bytes from the peer; return the requests whose turn it is at once.

        Others wait in `turns`. Bytes after a protocol error are ignored.
        """
        decoder = self._decoder
        commands = decoder.feed(data)
        if decoder.failure is not None:
            self.failure = decoder.failure
        if commands:
            self.last_command_at = now
            if self.pending.by_number:
                commands = self.pending.complete(commands)
        if self._takes_turns and (len(commands) > TURN_REQUESTS or self.turns.waiting or self.is_busy):
            return self.turns.take(commands, now, all_wait=self.is_busy)
        return commands

    @property
    def wants_data(self) -> bool:
        """Whether more is to be read from the peer."""
        return not self._takes_turns or (self.peer_reads and self.turns.waiting <= MAX_WAITING_REQUESTS)

    def next_turn(self) -> tuple[list[RemotingCommand], float] | None:
        """Return the requests of the next turn and since when they have waited; None if none may run now."""
        return self.turns.next() if self.peer_reads and not self.is_busy else None

    @property
    def has_turn(self) -> bool:
        """Whether `next_turn` has requests."""
        return self.peer_reads and not self.is_busy and self.turns.waiting > 0
