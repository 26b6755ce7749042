"""A transport without a socket that records its writes."""

from __future__ import annotations

import asyncio
from typing import Any


class FakeTransport(asyncio.Transport):
    """Behaves like asyncio's socket transport towards its protocol.

    `taking=False` is a peer that does not read: written data stays in the buffer, and the watermarks apply.
    """

    def __init__(self, protocol: asyncio.Protocol, *, taking: bool = True) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.buffered_bytes = 0
        self.most_buffered_bytes = 0
        self.reading = True
        self.aborted = False
        self._protocol = protocol
        self._taking = taking
        self._high_bytes = self._low_bytes = 0
        self._writing_paused = False
        self._closing = False
        self._lost = False
        self._loop = asyncio.get_running_loop()
        protocol.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 40_000), "sockname": ("192.0.2.2", 10_911)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes, self._low_bytes = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost:
            raise AssertionError("written to after the connection's end")
        self.writes.append(bytes(data))
        if self._taking:
            return
        self.buffered_bytes += len(data)
        self.most_buffered_bytes = max(self.most_buffered_bytes, self.buffered_bytes)
        if self.buffered_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def take(self, *, once: bool = False) -> None:
        """Let the peer read the buffer, and go on reading unless `once`."""
        self._taking = not once
        self.buffered_bytes = 0
        if self._writing_paused:  # also in a closing connection, as in asyncio
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing:
            self._loop.call_soon(self._lose, None)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.reading = False
            if not self.buffered_bytes:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.aborted = True
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """End the connection: locally, or with `error` by the network."""
        self._closing = True
        self._loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)
