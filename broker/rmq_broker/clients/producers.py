"""Connected producers, by group (Apache RocketMQ 5.3.3, ProducerManager)."""

from __future__ import annotations

import logging

from rmq_remoting.connection import Connection

from .client import ConnectedClient

log = logging.getLogger("rmq.broker.clients")


class ProducerTable:
    """Producer groups with live members; a group without members is removed."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, ConnectedClient]] = {}
        # By connection: the end of a connection costs only its own groups.
        self._groups_of: dict[Connection, set[str]] = {}
        # By client id, and by group and connection: the targets of pushed replies.
        self._clients: dict[str, dict[tuple[str, Connection], ConnectedClient]] = {}

    # --- looking up ---

    def find_group(self, name: str) -> list[ConnectedClient] | None:
        """Return the live members of a group."""
        members = self._groups.get(name)
        return None if members is None else list(members.values())

    def find_client(self, client_id: str) -> ConnectedClient | None:
        """Return the live producer with this client id; of several, the one that registered last."""
        found = self._clients.get(client_id)
        return None if found is None else next(reversed(found.values()))

    def groups(self) -> dict[str, list[ConnectedClient]]:
        """Return a new map of the live members of all groups."""
        return {name: list(members.values()) for name, members in list(self._groups.items())}

    def clients(self) -> list[ConnectedClient]:
        """Return all producers, each connection once."""
        found = {
            connection: client
            for members in list(self._groups.values())
            for connection, client in list(members.items())
        }
        return list(found.values())

    # --- heartbeats ---

    def register(self, group: str, client: ConnectedClient) -> None:
        """Record a heartbeat."""
        members = self._groups.setdefault(group, {})
        known = members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            known.last_seen_ms = client.last_seen_ms
            return
        if known is not None:
            self._forget_id(group, known)
        members[client.connection] = client
        self._clients.setdefault(client.client_id, {})[group, client.connection] = client
        self._groups_of.setdefault(client.connection, set()).add(group)
        log.info("producer joined client=%s group=%s", client, group)

    def unregister(self, group: str, connection: Connection) -> bool:
        """Remove a client that has left a group; whether it was a member."""
        return self._remove(group, connection, "left")

    def connection_closed(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        for group in list(self._groups_of.get(connection, ())):
            self._remove(group, connection, "disconnected")

    def expire(self, before_ms: int) -> list[ConnectedClient]:
        """Remove the members whose last heartbeat is older; the caller closes their connections."""
        expired: list[ConnectedClient] = []
        for group, members in self.groups().items():
            silent = [client for client in members if client.last_seen_ms < before_ms]
            for client in silent:
                self._remove(group, client.connection, "expired without heartbeat")
            expired += silent
        return expired

    # --- internals ---

    def _remove(self, group: str, connection: Connection, how: str) -> bool:
        members = self._groups.get(group, {})
        client = members.pop(connection, None)
        if client is None:
            return False
        log.info("producer %s client=%s group=%s", how, client, group)
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        self._forget_id(group, client)
        if not members:
            del self._groups[group]
        return True

    def _forget_id(self, group: str, client: ConnectedClient) -> None:
        found = self._clients[client.client_id]
        del found[group, client.connection]
        if not found:
            del self._clients[client.client_id]
