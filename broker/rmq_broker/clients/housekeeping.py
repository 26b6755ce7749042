"""Expiry of clients (Apache RocketMQ 5.3.3, ClientHousekeepingService)."""

from __future__ import annotations

from typing import Final

from rmq_remoting.connection import Connection

from ..clock import ClockMs
from ..settings.topics import TopicSettings
from .consumers import ConsumerTable
from .producers import ProducerTable

SCAN_SECONDS: Final = 10.0


class ClientHousekeeping:
    """Removes the clients of closed connections, and those without a heartbeat for 120 s."""

    def __init__(
        self, consumers: ConsumerTable, producers: ProducerTable, settings: TopicSettings, steady_ms: ClockMs
    ) -> None:
        self.expired = 0
        self._consumers = consumers
        self._producers = producers
        self._settings = settings
        self._steady_ms = steady_ms

    def scan(self) -> None:
        """Remove clients without heartbeats and close their connections, so that live ones reconnect.

        Call it every `SCAN_SECONDS`.
        """
        before_ms = self._steady_ms() - self._settings.channel_expired_timeout_ms
        expired = self._consumers.expire(before_ms) + self._producers.expire(before_ms)
        self.expired += len(expired)
        for connection in {client.connection for client in expired}:
            connection.close()

    def connection_closed(self, connection: Connection) -> None:
        """Remove the clients of a closed connection. Call it for every connection."""
        self._consumers.connection_closed(connection)
        self._producers.connection_closed(connection)
