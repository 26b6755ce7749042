"""The master's end of the connection to one replica: it sends the log as it grows.

Source: Apache RocketMQ 5.3.3, DefaultHAConnection, FlowMonitor.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from .protocol import ReplicationProtocolError, ReportReader, transfer_head

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ..settings.replication import HaSettings
    from ..store.api import MessageStore, ReplicaPosition

log = logging.getLogger("rmq.broker.replication")

# Bytes that the transport keeps for a replica that reads slowly.
_HIGH_WATER_BYTES: Final = 1 << 20
# Bytes sent in one turn of the event loop.
_TURN_BYTES: Final = 1 << 20
# Bytes read at a time of a part of the log that may not be in memory.
_COLD_READ_BYTES: Final = 1 << 20
# A replica this close to the end of the log reads recent messages, which are in memory.
_HOT_BYTES: Final = 16 << 20


class ReplicaConnection(asyncio.Protocol):
    """One replica; the server's callbacks hear of its begin and end."""

    _transport: asyncio.Transport

    def __init__(
        self,
        store: MessageStore,
        settings: HaSettings,
        executor: Executor,
        admit: Callable[[ReplicaConnection, str], str | None],
        on_closed: Callable[[ReplicaConnection], None],
    ) -> None:
        """`admit` returns why a connection from a host is refused, None if it is not."""
        self._store = store
        self._settings = settings
        self._executor = executor
        self._admit = admit
        self._on_closed = on_closed
        self._reports = ReportReader()
        self._loop = asyncio.get_running_loop()
        self._is_open = False
        self._is_paused = False
        self._is_scheduled = False
        self._is_reading = False
        self._has_caught_up = False
        self._second = 0  # the second that `_sent_in_second` counts
        self._sent_in_second = 0
        self._read_at = self._wrote_at = self._loop.time()
        # The rest is for status and metrics.
        self.name = ""
        self.position: ReplicaPosition | None = None
        self.next_offset = -1  # the log offset that is sent next; -1 before the first report
        self.sent_bytes = 0
        self.bytes_per_second = 0
        self._sent_before = 0

    # --- transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the replica, or close the connection."""
        self._transport = cast("asyncio.Transport", transport)
        host, port = transport.get_extra_info("peername")[:2]
        self.name = f"{host}:{port}"
        refusal = self._admit(self, host)
        if refusal is not None:
            log.warning("replica refused address=%s cause=%s", self.name, refusal)
            self._transport.abort()
            return
        self._is_open = True
        self._transport.set_write_buffer_limits(_HIGH_WATER_BYTES)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Take the replica's log offsets."""
        self._read_at = self._loop.time()
        try:
            self._received(data)
        except ReplicationProtocolError as error:
            self.close(str(error))

    def pause_writing(self) -> None:
        """Send no more until the replica has read."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send again."""
        self._is_paused = False
        self.send_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the replica."""
        if not self._is_open:
            return
        self._is_open = False
        if self.position is not None:
            self._store.replicas.leave(self.position)
            log.warning("replica disconnected address=%s cause=%s", self.name, error or "closed")
        self._on_closed(self)

    def close(self, cause: str) -> None:
        """End the connection."""
        if self._is_open:
            log.warning("closing the connection of a replica address=%s cause=%s", self.name, cause)
            self._transport.abort()

    # --- each second ---

    def check(self) -> None:
        """Close a silent connection, send a heartbeat if one is due; called each second."""
        self.bytes_per_second = self.sent_bytes - self._sent_before
        self._sent_before = self.sent_bytes
        now, settings = self._loop.time(), self._settings
        silent_ms = (now - self._read_at) * 1000
        if silent_ms > settings.ha_housekeeping_interval_ms:
            self.close(f"silent for {silent_ms:.0f} ms, longer than haHousekeepingInterval")
        elif self.next_offset >= 0:
            idle_ms = (now - self._wrote_at) * 1000
            if idle_ms >= settings.ha_send_heartbeat_interval_ms and not self._is_paused:
                self._write(self.next_offset, b"")
            self.send_soon()  # flow control may allow more bytes

    # --- the language of the replica ---

    def _received(self, data: bytes) -> None:
        """Take what the replica sent. Raises ReplicationProtocolError."""
        for offset in self._reports.feed(data):
            self._reported(offset)

    def _head(self, offset: int, size: int) -> bytes:
        """Encode the head of a transfer."""
        return transfer_head(offset, size)

    def _piece(self, offset: int, size: int) -> int:
        """Return how many of `size` bytes from `offset` on one transfer may have; 0 or less: none now."""
        return size

    @property
    def _begins_with_last_file(self) -> bool:
        """Whether a replica without a log gets the last file alone."""
        return self._settings.sync_from_last_file

    # --- sending ---

    def send_soon(self) -> None:
        """Send what the log has, in a later iteration of the event loop."""
        if not (self._is_scheduled or self._is_paused or self._is_reading) and self.next_offset >= 0:
            self._is_scheduled = True
            self._loop.call_soon(self._send)

    def _reported(self, offset: int) -> None:
        end = self._store.transferable_end
        if self.next_offset < 0:
            begin = self._begin_at(offset)
            if begin is None:
                return
            self.next_offset = begin
            self.send_soon()
            # Of a connection that has only asked for bytes it is not known whether it takes them over: a
            # replica compares its log with this one first.
            if offset == end:
                self._joins(offset)
        elif offset > end:
            raise ReplicationProtocolError(f"the replica acknowledged {offset}, the log ends at {end}")
        elif self.position is None:
            self._joins(offset)
        else:
            self._store.replicas.acknowledge(self.position, offset)

    def _joins(self, offset: int) -> None:
        self.position = self._store.replicas.join(self.name, offset)
        log.info("replica connected address=%s its_log_end=%d", self.name, offset)

    def _begin_at(self, offset: int) -> int | None:
        """Return the log offset to send from; None if the replica cannot follow, and is closed."""
        store = self._store
        first, end = store.min_phy_offset(), store.transferable_end
        if offset == 0:
            return store.last_file_offset() if self._begins_with_last_file else first
        if offset < first:
            self.close(
                f"its log ends at {offset}, this log begins at {first}: the messages between are deleted. "
                "Remove the replica's store, so that it begins from nothing"
            )
            return None
        if offset > end:
            self.close(
                f"its log ends at {offset}, behind the end of this log ({end}): it has messages that this "
                "master does not have. See docs/replication.md"
            )
            return None
        return offset

    def _send(self) -> None:
        self._is_scheduled = False
        if not self._is_open or self._is_paused or self._is_reading:
            return
        store, offset = self._store, self.next_offset
        behind = store.transferable_end - offset
        if behind <= 0:
            self._has_caught_up = True
            return
        if self._has_caught_up and behind <= _HOT_BYTES:
            self._send_turn()
        else:
            self._has_caught_up = False
            self._is_reading = True
            reading = self._loop.run_in_executor(self._executor, store.transferable, offset, _COLD_READ_BYTES)
            reading.add_done_callback(self._have_read)

    def _send_turn(self) -> None:
        """Send bytes that are in memory."""
        rest = _TURN_BYTES
        while rest > 0 and not self._is_paused:
            most = min(self._settings.ha_transfer_batch_bytes, self._allowed_bytes())
            size = self._piece(self.next_offset, most)
            if size <= 0:
                return
            data = self._store.transferable(self.next_offset, size)
            if not data:
                return
            self._write(self.next_offset, data)
            rest -= len(data)
        self.send_soon()

    def _have_read(self, reading: asyncio.Future[bytes | None]) -> None:
        """Send bytes that a thread has read, in transfers of the usual size."""
        self._is_reading = False
        if not self._is_open:
            return
        try:
            data = reading.result()
        except OSError as error:
            self.close(f"the log cannot be read at {self.next_offset}: {error}")
            return
        if not data:
            self.close(f"the log has no byte {self.next_offset} any more: its file was deleted")
            return
        batch = self._settings.ha_transfer_batch_bytes
        position = 0
        while position < len(data):
            size = self._piece(self.next_offset, min(batch, self._allowed_bytes()))
            if size <= 0:
                return  # `check` goes on in the next second
            piece = data[position : position + size]
            self._write(self.next_offset, piece)
            position += len(piece)
        self.send_soon()

    def _allowed_bytes(self) -> int:
        """Return how many bytes flow control allows now."""
        settings = self._settings
        if not settings.ha_flow_control_enable:
            return settings.ha_transfer_batch_bytes
        second = int(self._loop.time())
        if second != self._second:
            self._second, self._sent_in_second = second, 0
        return settings.max_ha_transfer_bytes_per_second - self._sent_in_second

    def _write(self, offset: int, data: bytes) -> None:
        self._wrote_at = self._loop.time()
        head = self._head(offset, len(data))
        self._transport.writelines((head, data))
        self.next_offset = offset + len(data)
        self._sent_in_second += len(head) + len(data)
        self.sent_bytes += len(head) + len(data)
