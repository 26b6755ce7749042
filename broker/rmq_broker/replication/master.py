"""The master as its replica sees it: addresses, the extent of its log, and a connection to its log."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from rmq_remoting.errors import BodyError, RequestError

from ..registration.master_address import MasterAddress
from .metadata.master import Master, MetadataError
from .protocol import Transfer, TransferReader, report

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

_CONNECT_SECONDS: Final = 3.0
_REQUEST_SECONDS: Final = 3.0
_READ_BYTES: Final = 1 << 20


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


class MasterConnection:
    """A connection to a master's port of replication."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_seconds: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._silence_seconds = silence_seconds
        self._transfers = TransferReader()
        self.received_bytes = 0

    def report(self, offset: int) -> None:
        """Tell the master a log offset. The first one is where it begins to send."""
        self._write(report(offset))

    async def receive(self) -> list[Transfer]:
        """Return the next transfers. Raises MasterUnavailable, ReplicationProtocolError."""
        while True:
            if transfers := self._transfers.feed(await self._read()):
                return transfers

    def abort(self) -> None:
        """End the connection: whoever receives gets MasterUnavailable."""
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        """Write, unless the connection has ended: the next `_read` then raises MasterUnavailable."""
        # uvloop raises RuntimeError for a write after that.
        if not self._writer.is_closing():
            self._writer.write(data)

    async def _read(self) -> bytes:
        """Return the next bytes. Raises MasterUnavailable."""
        try:
            async with asyncio.timeout(self._silence_seconds):
                data = await self._reader.read(_READ_BYTES)
        except TimeoutError:
            raise MasterUnavailable(
                f"the master was silent for {self._silence_seconds:.0f} s (haHousekeepingInterval)"
            ) from None
        except OSError as error:
            raise MasterUnavailable(f"the connection failed: {error}") from error
        if not data:
            raise MasterUnavailable("the master ended the connection; its log tells why")
        self.received_bytes += len(data)
        return data


_Kind = TypeVar("_Kind", bound=MasterConnection)


def connected(address: str, silence_seconds: float) -> AbstractAsyncContextManager[MasterConnection]:
    """Connect to a master's port of replication. Raises MasterUnavailable."""
    return connected_as(MasterConnection, address, silence_seconds)


@asynccontextmanager
async def connected_as(kind: type[_Kind], address: str, silence_seconds: float) -> AsyncIterator[_Kind]:
    """Connect to a master's port of replication in another language. Raises MasterUnavailable."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=_READ_BYTES)
    except TimeoutError:
        raise MasterUnavailable(f"no connection to {address} within {_CONNECT_SECONDS:.0f} s") from None
    except (OSError, ValueError) as error:
        raise MasterUnavailable(f"no connection to {address}: {error}") from error
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        yield kind(reader, writer, silence_seconds)
    finally:
        writer.transport.abort()
