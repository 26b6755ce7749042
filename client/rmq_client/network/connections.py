"""Connections to brokers: one per address, for all producers and consumers of a client.

A broker knows its producers and consumers by the connection of their heartbeat. So a new connection sends a
heartbeat at once, and consumers wait for its answer before they pull. The broker would refuse a pull that
overtakes the heartbeat, since it would not know the subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from rmq_remoting.client import RemotingClient
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import ConnectError, RequestError, TooManyRequests
from rmq_remoting.pending_requests import Reply
from rmq_remoting.tasks import cancel_all

log = logging.getLogger(__name__)

_FIRST_HEARTBEAT: Final = "rmq_client.first_heartbeat"
# Requests that wait for one connection attempt.
_MAX_WAITING: Final = 16_384


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits for the connection. `due`: its deadline, in seconds of the loop's clock."""

    opaque: int
    frame: bytes
    timeout_seconds: float
    due: float
    reply: Reply
    timer: asyncio.TimerHandle | None = None


class BrokerConnections:
    """Requests to broker addresses (`host:port`). Belongs to the network loop."""

    def __init__(self, client: RemotingClient, send_heartbeat: Callable[[str], Awaitable[None]]) -> None:
        """Use the connections of `client`.

        `send_heartbeat` sends a heartbeat to an address. It must use `client` itself, and not raise.
        """
        self._client = client
        self._send_heartbeat = send_heartbeat
        self._waiting: dict[str, list[_PendingRequest]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def is_connected(self, address: str) -> bool:
        """Whether there is a live connection. May be called from any thread."""
        return self._client.existing(address) is not None

    async def connect(self, address: str) -> Connection:
        """Return the connection to `address`, opened and announced if necessary. Raises ConnectError."""
        connection = await self._client.connect(address)
        heartbeat_task = connection.attributes.get(_FIRST_HEARTBEAT)
        if heartbeat_task is None:
            heartbeat_task = self._start(self._send_heartbeat(address), f"first heartbeat {address}")
            connection.attributes[_FIRST_HEARTBEAT] = heartbeat_task
        if not heartbeat_task.done():
            await asyncio.shield(heartbeat_task)
        return connection

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        """Send a request after the first heartbeat, and wait for its response. Raises RequestError."""
        connection = self._client.existing(address)
        if connection is None or _FIRST_HEARTBEAT not in connection.attributes:
            connection = await self.connect(address)
        return await connection.send_request(command, timeout_seconds)

    def post(self, address: str, opaque: int, frame: bytes, timeout_seconds: float, reply: Reply) -> None:
        """Send an encoded request now, or once there is a connection; `reply` gets the outcome.

        The timeout includes the wait for the connection: a host that does not answer at all costs no more
        than a broker that hangs. Raises RequestError if too many requests wait.
        """
        connection = self._client.existing(address)
        if connection is not None:
            connection.send_frame(opaque, frame, timeout_seconds, reply)
            return
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = []
            self._start(self._connect_and_send(address), f"connect {address}")
        elif len(waiting) >= _MAX_WAITING:
            raise TooManyRequests(f"{_MAX_WAITING} requests wait for a connection to {address}: send slower")
        loop = asyncio.get_running_loop()
        request = _PendingRequest(opaque, frame, timeout_seconds, loop.time() + timeout_seconds, reply)
        request.timer = loop.call_later(timeout_seconds, _expire, address, request)
        waiting.append(request)

    def post_oneway(self, address: str, frame: bytes) -> None:
        """Send an encoded one-way request. Raises RequestError without a connection."""
        connection = self._client.existing(address)
        if connection is None:
            raise ConnectError(f"there is no connection to {address}: one-way request not sent")
        if not connection.is_writable:
            raise TooManyRequests(f"{address} does not read: one-way request not sent")
        connection.write_frame(frame)

    async def stop(self) -> None:
        """Cancel the connection attempts. The connections themselves belong to the client."""
        await cancel_all(self._tasks)

    async def _connect_and_send(self, address: str) -> None:
        error: RequestError = ConnectError(f"not connected to {address}: the client is shutting down")
        connection: Connection | None = None
        try:
            connection = await self._client.connect(address)
        except RequestError as failed:
            error = failed
        finally:
            now = asyncio.get_running_loop().time()
            for request in self._waiting.pop(address):
                if request.timer is None:
                    continue  # expired
                request.timer.cancel()
                try:
                    if connection is None:
                        raise error
                    connection.send_frame(request.opaque, request.frame, request.due - now, request.reply)
                except RequestError as failed:
                    if not request.reply.done():
                        request.reply.set_exception(failed)
        if connection is not None:
            await self.connect(address)

    def _start(self, coroutine: Awaitable[None], name: str) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        task.set_name(f"rmq {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RequestError):  # raised to those whose requests wait for the connection
                log.debug("task failed name=%s cause=%s", task.get_name(), error)
            else:
                log.error("task failed name=%s", task.get_name(), exc_info=error)


def _expire(address: str, request: _PendingRequest) -> None:
    request.timer = None
    if not request.reply.done():
        seconds = request.timeout_seconds
        request.reply.set_exception(
            ConnectError(f"no connection to {address} within {seconds:.3g} s: not sent")
        )
