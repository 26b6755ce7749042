"""The private channel between the supervisor and a shard, which both ends of a pair of sockets serve.

It needs neither access keys nor TLS, and no setting can close it: only the two processes have it. The
standard input of the shard is the way to stop it, and on its standard output it announces that it serves.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

import orjson

from rmq_remoting.connection import Connection, ConnectionSettings, ConnectionStatistics
from rmq_remoting.daemon.ready import Ready

if TYPE_CHECKING:
    from rmq_remoting.connection import RequestHandler

# On the standard input of a shard: shut down gracefully. A signal could be the second one, which ends a
# process at once, because systemd sends the first one to all processes of a service.
STOP: Final = b"stop\n"


async def connect(end: socket.socket, handler: RequestHandler, *, stops_reading: bool) -> Connection:
    """Return a connection over one end of a pair of sockets. Raises OSError."""
    end.setblocking(False)
    connection = Connection(handler, ConnectionSettings(stops_reading=stops_reading), ConnectionStatistics())
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: connection.as_protocol, sock=end)
    except BaseException:
        end.close()
        raise
    return connection


def announcement(ready: Ready) -> str:
    """Return the text that a shard prints after `ready ` once it serves: its facts, as JSON on one line."""
    return orjson.dumps(ready).decode()


def announced(text: bytes) -> Ready:
    """Return the facts of an announcement."""
    facts: dict[str, Any] = orjson.loads(text)
    return Ready(**facts)
