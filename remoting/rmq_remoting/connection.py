"""One connection, whichever side opened it: a thin asyncio protocol over the sans-I/O core."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from .codes import FLAG_ONEWAY, FLAG_RESPONSE
from .command import RemotingCommand
from .dispatch import Dispatcher
from .errors import ConnectionClosed, ProtocolError, RequestTimeout, TooManyRequests
from .framing import MAX_FRAME_BYTES, FrameDecoder, encode_frame

log = logging.getLogger("rmq.remoting.connection")

_SWEEP_SECONDS: Final = 0.1
# Larger ones leave as they are: memory for a copy of MiBs costs more than it saves.
_LARGE_FRAME_BYTES: Final = 16 * 1024
# So many requests of a peer are run in one go: then what they gave leaves, and others have their turn.
_TURN: Final = 16
# With so many that wait for their turn nothing more is read from the peer until they have had it.
_MANY_HELD: Final = 256


@dataclass(slots=True)
class ConnectionSettings:
    """Bounds of one connection."""

    write_high_bytes: int = 4 * 1024 * 1024  # over this, nothing more is read from a peer that does not read
    write_low_bytes: int = 1024 * 1024
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_pending_requests: int = 65_535
    # What requests may leave in memory for a peer that does not read: time-outs do not take it back.
    max_unsent_bytes: int = 128 * 1024 * 1024
    # Whether a peer that does not read is not read from. Of two sides that talk much only one may do that, or
    # both could wait for each other for ever: the server does.
    stops_reading: bool = True
    linger_seconds: float = 5.0  # after close(), how long the peer may take to read what is buffered


@dataclass(slots=True)
class ConnectionStatistics:
    """Plain counters shared by all connections of a server or client."""

    opened: int = 0
    closed: int = 0
    protocol_errors: int = 0
    idle_closed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    reads_paused: int = 0


class Reply(Protocol):
    """Who waits for a response: a future, or what behaves like one."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: RemotingCommand, /) -> None:
        """The response has come."""

    def set_exception(self, exception: BaseException, /) -> None:
        """It will not come (a RequestError says why)."""


