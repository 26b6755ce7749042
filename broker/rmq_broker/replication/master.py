"""The master as its replica sees it: addresses, the extent of its log, and a connection to its log."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from rmq_remoting.errors import BodyError, RequestError

from ..registration.master_address import MasterAddress
from .metadata.master import Master, MetadataError
from .protocol import ReplicationProtocolError, Transfer, TransferReader, report

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

_CONNECT_SECONDS: Final = 3.0
_REQUEST_SECONDS: Final = 3.0
# Bytes that wait to be received; behind them nothing more is read.
_MAX_UNREAD_BYTES: Final = 2 << 20


class MasterUnavailable(Exception):
    """The master cannot be reached, or ended the connection."""


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The log offsets at which a broker's log begins and ends."""

    begin: int
    end: int


async def log_extent(client: RemotingClient, master: MasterAddress) -> LogExtent:
    """Ask a master for the extent of its log. Raises MasterUnavailable."""
    if not master.clients:
        raise MasterUnavailable(
            "the address of the master's port of requests is not known: set namesrvAddr on this replica"
        )
    try:
        state = await Master(client, master.clients, _REQUEST_SECONDS).state()
    except (RequestError, MetadataError, BodyError) as error:
        raise MasterUnavailable(
            f"the master {master.clients} does not tell the extent of its log: {error}"
        ) from error
    return LogExtent(state.log_begin, state.log_end)


class MasterConnection(asyncio.Protocol):
    """A connection to a master's port of replication.

    Its transfers are received one after another, or delivered as they arrive: that is faster, but whoever
    takes them must not wait.
    """

    def __init__(self, silence_seconds: float) -> None:
        """A master that is silent for longer is taken for lost."""
        self._loop = asyncio.get_running_loop()
        self._silence_seconds = silence_seconds
        self._transport: asyncio.Transport | None = None
        self._transfers = TransferReader()
        self._take: Callable[[Transfer], None] | None = None
        self._undelivered: deque[Transfer] = deque()
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._end: Exception | None = None  # why nothing more is received
        self._received_at = self._loop.time()
        self._silence: asyncio.TimerHandle | None = None
        self.received_bytes = 0

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        # Reports are written at once, and not at the end of the loop's iteration: producers wait for them.
        self._transport.set_write_buffer_limits(0)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._silence = self._loop.call_later(self._silence_seconds, self._check_silence)

    def data_received(self, data: bytes) -> None:
        """Deliver the transfers, or keep the bytes."""
        if self._end is not None:
            return
        self._received_at = self._loop.time()
        self.received_bytes += len(data)
        if self._take is not None:
            self._deliver(self._take, data)
            return
        self._unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > _MAX_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever receives."""
        if self._silence is not None:
            self._silence.cancel()
        if self._end is None:
            reason = "the master ended the connection; its log tells why"
            self._end = MasterUnavailable(f"the connection failed: {error}" if error is not None else reason)
        self._transport = None
        self._wake()

    # --- receiving ---

    async def receive(self) -> list[Transfer]:
        """Return the next transfers. Raises MasterUnavailable, ReplicationProtocolError."""
        while True:
            if transfers := self._transfers.feed(await self._read()):
                return transfers

    async def deliver(self, take: Callable[[Transfer], None]) -> None:
        """Call `take` with each transfer as it arrives, until the connection ends.

        Raises what ended it: MasterUnavailable, ReplicationProtocolError, an error of `take` or of `fail`.
        Returns after `leave`.
        """
        self._take = take
        if self._unread:
            self._deliver(take, self._take_unread())
        while self._end is None:
            await self._something()
        if not isinstance(self._end, _Left):
            raise self._end

    def leave(self) -> None:
        """End the connection; `deliver` returns."""
        self.fail(_Left())

    def fail(self, error: Exception) -> None:
        """End the connection; whoever receives gets the error."""
        if self._end is None:
            self._end = error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """End the connection; whoever receives gets MasterUnavailable."""
        if self._transport is not None:
            self._transport.abort()

    # --- sending ---

    def report(self, offset: int) -> None:
        """Tell the master a log offset. The first one is where it begins to send."""
        self._write(report(offset))

    def _write(self, data: bytes) -> None:
        """Write, unless the connection has ended."""
        # uvloop raises RuntimeError for a write after that.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # --- inside ---

    async def _read(self) -> bytes:
        """Return the next bytes. Raises MasterUnavailable."""
        while not self._unread:
            if self._end is not None:
                raise self._end
            await self._something()
        return self._take_unread()

    async def _something(self) -> None:
        """Wait until bytes have arrived, or the connection has ended."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take_unread(self) -> bytes:
        unread = self._unread
        data = unread[0] if len(unread) == 1 else b"".join(unread)
        unread.clear()
        if self._unread_bytes > _MAX_UNREAD_BYTES and self._transport is not None:
            self._transport.resume_reading()
        self._unread_bytes = 0
        return data

    def _deliver(self, take: Callable[[Transfer], None], data: bytes) -> None:
        try:
            self._undelivered += self._transfers.feed(data)
        except ReplicationProtocolError as error:
            self.fail(error)
        else:
            self._deliver_next(take)

    def _deliver_next(self, take: Callable[[Transfer], None]) -> None:
        """Deliver one transfer; in the next iteration of the loop, after others had their turn, the next."""
        undelivered = self._undelivered
        if self._end is not None or self._transport is None or not undelivered:
            return
        try:
            take(undelivered.popleft())
        except Exception as error:  # raised by `deliver`
            self.fail(error)
        if self._end is not None or self._transport.is_closing():
            return
        if undelivered:
            self._transport.pause_reading()
            self._loop.call_soon(self._deliver_next, take)
        else:
            self._transport.resume_reading()

    def _check_silence(self) -> None:
        """Give up on a master that has been silent for too long, while somebody waits for it."""
        allowed = self._silence_seconds
        rest = self._received_at + allowed - self._loop.time()
        if rest <= 0 and not self._unread:
            self.fail(
                MasterUnavailable(f"the master was silent for {allowed:.0f} s (haHousekeepingInterval)")
            )
        else:
            self._silence = self._loop.call_later(rest if rest > 0 else allowed, self._check_silence)


class _Left(Exception):
    """This side has ended the connection."""


_Kind = TypeVar("_Kind", bound=MasterConnection)


def connected(address: str, silence_seconds: float) -> AbstractAsyncContextManager[MasterConnection]:
    """Connect to a master's port of replication. Raises MasterUnavailable."""
    return connected_as(MasterConnection, address, silence_seconds)


@asynccontextmanager
async def connected_as(kind: type[_Kind], address: str, silence_seconds: float) -> AsyncIterator[_Kind]:
    """Connect to a master's port of replication in another language. Raises MasterUnavailable."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                lambda: kind(silence_seconds), host.strip("[]"), int(port)
            )
    except TimeoutError:
        raise MasterUnavailable(f"no connection to {address} within {_CONNECT_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        raise MasterUnavailable(f"no connection to {address}: {error}") from error
    try:
        yield connection
    finally:
        connection.abort()
