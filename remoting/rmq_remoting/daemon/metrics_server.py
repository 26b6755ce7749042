"""HTTP server for Prometheus and load balancers: GET /metrics, and GET /health while the loop answers.

The daemon's own loop renders in slices of half a millisecond with pauses between. Rendering in a thread, as
prometheus_client's server does, was tried. It delays the loop more, because thread and loop alternate every
5 ms on one interpreter. With 20,000 series the slowest request during a scrape took 11–16 ms with the
thread; with slices it took 2–4 ms, as much as without a scrape (2 cores, uvloop). The few lines of HTTP here
also save 60 ms of imports at start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from .exposition import CONTENT_TYPE
from .lifecycle import StartError
from .metrics import MetricsRegistry
from .ready import Listening

log = logging.getLogger("rmq.metrics")

_SLICE_SECONDS: Final = 0.0005
_PAUSE_SECONDS: Final = 0.002
_REQUEST_SECONDS: Final = 5.0
_RESPONSE_SECONDS: Final = 30.0
_MAX_REQUEST_BYTES: Final = 16 * 1024
_MAX_CONNECTIONS: Final = 8

# Returns an exposition with further metrics for an exposition.
Join = Callable[[bytes], Awaitable[bytes]]


class MetricsServer:
    """Serves one registry. All methods belong to the loop's thread."""

    def __init__(self, registry: MetricsRegistry, join: Join | None = None) -> None:
        """`join` adds the metrics of other processes to those of the registry."""
        self._registry = registry
        self._join = join
        self._server: asyncio.Server | None = None
        self.address: Listening | None = None  # while it listens
        self._connections: set[asyncio.Task[None]] = set()
        self._rendering = asyncio.Lock()

    async def start(self, host: str, port: int, *, is_default: bool = False) -> int:
        """Listen, and return the port. Raises StartError for a port that is taken.

        `is_default`: the operator has not chosen the port, so any free one is used instead of one that is
        taken.
        """
        try:
            self._server = await self._listen(host, port)
        except OSError as error:
            if not is_default or error.errno != errno.EADDRINUSE:
                raise StartError(
                    f"metrics cannot be served on {host}:{port}: {error.strerror or error}. Set "
                    "metricsPromExporterPort to a free port (0: any), or metricsExporterType=DISABLE"
                ) from error
            self._server = await self._listen(host, 0)
            log.warning(
                "metrics port taken address=%s:%d; any free port is used instead, set "
                "metricsPromExporterPort to choose one",
                host,
                port,
            )
        actual = int(self._server.sockets[0].getsockname()[1])
        self.address = (host, actual)
        log.info("metrics served url=http://%s:%d/metrics", host, actual)
        return actual

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accept, host, port, limit=_MAX_REQUEST_BYTES, backlog=128)

    async def stop(self) -> None:
        """Stop listening, and cut off scrapes in progress."""
        if self._server is None:
            return
        self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        await self._server.wait_closed()
        self._server = self.address = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # `stop` cancels this task, which asyncio 3.11's stream server would log as an error.
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            log.debug("scrape ended early cause=%r", error)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        too_many = len(self._connections) > _MAX_CONNECTIONS
        async with asyncio.timeout(_REQUEST_SECONDS):
            # Read the request even if it is refused: closing earlier would reset the connection.
            head = await reader.readuntil(b"\r\n\r\n")
        if too_many:
            response = _response("503 Service Unavailable", b"too many scrapes at once, at most 8\n")
        else:
            response = await self._answer(head.split(b"\r\n", 1)[0].split(b" "))
        async with asyncio.timeout(_RESPONSE_SECONDS):
            writer.write(response)
            await writer.drain()

    async def _answer(self, request_line: list[bytes]) -> bytes:
        method, target = request_line[0], request_line[1] if len(request_line) == 3 else b""
        if not target:
            return _response("400 Bad Request", b"not an HTTP request\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        path = target.split(b"?", 1)[0]
        if path == b"/health":
            return _response("200 OK", b"serving\n", head_only=method == b"HEAD")
        if path != b"/metrics":
            return _response("404 Not Found", b"there are /metrics and /health\n")
        async with self._rendering:
            body = await self._render()
            if self._join is not None:
                body = await self._join(body)
        return _response("200 OK", body, CONTENT_TYPE, head_only=method == b"HEAD")

    async def _render(self) -> bytes:
        pieces: list[str] = []
        due = time.monotonic() + _SLICE_SECONDS
        for piece in self._registry.render():
            pieces.append(piece)
            if time.monotonic() >= due:
                await asyncio.sleep(_PAUSE_SECONDS)
                due = time.monotonic() + _SLICE_SECONDS
        return "".join(pieces).encode()


def _response(
    status: str, body: bytes, content_type: str = "text/plain; charset=utf-8", *, head_only: bool = False
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if head_only else body)
