"""Receives the reports of tasks about lost messages, in the process of a stream on the driver.

Listens on one port of the driver while the query runs. By default, that is the address of the machine from
which it reaches the name servers: tasks reach the same name servers. Reports carry a random token, which
Spark sends to executors with each task.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import socket
import threading
from typing import Any, Final

from rmq_remoting.client import split_address
from rmq_remoting.errors import RemotingError

from ..errors import BadOffsets
from ..options.option_types import NO_REPORTS, OWN_ADDRESS
from ..tasks.loss_reports import ACCEPTED, MAX_LINE_BYTES, LossReport
from ..tasks.partitions import ReportAddress
from .cluster_admin import run

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 10.0
# Further connections are closed at once. Their tasks go on, and count as tasks without a report.
MAX_CONNECTIONS: Final = 1000


class LossCollector:
    """The reports of the tasks of one query, from `open` to `close`. Used from one thread."""

    def __init__(self, address: ReportAddress, server: asyncio.Server) -> None:
        self.address = address
        self._server = server
        self._lock = threading.Lock()
        self._reported = LossReport()
        self._connections = 0

    @classmethod
    def open(cls, where: str, namesrv: str) -> LossCollector | None:
        """Start to listen. Return None, and log the cause, if that fails: no query fails for its reports.

        `where`: the value of the option `lossReports`. `namesrv`: name servers, host:port;host:port.
        """
        if where == NO_REPORTS:
            return None
        try:
            return run(cls._opened(where, namesrv))
        except (OSError, RemotingError) as error:
            log.warning(
                "tasks cannot report losses, they are counted by expired offsets lossReports=%s cause=%s",
                where,
                error,
            )
            return None

    def take(self) -> LossReport:
        """Return what tasks have reported since the last call."""
        with self._lock:
            taken, self._reported = self._reported, LossReport()
        return taken

    def close(self) -> None:
        """Stop listening."""
        run(self._closed())

    @classmethod
    async def _opened(cls, where: str, namesrv: str) -> LossCollector:
        if where == OWN_ADDRESS:
            host, port = _own_host(*split_address(namesrv.split(";", maxsplit=1)[0])), 0
            bind = host
        else:
            # The address may be that of a service or of a translated network, which this machine lacks.
            host, port = split_address(where)
            bind = ""
        found: list[LossCollector] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await found[0]._answer(reader, writer)

        server = await asyncio.start_server(answer, bind, port, limit=MAX_LINE_BYTES, start_serving=False)
        port = server.sockets[0].getsockname()[1]
        found.append(cls(ReportAddress(host, port, secrets.token_hex(16)), server))
        await server.start_serving()
        return found[0]

    async def _closed(self) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the lines of one connection; end it after the first line that is no report of this query."""
        if self._connections >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections += 1
        try:
            while line := await asyncio.wait_for(reader.readline(), _IDLE_SECONDS):
                self._add(self._parsed(line))
                writer.write(ACCEPTED)
                await writer.drain()
        except BadOffsets as error:
            peer = writer.get_extra_info("peername")
            log.warning("report of losses rejected peer=%s cause=%s", peer, error)
        except (OSError, ValueError) as error:  # time-outs are OSErrors, too long a line is a ValueError
            log.info("connection for reports of losses ended cause=%r", error)
        finally:
            self._connections -= 1
            writer.close()

    def _parsed(self, line: bytes) -> LossReport:
        try:
            members: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadOffsets(f"not JSON: {error}") from error
        token = members.get("token") if isinstance(members, dict) else None
        if not isinstance(token, str) or not hmac.compare_digest(
            token.encode(errors="replace"), self.address.token.encode()
        ):
            raise BadOffsets("it has not the token of this query")
        return LossReport.from_members(members)

    def _add(self, report: LossReport) -> None:
        with self._lock:
            self._reported.read += report.read
            self._reported.lost += report.lost


def _own_host(host: str, port: int) -> str:
    """Return the address of this machine towards a server. No packet is sent. Raises OSError."""
    kind, _, _, _, peer = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        return str(probe.getsockname()[0])
