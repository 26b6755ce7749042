"""GET /metrics, over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterable

import pytest

from rmq_remoting.daemon.exposition import Family
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.daemon.metrics import LoopLagProbe, MetricsRegistry
from rmq_remoting.daemon.metrics_server import MetricsServer


class Series:
    """So many series of one metric; how long making each takes is for the test to say."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self._count = count
        self._seconds = seconds

    def collect(self) -> Iterable[Family]:
        yield Family("rmq_x", "gauge", "X.", self._series(), ("number",))

    def _series(self) -> Iterable[tuple[tuple[str], int]]:
        for number in range(self._count):
            time.sleep(self._seconds)
            yield (str(number),), number


class Served:
    """A server on a free port, and a client that talks to it as plainly as can be."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self.registry = registry
        self.server = MetricsServer(registry)
        self.port = 0

    async def request(self, data: bytes) -> tuple[str, dict[str, str], bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        response = await reader.read()
        writer.close()
        head, _, body = response.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        return status, dict(line.split(": ", 1) for line in lines), body

    async def get(self, target: str) -> tuple[str, dict[str, str], bytes]:
        return await self.request(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served(MetricsRegistry({"cluster": "k"}))
    port = await made.server.start("127.0.0.1", 0)
    assert port
    made.port = port
    yield made
    await made.server.stop()


async def test_metrics_are_served(served: Served) -> None:
    served.registry.register(Series(2))
    status, headers, body = await served.get("/metrics")
    assert status == "HTTP/1.1 200 OK"
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["Content-Length"]) == len(body)
    assert b'rmq_x{cluster="k",number="1"} 1\n' in body


async def test_a_query_string_is_ignored(served: Served) -> None:
    assert (await served.get("/metrics?name=x"))[0] == "HTTP/1.1 200 OK"


async def test_head_returns_only_the_head(served: Served) -> None:
    status, headers, body = await served.request(b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert (status, body) == ("HTTP/1.1 200 OK", b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", "HTTP/1.1 404 Not Found"),
        (b"GET /metricsx HTTP/1.1", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1", "HTTP/1.1 405 Method Not Allowed"),
        (b"hello", "HTTP/1.1 400 Bad Request"),
    ],
)
async def test_other_requests_are_refused(served: Served, request_line: bytes, status: str) -> None:
    assert (await served.request(request_line + b"\r\n\r\n"))[0] == status


async def test_an_endless_request_head_is_cut_off(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)
    with contextlib.suppress(ConnectionResetError):  # our last bytes were still on their way
        assert await reader.read() == b""
    writer.close()
    assert (await served.get("/metrics"))[0] == "HTTP/1.1 200 OK"


async def test_a_scrape_does_not_block_the_loop(served: Served) -> None:
    served.registry.register(Series(300, seconds=0.0002))
    probe = LoopLagProbe(period_seconds=0.001)
    probe.start()
    await served.get("/metrics")
    probe.stop()
    # 60 ms of work: in one piece it would show as one lag of that length, and as nothing else.
    assert sum(probe.lags.counts) > 10


async def test_concurrent_scrapes_are_bounded(served: Served) -> None:
    served.registry.register(Series(10, seconds=0.0005))
    answers = await asyncio.gather(*(served.get("/metrics") for _ in range(20)))
    statuses = [status for status, _, _ in answers]
    assert statuses.count("HTTP/1.1 200 OK") >= 1
    assert set(statuses) == {"HTTP/1.1 200 OK", "HTTP/1.1 503 Service Unavailable"}


async def test_stop_cuts_scrapes_off_and_frees_the_port(served: Served) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    (await served.get("/metrics"))  # the idle connection before it has been accepted by now
    await served.server.stop()
    writer.close()
    with socket.create_server(("127.0.0.1", served.port)):
        pass
    await served.server.stop()


async def test_a_chosen_port_that_is_taken_is_an_error(served: Served) -> None:
    other = MetricsServer(MetricsRegistry())
    with pytest.raises(StartError, match=rf"127\.0\.0\.1:{served.port}: .*Set metricsPromExporterPort"):
        await other.start("127.0.0.1", served.port)
    await other.stop()


async def test_instead_of_the_default_port_any_other_is_used(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    other = MetricsServer(MetricsRegistry())
    port = await other.start("127.0.0.1", served.port, is_default=True)
    assert port not in (0, served.port)
    assert f"metrics port taken address=127.0.0.1:{served.port}" in caplog.text
    await other.stop()


async def test_health_is_answered(served: Served) -> None:
    status, _, body = await served.get("/health")
    assert (status, body) == ("HTTP/1.1 200 OK", b"serving\n")
