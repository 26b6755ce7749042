"""Connections of a Python worker, shared by its tasks because connecting takes time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rmq_client import RawPuller
from rmq_client.forks import after_fork_in_child

from .partitions import ConnectionKey
from .pull_size import PullSize

_IDLE_SECONDS: Final = 60.0


class Connection:
    """A running puller, with the pull sizes learned for its brokers."""

    def __init__(self, key: ConnectionKey) -> None:
        self.puller = RawPuller(key.namesrv, group=key.group, settings=key.settings)
        # Not rmq_client.blocking: it would import the whole SDK into each worker.
        asyncio.run(self.puller.start())
        self.users = 0
        self.timer: threading.Timer | None = None
        self._sizes: dict[tuple[str, int], PullSize] = {}

    def pull_size(self, broker_name: str, most: int) -> PullSize:
        """Return the pull size learned for a broker, of at most `most` messages."""
        return self._sizes.setdefault((broker_name, most), PullSize(most))


class ConnectionPool:
    """The connections of a process by key, usable from any thread. Idle connections close after a while."""

    def __init__(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._connections: dict[ConnectionKey, Connection] = {}

    @contextmanager
    def lease(self, key: ConnectionKey) -> Iterator[Connection]:
        """Lend a connection until the block ends. Raises ClientError."""
        with self._lock:
            connection = self._connections.get(key)
            if connection is None:
                connection = self._connections[key] = Connection(key)
            connection.users += 1
            if connection.timer is not None:
                connection.timer.cancel()
                connection.timer = None
        try:
            yield connection
        finally:
            self._release(key, connection)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle = [
                (key, connection) for key, connection in self._connections.items() if not connection.users
            ]
        for key, connection in idle:
            self._end(key, connection)

    def __len__(self) -> int:
        return len(self._connections)

    def _release(self, key: ConnectionKey, connection: Connection) -> None:
        with self._lock:
            connection.users -= 1
            if not connection.users:
                connection.timer = threading.Timer(self._idle_seconds, self._end, (key, connection))
                connection.timer.name = "rmq idle connections"
                connection.timer.daemon = True
                connection.timer.start()

    def _end(self, key: ConnectionKey, connection: Connection) -> None:
        with self._lock:
            if connection.users or self._connections.get(key) is not connection:
                return
            del self._connections[key]
            if connection.timer is not None:
                connection.timer.cancel()
        asyncio.run(connection.puller.stop())


_of_process = ConnectionPool()


def connection_pool() -> ConnectionPool:
    """Return the pool of this process."""
    return _of_process


def _reset_after_fork() -> None:
    """Start with an empty pool after a fork: the child process lacks the threads of the connections."""
    global _of_process  # noqa: PLW0603
    _of_process = ConnectionPool()


after_fork_in_child(_reset_after_fork)
