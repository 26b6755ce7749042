"""A connected client, as described by its heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from rmq_remoting.bodies.connection import Connection as ConnectionBody
from rmq_remoting.codes import LanguageCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection


@dataclass(slots=True)
class ConnectedClient:
    """A client on one connection; `last_seen_ms` is the time of its last heartbeat by the steady clock."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_seen_ms: int

    @classmethod
    def of(
        cls, connection: Connection, request: RemotingCommand, client_id: str, steady_ms: int
    ) -> ConnectedClient:
        """Return the client that sent a request."""
        try:
            language = LanguageCode(request.language)
        except ValueError:
            language = LanguageCode.OTHER
        return cls(connection, client_id, language, request.version, steady_ms)

    def to_body(self) -> ConnectionBody:
        """Return the client in the form of the admin tools."""
        return ConnectionBody(
            client_addr=self.connection.peer,
            client_id=self.client_id,
            language=self.language,
            version=self.version,
        )

    def __str__(self) -> str:
        return f"{self.client_id} ({self.language.name}, {self.connection.peer})"