class Connection(asyncio.Protocol):
    """Frames in, frames out; requests of the peer go to the dispatcher, responses to who waits for them.

    All methods belong to the loop's thread. Writes of one loop iteration leave in one system call.
    """

    __slots__ = (
        "_buffer",
        "_closed",
        "_decoder",
        "_dispatcher",
        "_ending",
        "_flush_scheduled",
        "_held",
        "_held_count",
        "_linger",
        "_loop",
        "_on_close",
        "_on_open",
        "_pending",
        "_reading",
        "_resume_scheduled",
        "_settings",
        "_sweeper",
        "_transport",
        "_turn_ended",
        "_writable",
        "attributes",
        "is_writable",
        "last_active",
        "local_address",
        "remote_address",
        "statistics",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: ConnectionSettings,
        statistics: ConnectionStatistics,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._settings = settings
        self.statistics = statistics
        self._on_open = on_open
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(settings.max_frame_bytes)
        # What can be written to; once this side has begun to close, it is `_ending` instead.
        self._transport: asyncio.Transport | None = None
        self._ending: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._buffer: list[bytes] = []
        self._flush_scheduled = False
        self._reading = False
        # Requests that wait for their turn, or until the peer has taken the answers to those before them.
        # By read, with the time of it.
        self._held: deque[tuple[list[RemotingCommand], float]] = deque()
        self._held_count = 0
        self._turn_ended = 0.0
        self._resume_scheduled = False
        # By request number: who waits, until when, and how long that is in all (seconds).
        self._pending: dict[int, tuple[Reply, float, float]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_writable = True
        self.last_active = self._loop.time()
        self.remote_address: tuple[str, int] = ("", 0)
        self.local_address: tuple[str, int] = ("", 0)
        # What a service wants to remember about this peer, by a key of its own.
        self.attributes: dict[str, Any] = {}

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(
            high=self._settings.write_high_bytes, low=self._settings.write_low_bytes
        )
        self.remote_address = _address(transport.get_extra_info("peername"))
        self.local_address = _address(transport.get_extra_info("sockname"))
        self.statistics.opened += 1
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Cut, decode, answer; what a turn gives to write leaves in one write."""
        now = self.last_active = self._loop.time()
        self.statistics.bytes_read += len(data)
        decoder = self._decoder
        commands = decoder.feed(data)
        if commands:
            if self._pending:
                commands = [command for command in commands if not self._resolve(command)]
            if commands:
                self._take(commands, now)
        if decoder.failure is not None:
            self._run_held()
            self.fail(decoder.failure)

    def eof_received(self) -> None:
        """The peer sends no more: what it has asked is answered before the connection ends."""
        self._run_held()

    def _take(self, commands: list[RemotingCommand], now: float) -> None:
        is_first = not self._held
        # Where reading goes on regardless, requests that are held back would only pile up.
        if not self._settings.stops_reading or (is_first and len(commands) <= _TURN):
            self._run(commands, now, now)
            return
        self._held.append((commands, now))
        self._held_count += len(commands)
        if is_first:
            self._take_turn(now)
        elif self._held_count > _MANY_HELD:
            self._pause_reading()

    def _take_turn(self, now: float) -> None:
        commands, received_at = self._held.popleft()
        if len(commands) > _TURN:
            self._held.appendleft((commands[_TURN:], received_at))
            commands = commands[:_TURN]
        self._held_count -= len(commands)
        # Late is who waited long for his turn; his own requests before these are no reason.
        self._run(commands, max(received_at, self._turn_ended), now)
        if self._held:
            self._turn_ended = self._dispatcher.clock()
            if self.is_writable:
                self._resume_soon()

    def _run_held(self) -> None:
        while self._held and self.is_writable and self._transport is not None:
            self._take_turn(self._dispatcher.clock())

    def _resume_soon(self) -> None:
        if not self._resume_scheduled:
            self._resume_scheduled = True
            self._loop.call_soon(self._resume)

    def _run(self, commands: list[RemotingCommand], received_at: float, now: float) -> None:
        self._reading = True
        try:
            self._dispatcher.dispatch_all(self, commands, received_at, now)
        except ProtocolError as error:
            self._held.clear()
            self._held_count = 0
            self.fail(error)
        finally:
            self._reading = False
            self.flush()

    def pause_writing(self) -> None:
        """The peer does not read: stop reading from it."""
        self.is_writable = False
        self._writable.clear()
        if not self._settings.stops_reading:
            return
        self.statistics.reads_paused += 1
        self._pause_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has read: go on."""
        self.is_writable = True
        self._writable.set()
        if not self._settings.stops_reading:
            return
        if self._held:
            # Not from here: the transport is in the middle of writing.
            self._resume_soon()
        else:
            self._resume()

    def _resume(self) -> None:
        self._resume_scheduled = False
        if self._held and self.is_writable and self._transport is not None:
            self._take_turn(self._dispatcher.clock())
        if self.is_writable and self._held_count <= _MANY_HELD and not self.is_closed:
            cast(asyncio.Transport, self._transport).resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits."""
        self.statistics.closed += 1
        is_cut_off = self._ending is not None or not self.is_writable
        self._transport = self._ending = None
        # What came before the end is run, unless it is ours; not all of it wants an answer.
        while self._held and not is_cut_off:
            self._run(*self._held.popleft(), self._dispatcher.clock())
        self._held.clear()
        self._buffer.clear()
        self._writable.set()
        for timer in (self._sweeper, self._linger):
            if timer is not None:
                timer.cancel()
        self._sweeper = self._linger = None
        pending, self._pending = self._pending, {}
        for future, _, _ in pending.values():
            if not future.done():
                future.set_exception(
                    ConnectionClosed(f"the connection to {self.peer} ended" + (f": {exc}" if exc else ""))
                )
        if not self._closed.done():
            self._closed.set_result(None)
        if self._on_close is not None:
            self._on_close(self)

    # --- writing ---

    def write(self, command: RemotingCommand) -> None:
        """Send a command; dropped silently if the connection has ended."""
        self.write_frame(encode_frame(command))

    def write_frame(self, frame: bytes) -> None:
        """Send an encoded frame; dropped silently if the connection has ended."""
        if self._transport is None:
            return
        self._buffer.append(frame)
        if not (self._reading or self._flush_scheduled):
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what has been given to write, without waiting for the end of the loop's iteration."""
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

    async def drain(self) -> None:
        """Wait while the peer has too much to read."""
        await self._writable.wait()

    # --- requests of ours ---

    def send_request(
        self, command: RemotingCommand, timeout_seconds: float
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future gives the response, or ends with a RequestError."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.send_frame(command.opaque, encode_frame(command), timeout_seconds, future)
        return future

    def send_frame(self, opaque: int, frame: bytes, timeout_seconds: float, reply: Reply) -> None:
        """Send an encoded request; `reply` gets the response, or a RequestError.

        Raises ConnectionClosed or TooManyRequests where nothing can be sent, ValueError where a request of
        the same number is under way.
        """
        if self._transport is None:
            raise ConnectionClosed(f"the connection to {self.peer} has ended")
        if len(self._pending) >= self._settings.max_pending_requests:
            raise TooManyRequests(
                f"{len(self._pending)} requests to {self.peer} wait for an answer already; slow down"
            )
        if not self.is_writable and self.unsent_bytes > self._settings.max_unsent_bytes:
            raise TooManyRequests(
                f"{self.peer} does not read: {self.unsent_bytes} bytes wait for it already; slow down"
            )
        if opaque in self._pending:
            raise ValueError(f"request number {opaque} is under way to {self.peer} already")
        self._pending[opaque] = (reply, self._loop.time() + timeout_seconds, timeout_seconds)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        self.write_frame(frame)

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that gets no answer. Raises where nothing can be sent."""
        if self._transport is None:
            raise ConnectionClosed(f"the connection to {self.peer} has ended")
        if not self.is_writable:
            raise TooManyRequests(f"{self.peer} does not read: one-way request not sent")
        command.flag |= FLAG_ONEWAY
        self.write_frame(encode_frame(command))

    @property
    def pending_requests(self) -> int:
        """How many requests of ours wait for their answer."""
        return len(self._pending)

    def _resolve(self, command: RemotingCommand) -> bool:
        if not command.flag & FLAG_RESPONSE:
            return False
        entry = self._pending.pop(command.opaque, None)
        # A response that nobody waits for any more came after its time: dropped.
        if entry is not None and not entry[0].done():
            entry[0].set_result(command)
        return True

    def _sweep(self) -> None:
        """Time out what has waited too long: one timer per connection, not one per request."""
        now = self._loop.time()
        late = [opaque for opaque, (reply, due, _) in self._pending.items() if due <= now or reply.done()]
        for opaque in late:
            reply, _, timeout_seconds = self._pending.pop(opaque)
            if not reply.done():
                problem = f"no answer from {self.peer} within {timeout_seconds:g} s"
                reply.set_exception(RequestTimeout(problem))
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep) if self._pending else None

    # --- end ---

    @property
    def peer(self) -> str:
        """The other side as host:port."""
        host, port = self.remote_address
        return f"{host}:{port}"

    @property
    def unsent_bytes(self) -> int:
        """What has been written, also before `close`, and is not with the system yet."""
        transport = self._transport or self._ending
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def fail(self, error: ProtocolError) -> None:
        """The peer broke the protocol: one log line, one count, and the end of the connection."""
        if self._transport is None or self._transport.is_closing():
            return
        self.statistics.protocol_errors += 1
        log.warning("closing the connection of %s: %s", self.peer, error)
        self.close()

    def close(self) -> None:
        """End the connection once what is buffered has been sent; a peer that does not read it is cut off."""
        if self._transport is not None and not self._transport.is_closing():
            self.flush()
            self._ending, self._transport = self._transport, None
            self._linger = self._loop.call_later(self._settings.linger_seconds, self.abort)
            self._ending.close()

    def abort(self) -> None:
        """End the connection at once."""
        transport = self._transport or self._ending
        if transport is not None:
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await asyncio.shield(self._closed)


def _address(name: object) -> tuple[str, int]:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return "", 0
