"""Connected producers, by group (Apache RocketMQ 5.3.3, ProducerManager)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from rmq_remoting.codes import ResponseCode
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError

from .client import ConnectedClient

log = logging.getLogger("rmq.broker.clients")

# Of one connection. A client process has a connection for all of its producers.
MAX_GROUPS: Final = 1024
_MAX_LOGGED: Final = 3


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

    def register_all(self, groups: Collection[str], client: ConnectedClient) -> None:
        """Record a heartbeat of a member of these groups. Raises CommandError if it is in too many."""
        known = self._groups_of.get(client.connection, set())
        joined = [group for group in groups if group not in known]
        if len(known) + len(joined) > MAX_GROUPS:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(known) + len(joined)} producer groups on one connection, the limit is {MAX_GROUPS}",
            )
        for group in groups:
            self._register(group, client)
        if joined:
            shown = ", ".join(sorted(joined)[:_MAX_LOGGED]) + (", ..." if len(joined) > _MAX_LOGGED else "")
            log.info("producer joined client=%s groups=%d group=%s", client, len(joined), shown)

    def _register(self, group: str, client: ConnectedClient) -> None:
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

    def unregister(self, group: str, connection: Connection) -> bool:
        """Remove a client that has left a group; whether it was a member."""
        client = self._remove(group, connection)
        if client is not None:
            log.info("producer left client=%s group=%s", client, group)
        return client is not None

    def connection_closed(self, connection: Connection) -> None:
        """Remove the clients of a closed connection."""
        groups = list(self._groups_of.get(connection, ()))
        clients = [self._remove(group, connection) for group in groups]
        if clients and clients[0] is not None:
            log.info("producer disconnected client=%s groups=%d", clients[0], len(groups))

    def expire(self, before_ms: int) -> list[ConnectedClient]:
        """Remove the members whose last heartbeat is older; the caller closes their connections."""
        expired: list[ConnectedClient] = []
        for group, members in self.groups().items():
            silent = [client for client in members if client.last_seen_ms < before_ms]
            for client in silent:
                self._remove(group, client.connection)
                log.info("producer expired without heartbeat client=%s group=%s", client, group)
            expired += silent
        return expired

    # --- internals ---

    def _remove(self, group: str, connection: Connection) -> ConnectedClient | None:
        """Remove a member, and return it; None if it was none."""
        members = self._groups.get(group, {})
        client = members.pop(connection, None)
        if client is None:
            return None
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        self._forget_id(group, client)
        if not members:
            del self._groups[group]
        return client

    def _forget_id(self, group: str, client: ConnectedClient) -> None:
        found = self._clients[client.client_id]
        del found[group, client.connection]
        if not found:
            del self._clients[client.client_id]
