"""Connections within one process and loop: what one side writes, the other one reads, without a socket.

A request over the loopback interface takes four system calls more. Flow control and the order of events are
those of sockets: nothing is delivered within the call that writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

_HIGH_BYTES: Final = 64 * 1024

Address: TypeAlias = tuple[str, int]
# Connects a client's protocol to a server of this process. Raises OSError.
Link: TypeAlias = Callable[[asyncio.Protocol], None]


def connect_in_memory(
    loop: asyncio.AbstractEventLoop,
    one: asyncio.BaseProtocol,
    address_of_one: Address,
    other: asyncio.BaseProtocol,
    address_of_other: Address,
) -> None:
    """Connect two protocols of one loop. Each sees the address of the other."""
    of_one = MemoryTransport(loop, one, address_of_one, address_of_other)
    of_other = MemoryTransport(loop, other, address_of_other, address_of_one)
    of_one.join(of_other)
    other.connection_made(of_other)
    one.connection_made(of_one)


class MemoryTransport(asyncio.Transport):
    """One side of a connection. Belongs to one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        own: Address,
        other: Address,
    ) -> None:
        """`own` and `other` are the addresses that the sides show."""
        super().__init__({"sockname": own, "peername": other})
        self._loop = loop
        self._protocol: Any = protocol
        self._other: MemoryTransport | None = None
        # Bytes written and not delivered to the peer yet.
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._high_bytes = _HIGH_BYTES
        self._low_bytes = _HIGH_BYTES // 4
        self._is_paused = False  # the protocol of this side was told to pause writing
        self._reads = True
        self._delivery_scheduled = False
        self._is_closing = False
        self._has_ended = False

    def join(self, other: MemoryTransport) -> None:
        """Connect both sides; their protocols are told about it by `connection_made` of the caller."""
        self._other, other._other = other, self

    # --- asyncio.WriteTransport ---

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the numbers of unread bytes at which the protocol is told to pause and to resume."""
        self._high_bytes = _HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the peer has not read."""
        return self._unread_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Deliver bytes in a later iteration of the loop; dropped silently after the end."""
        if self._is_closing or not data:
            return
        self._unread.append(bytes(data))
        self._unread_bytes += len(data)
        self._schedule()
        if self._unread_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Return False: a side ends both directions at once."""
        return False

    def close(self) -> None:
        """End the connection after the peer has read all bytes."""
        if not self._is_closing:
            self._is_closing = True
            self._schedule()

    def abort(self) -> None:
        """End the connection at once; unread bytes are lost."""
        self._unread.clear()
        self._unread_bytes = 0
        self._is_closing = True
        self._schedule()

    def is_closing(self) -> bool:
        """Whether the connection ends or has ended."""
        return self._is_closing

    # --- asyncio.ReadTransport ---

    def is_reading(self) -> bool:
        """Whether this side takes bytes."""
        return self._reads and not self._is_closing

    def pause_reading(self) -> None:
        """Take no bytes until `resume_reading`."""
        self._reads = False

    def resume_reading(self) -> None:
        """Take bytes again."""
        if not self._reads:
            self._reads = True
            if self._other is not None:
                self._other._schedule()

    # --- delivery ---

    def _schedule(self) -> None:
        if not self._delivery_scheduled:
            self._delivery_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery_scheduled = False
        other = self._other
        if other is None or self._has_ended:
            return
        if self._unread and other._reads and not other._is_closing:
            data = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
            self._unread.clear()
            self._unread_bytes = 0
            other._protocol.data_received(data)
            if self._is_paused:
                self._is_paused = False
                self._protocol.resume_writing()
        if (self._is_closing and not self._unread) or other._is_closing:
            self._end()

    def _end(self) -> None:
        for side in (self, self._other):
            if side is not None and not side._has_ended:
                side._has_ended = side._is_closing = True
                side._unread.clear()
                side._unread_bytes = 0
                self._loop.call_soon(side._protocol.connection_lost, None)
