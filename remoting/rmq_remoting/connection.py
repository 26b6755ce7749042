"""Connections: a thin asyncio shell around the exchange, the same on both sides of the connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, cast

from .codes import FLAG_ONEWAY, LanguageCode
from .command import RemotingCommand
from .errors import ConnectionClosed, ProtocolError, TooManyRequests
from .exchange import Exchange
from .framing import MAX_FRAME_BYTES, MAX_REQUEST_HEADER_BYTES, encode_frame
from .peer_address import address_text, descriptor_of, peer_address, reset_on_close
from .pending_requests import Reply
from .repeated_event import RepeatedEvent

log = logging.getLogger(__name__)

_SWEEP_SECONDS: Final = 0.1
# Frames of this size on average are written as they are: copying MiBs to join them costs more than it saves.
_LARGE_FRAME_BYTES: Final = 16 * 1024
# A Java client gets the responses of several turns in one write, while they are at most this many frames and
# bytes. 64 of its threads sent 1.10 times as many messages (1.07 to 1.13, 7 pairs), because one read wakes
# more of them. Our SDK has one thread, which would wait while the broker gathers: 64 of its tasks would send
# two thirds as many. While turns of other connections take longer than the last bound, each turn writes its
# own responses.
_MAX_GATHERED_FRAMES: Final = 48
_MAX_GATHERED_BYTES: Final = 64 * 1024
_MAX_GATHERING_WAIT_SECONDS: Final = 0.001
# So many requests leave at once, so that the broker begins while this side prepares others: 64 tasks of our
# SDK sent 1.13 times as many messages (1.11 to 1.30, 5 pairs).
_MAX_BUFFERED_REQUESTS: Final = 32
_JAVA: Final = int(LanguageCode.JAVA)


@dataclass(slots=True)
class ConnectionSettings:
    """Bounds of one connection."""

    # High and low watermark of the write buffer: above the first nothing more is read from the peer, until
    # the buffer has fallen to the second.
    write_high_bytes: int = 4 * 1024 * 1024
    write_low_bytes: int = 1024 * 1024
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_header_bytes: int = MAX_REQUEST_HEADER_BYTES
    max_pending_requests: int = 65_535
    # Most requests of the peer in thread pools, since each answer may be large. Its other requests wait.
    max_pooled_requests: int = 32
    # Bound of the write buffer for requests of this side: a time-out does not take their bytes back.
    max_unsent_bytes: int = 128 * 1024 * 1024
    # Whether reading stops while the peer does not read. Of two sides that talk much only one may do that, or
    # both could wait for each other for ever: the server does.
    stops_reading: bool = True
    linger_seconds: float = 5.0  # how long the peer may take to read the rest after close()


@dataclass(slots=True)
class ConnectionStatistics:
    """Plain counters shared by all connections of a server or client."""

    opened: int = 0
    refused: int = 0  # too many connections
    closed: int = 0
    protocol_errors: int = 0
    # At most one line per second in the log, for all connections.
    protocol_error_lines: RepeatedEvent = field(default_factory=partial(RepeatedEvent, 1.0))
    idle_closed: int = 0
    unread_closed: int = 0  # the peer did not read, and too many bytes waited for it and others
    bytes_read: int = 0
    bytes_written: int = 0
    reads_paused: int = 0
    # Called once `bytes_written` has reached a number.
    written_limit: int = 1 << 62
    on_written_limit: Callable[[], object] | None = None


class RequestHandler(Protocol):
    """Runs the requests of a peer and writes the responses to its connection: the dispatcher."""

    clock: Callable[[], float]

    def dispatch_all(
        self, connection: Connection, requests: list[RemotingCommand], received_at: float, now: float, /
    ) -> None:
        """Run the requests of one turn; the first has waited from `received_at` to `now`.

        Raises ProtocolError where a request turns out to be damaged.
        """


class Connection:
    """Frames in, frames out: the peer's requests go to the handler, responses to the waiting replies.

    It has the methods of an `asyncio.Protocol`, but no base class, so that it can be compiled. Event loops
    take `as_protocol`.

    All methods belong to the loop's thread. Frames written in one turn, or in one iteration of the loop,
    leave in one system call.
    """

    __slots__ = (
        "_buffer",
        "_closed",
        "_deferred",
        "_ending",
        "_exchange",
        "_flush_scheduled",
        "_handler",
        "_in_turn",
        "_is_failing",
        "_linger",
        "_loop",
        "_may_gather",
        "_on_close",
        "_on_open",
        "_pooled",
        "_settings",
        "_sweeper",
        "_transport",
        "_turn_scheduled",
        "_writable",
        "attributes",
        "is_writable",
        "local_address",
        "remote_address",
        "statistics",
    )

    def __init__(
        self,
        handler: RequestHandler,
        settings: ConnectionSettings,
        statistics: ConnectionStatistics,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self._handler = handler
        self._settings = settings
        self.statistics = statistics
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._exchange = Exchange(
            max_frame_bytes=settings.max_frame_bytes,
            max_header_bytes=settings.max_header_bytes,
            max_pending_requests=settings.max_pending_requests,
            takes_turns=settings.stops_reading,
            now=self._loop.time(),
        )
        # Set while frames can be written. From close() until the end the transport is in `_ending` instead.
        self._transport: asyncio.Transport | None = None
        self._ending: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._buffer: list[bytes] = []
        self._flush_scheduled = False
        self._in_turn = False
        self._turn_scheduled = False
        self._may_gather = False
        self._pooled = 0
        self._deferred = 0
        self._is_failing = False  # the peer broke the protocol, and earlier requests are not answered yet
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_writable = True
        self.remote_address: tuple[str, int] = ("", 0)
        self.local_address: tuple[str, int] = ("", 0)
        # State that services keep about this peer, each under a key of its own.
        self.attributes: dict[str, Any] = {}

    @property
    def as_protocol(self) -> asyncio.Protocol:
        """The connection itself, as event loops take it."""
        return cast(asyncio.Protocol, self)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, and report the connection as open."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(
            high=self._settings.write_high_bytes, low=self._settings.write_low_bytes
        )
        self.remote_address = peer_address(transport.get_extra_info("peername"))
        self.local_address = peer_address(transport.get_extra_info("sockname"))
        self._exchange.pending.peer = self.peer
        self.statistics.opened += 1
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Run the requests in `data` whose turn it is; their responses leave in one write."""
        if self._is_failing:
            return
        now = self._loop.time()
        self.statistics.bytes_read += len(data)
        exchange = self._exchange
        requests = exchange.receive(data, now)
        if requests:
            self._run(requests, now, now)
        if exchange.turns.waiting:
            self._follow()
        if exchange.failure is not None:
            self._run_waiting()
            self.fail(exchange.failure)

    def eof_received(self) -> None:
        """Answer what the peer has asked before the connection ends: it sends no more."""
        self._exchange.is_busy = False
        self._run_waiting()
        self.flush()

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read."""
        self.is_writable = self._exchange.peer_reads = False
        self._writable.clear()
        if self._settings.stops_reading:
            self.statistics.reads_paused += 1
        self._follow()

    def resume_writing(self) -> None:
        """Go on with a peer that has read."""
        self.is_writable = self._exchange.peer_reads = True
        self._writable.set()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Run requests that arrived before the end, fail pending ones, and report the end."""
        self.statistics.closed += 1
        is_cut_off = self._ending is not None or not self.is_writable
        self._transport = self._ending = None
        self._exchange.is_busy = False
        # Requests that arrived before the peer closed run, unless this side closed: some want no response.
        while not is_cut_off and (turn := self._exchange.next_turn()) is not None:
            self._run(*turn, self._handler.clock())
        self._exchange.turns.drop()
        self._buffer.clear()
        self._writable.set()
        for timer in (self._sweeper, self._linger):
            if timer is not None:
                timer.cancel()
        self._sweeper = self._linger = None
        self._exchange.pending.fail_all(exc)
        if not self._closed.done():
            self._closed.set_result(None)
        if self._on_close is not None:
            self._on_close(self)

    # --- turns ---

    def waiting_since(self, codes: frozenset[int]) -> float | None:
        """Return since when the oldest request with one of these codes has waited for its turn; None: none.

        By the loop's clock; from any thread.
        """
        turns = self._exchange.turns
        return turns.oldest(codes) if turns.waiting else None

    def pool_entered(self) -> None:
        """Count a request that was passed to a thread pool."""
        self._pooled += 1
        if self._pooled == self._settings.max_pooled_requests:
            self._exchange.is_busy = True

    def pool_left(self) -> None:
        """Count the end of such a request, after its response was written."""
        self._pooled -= 1
        self._end_if_answered()
        if self._exchange.is_busy and self._pooled < self._settings.max_pooled_requests:
            self._exchange.is_busy = False
            self._exchange.turns.ended(self._handler.clock())
            self._follow()

    def answer_deferred(self) -> None:
        """Count a request whose response is written later, except held ones."""
        self._deferred += 1

    def answer_written(self) -> None:
        """Count the end of such a request, after its response was written."""
        self._deferred -= 1
        self._end_if_answered()

    def _end_if_answered(self) -> None:
        if self._is_failing and not (self._deferred or self._pooled):
            self.close()

    def _run(self, requests: list[RemotingCommand], received_at: float, now: float) -> None:
        self._in_turn = True
        try:
            self._handler.dispatch_all(self, requests, received_at, now)
        except ProtocolError as error:
            self._exchange.turns.drop()
            self.fail(error)
        finally:
            self._in_turn = False
            if not self._waits_for_next_turn():
                self.flush()
        if self._exchange.turns.waiting:
            self._exchange.turns.ended(self._handler.clock())

    def _waits_for_next_turn(self) -> bool:
        """Whether the buffered responses wait for those of the next turn."""
        buffer = self._buffer
        return (
            self._may_gather
            and self._exchange.has_turn
            and len(buffer) <= _MAX_GATHERED_FRAMES
            and sum(map(len, buffer)) <= _MAX_GATHERED_BYTES
        )

    def _follow(self) -> None:
        """Read or stop reading, and schedule the next turn, as the exchange wants it now."""
        transport, exchange = self._transport, self._exchange
        if transport is None or transport.is_closing() or self._is_failing:
            return
        if exchange.wants_data:
            transport.resume_reading()
        else:
            transport.pause_reading()
        # In an iteration of its own: other connections have their turns first, and a transport that reports
        # that it can be written to is in the middle of a write.
        if exchange.has_turn and not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._run_next)

    def _run_next(self) -> None:
        self._turn_scheduled = False
        if self._transport is not None and (turn := self._exchange.next_turn()) is not None:
            requests, ready_at = turn
            now = self._handler.clock()
            self._may_gather = requests[0].language == _JAVA and now - ready_at < _MAX_GATHERING_WAIT_SECONDS
            self._run(requests, ready_at, now)
            self._follow()

    def _run_waiting(self) -> None:
        while self._transport is not None and (turn := self._exchange.next_turn()) is not None:
            self._run(*turn, self._handler.clock())

    # --- writing ---

    def write(self, command: RemotingCommand) -> None:
        """Send a command; dropped silently if the connection has ended."""
        self.write_frame(encode_frame(command))

    def write_frame(self, frame: bytes) -> None:
        """Send an encoded frame; dropped silently if the connection has ended."""
        if self._transport is None:
            return
        self._buffer.append(frame)
        if not (self._in_turn or self._flush_scheduled):
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand the buffered frames to the transport now, not at the end of the loop's iteration."""
        self._flush_scheduled = False
        buffer = self._buffer
        if buffer and self._transport is not None:
            size = len(buffer[0]) if len(buffer) == 1 else sum(map(len, buffer))
            self.statistics.bytes_written += size
            if len(buffer) == 1:
                self._transport.write(buffer[0])
            elif size < _LARGE_FRAME_BYTES * len(buffer):
                self._transport.write(b"".join(buffer))
            else:
                self._transport.writelines(buffer)
            buffer.clear()
            if self.statistics.bytes_written >= self.statistics.written_limit:
                self._written_limit_reached()

    def _written_limit_reached(self) -> None:
        statistics = self.statistics
        statistics.written_limit = 1 << 62  # until the next one is set
        if statistics.on_written_limit is not None:
            statistics.on_written_limit()

    def drain(self) -> Coroutine[None, None, object]:
        """Wait until the write buffer is below its watermark, or the connection has ended."""
        return self._writable.wait()

    # --- requests of this side ---

    def send_request(
        self, command: RemotingCommand, timeout_seconds: float
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future ends with the response, or with a RequestError."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.send_frame(command.opaque, encode_frame(command), timeout_seconds, future)
        return future

    def send_frame(self, opaque: int, frame: bytes, timeout_seconds: float, reply: Reply) -> None:
        """Send an encoded request; `reply` gets the response, or a RequestError.

        Raises ConnectionClosed or TooManyRequests where nothing can be sent, ValueError where a request of
        the same number is pending.
        """
        if self._transport is None:
            raise ConnectionClosed(f"the connection to {self.peer} has ended")
        if not self.is_writable and self.unsent_bytes > self._settings.max_unsent_bytes:
            raise TooManyRequests(
                f"{self.peer} does not read: {self.unsent_bytes} bytes wait to be sent, the limit is "
                f"{self._settings.max_unsent_bytes}; slow down"
            )
        self._exchange.pending.add(opaque, reply, timeout_seconds, self._loop.time())
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        self.write_frame(frame)
        if len(self._buffer) >= _MAX_BUFFERED_REQUESTS:
            self.flush()

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that gets no response. Raises ConnectionClosed, TooManyRequests."""
        if self._transport is None:
            raise ConnectionClosed(f"the connection to {self.peer} has ended")
        if not self.is_writable:
            raise TooManyRequests(f"{self.peer} does not read: one-way request not sent; slow down")
        command.flag |= FLAG_ONEWAY
        self.write_frame(encode_frame(command))

    @property
    def pending_requests(self) -> int:
        """Number of requests of this side that wait for a response."""
        return len(self._exchange.pending)

    def _sweep(self) -> None:
        """Time requests out: one timer per connection, not one per request."""
        pending = self._exchange.pending
        pending.expire(self._loop.time())
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep) if pending.by_number else None

    # --- end ---

    @property
    def peer(self) -> str:
        """The peer's address as host:port."""
        return address_text(self.remote_address)

    @property
    def last_command_at(self) -> float:
        """When the peer completed a command for the last time, or connected, by the loop's clock."""
        return self._exchange.last_command_at

    @property
    def descriptor(self) -> int:
        """Number of the socket's descriptor; -1 without a socket."""
        return -1 if self._transport is None else descriptor_of(self._transport)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written, also before close(), that the operating system has not taken yet."""
        transport = self._transport or self._ending
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        return self._transport is None or self._transport.is_closing()

    def fail(self, error: ProtocolError) -> None:
        """Count that the peer broke the protocol, log it once a second, and close the connection.

        Earlier requests in thread pools, and those with deferred answers, are answered first. The connection
        waits at most `linger_seconds` for them, and reads nothing more. Held requests are dropped.
        """
        if self._transport is None or self._transport.is_closing() or self._is_failing:
            return
        self.statistics.protocol_errors += 1
        if count := self.statistics.protocol_error_lines.occurred():
            log.warning(
                "connection closed, protocol error of the peer peer=%s errors=%d cause=%s",
                self.peer,
                count,
                error,
            )
        if not (self._deferred or self._pooled):
            self.close()
            return
        self._is_failing = True
        self._exchange.turns.drop()
        self._transport.pause_reading()
        self._linger = self._loop.call_later(self._settings.linger_seconds, self.close)

    def close(self) -> None:
        """Close the connection after the buffered frames are sent.

        A connection whose peer does not read them within `linger_seconds` is aborted.
        """
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._ending, self._transport = self._transport, None
            if self._linger is not None:
                self._linger.cancel()
            self._linger = self._loop.call_later(self._settings.linger_seconds, self.abort)
            self._ending.close()

    def abort(self) -> None:
        """Close the connection at once; buffered frames are lost.

        If the peer has not read some, the connection is reset. Otherwise the kernel would keep what it has
        taken for minutes, for a peer that does not read.
        """
        transport = self._transport or self._ending
        if transport is not None:
            if transport.get_write_buffer_size():
                reset_on_close(transport)
            transport.abort()

    def wait_closed(self) -> asyncio.Future[None]:
        """Wait until the connection has ended."""
        return asyncio.shield(self._closed)
