"""The clients of this proxy: their settings, their last sign of life, and their telemetry streams.

Source: Apache RocketMQ 5.3.3, ClientActivity, GrpcChannelManager and GrpcClientSettingsManager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from .protocol.definition_pb2 import ClientType, Code, Settings
from .protocol.service_pb2 import TelemetryCommand
from .statuses import Refusal

log = logging.getLogger("rmq.proxy")

CONSUMERS: Final = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER})
# Beyond these a single host could fill the memory of the proxy.
_MAX_CLIENTS: Final = 100_000
_MAX_SETTINGS_BYTES: Final = 256 * 1024
# A client that does not read its stream in time loses it, and opens another one.
_WRITE_SECONDS: Final = 30.0


class TelemetryStream:
    """The stream on which the proxy sends commands to one client."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self.is_open = True
        # Ends the stream after a failed write.
        self.end: Callable[[], object] | None = None

    async def write(self, command: TelemetryCommand) -> bool:
        """Send a command; return whether the stream took it."""
        try:
            async with asyncio.timeout(_WRITE_SECONDS), self._lock:
                if not self.is_open:
                    return False
                await self._context.write(command)
        except Exception as error:
            log.info("telemetry stream ended cause=%r; the client opens another one", error)
            self.is_open = False
            if self.end is not None:
                self.end()
        return self.is_open


@dataclass(slots=True)
class Client:
    """A client: its settings as it reported them, the topics of its producer, the group of its consumer."""

    client_id: str
    settings: Settings
    seen_at: float
    stream: TelemetryStream | None = None
    topics: frozenset[str] = frozenset()
    group: str = ""


class ClientRegistry:
    """Clients by id. Belongs to one loop."""

    def __init__(
        self,
        expired_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MAX_CLIENTS,
    ) -> None:
        """A client without a heartbeat for `expired_seconds` counts as gone; there are at most `most`."""
        self._expired_seconds = expired_seconds
        self._most = most
        self._clock = clock
        self._clients: dict[str, Client] = {}
        # Requests wait for clients that have not reported their settings yet.
        self._arrivals: dict[str, asyncio.Event] = {}
        self.expired = 0
        # Called with a client that has left or expired.
        self.on_leave: list[Callable[[Client], None]] = []

    def get(self, client_id: str) -> Client | None:
        """Return a client; None if it has not reported its settings."""
        return self._clients.get(client_id)

    def all(self) -> list[Client]:
        """Return all clients."""
        return list(self._clients.values())

    async def wait_for(self, client_id: str, seconds: float) -> Client | None:
        """Return a client as `get`, and wait for its settings if they have not arrived yet.

        A simple consumer of Apache's Python client receives at once, and may overtake its own settings.
        """
        known = self._clients.get(client_id)
        if known is not None:
            return known
        arrived = self._arrivals.setdefault(client_id, asyncio.Event())
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            if self._arrivals.get(client_id) is arrived:
                del self._arrivals[client_id]
        return self._clients.get(client_id)

    def report(self, client_id: str, settings: Settings) -> Client:
        """Register a client with its settings, or replace the settings of a known one.

        Raises Refusal for a new client beyond the limit, and for settings that would take too much memory.
        """
        size = settings.ByteSize()
        if size > _MAX_SETTINGS_BYTES:
            raise Refusal(
                Code.BAD_REQUEST, f"the settings have {size} bytes, the limit is {_MAX_SETTINGS_BYTES}"
            )
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= self._most:
                raise Refusal(
                    Code.TOO_MANY_REQUESTS,
                    f"the proxy has {self._most} clients, which is its limit: use another proxy",
                )
            client = self._clients[client_id] = Client(client_id, settings, self._clock())
        client.settings = settings
        client.seen_at = self._clock()
        if settings.HasField("publishing"):
            client.topics = frozenset(topic.name for topic in settings.publishing.topics)
        if settings.HasField("subscription"):
            client.group = settings.subscription.group.name
        arrived = self._arrivals.pop(client_id, None)
        if arrived is not None:
            arrived.set()
        return client

    def touch(self, client: Client) -> None:
        """Note a sign of life."""
        client.seen_at = self._clock()

    def leave(self, client_id: str) -> Client | None:
        """Remove a client, and return it."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            for listener in self.on_leave:
                listener(client)
        return client

    def drop_expired(self) -> None:
        """Remove the clients whose heartbeats have stopped."""
        before = self._clock() - self._expired_seconds
        for client in [each for each in self._clients.values() if each.seen_at < before]:
            log.info("client gone, no heartbeat client=%s group=%s", client.client_id, client.group)
            self.expired += 1
            self.leave(client.client_id)
            # A host that vanished does not end its stream itself.
            if client.stream is not None and client.stream.end is not None:
                client.stream.end()

    def producers_of(self, topic: str) -> list[Client]:
        """Return the clients that publish to a topic and have a telemetry stream."""
        return [
            client
            for client in self._clients.values()
            if topic in client.topics and client.stream is not None and client.stream.is_open
        ]

    def published_topics(self) -> set[str]:
        """Return the topics of all producers."""
        return {topic for client in self._clients.values() for topic in client.topics}
