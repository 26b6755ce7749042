"""One exposition for all shards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq_broker.shards.joined_metrics import JoinedMetrics, ScrapeError, join_expositions, scrape
from rmq_broker.shards.plan import ShardPlan
from rmq_remoting.daemon.exposition import Family, render
from rmq_remoting.daemon.histogram import Histogram
from rmq_remoting.daemon.metrics import MetricsRegistry
from rmq_remoting.daemon.metrics_server import MetricsServer


def _exposition(broker: str, *families: Family) -> bytes:
    return "".join(render(families, {"node_id": broker})).encode()


def _gauge(name: str, value: float) -> Family:
    return Family(name, "gauge", f"Meaning of {name}.", [((), value)])


def _samples(exposition: bytes) -> list[tuple[str, str, float]]:
    families = list(text_string_to_metric_families(exposition.decode()))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "a family is declared twice"
    return [
        (sample.name, sample.labels["node_id"], sample.value)
        for family in families
        for sample in family.samples
    ]


def test_a_family_of_several_shards_is_declared_once() -> None:
    joined = join_expositions(
        [
            _exposition("a", _gauge("rmq_x", 1), _gauge("rmq_y", 2)),
            _exposition("b", _gauge("rmq_y", 3), _gauge("rmq_z", 4), _gauge("rmq_x", 5)),
        ]
    )

    assert _samples(joined) == [
        ("rmq_x", "a", 1),
        ("rmq_x", "b", 5),
        ("rmq_y", "a", 2),
        ("rmq_y", "b", 3),
        ("rmq_z", "b", 4),
    ]


def test_a_single_exposition_stays_as_it_is() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(1.5)
    one = _exposition("a", Family("rmq_h", "histogram", "H.", [((), histogram)]), _gauge("rmq_x", 1))

    assert join_expositions([one]) == one


def test_families_without_samples_and_empty_expositions_are_joined() -> None:
    empty = Family("rmq_x", "gauge", "X.", [])

    joined = join_expositions([_exposition("a", empty), b"", _exposition("b", _gauge("rmq_x", 1))])

    assert _samples(joined) == [("rmq_x", "b", 1)]


def test_a_label_that_looks_like_a_declaration_is_a_label() -> None:
    family = Family("rmq_x", "gauge", "X.", [(("\n# HELP rmq_y Y.",), 1)], ("text",))

    joined = join_expositions([_exposition("a", family), _exposition("b", family)])

    assert _samples(joined) == [("rmq_x", "a", 1), ("rmq_x", "b", 1)]


class _Gauge:
    def __init__(self, value: float) -> None:
        self._value = value

    def collect(self) -> list[Family]:
        return [_gauge("rmq_x", self._value)]


def _runner(number: int, port: int, *, is_ready: bool = True) -> Any:
    # A plan's port of metrics is its listenPort + 2.
    plan = ShardPlan(number, f"b-{number}", port - 2, Path())
    return SimpleNamespace(plan=plan, is_ready=is_ready, restarts=number, hangs=3 * number)


async def test_a_shard_that_does_not_answer_is_not_up() -> None:
    registry = MetricsRegistry({"node_id": "b-0"})
    registry.register(_Gauge(7))
    server = MetricsServer(registry)
    port = await server.start("127.0.0.1", 0)
    assert port is not None
    runners = [_runner(0, port), _runner(1, port, is_ready=False), _runner(2, 1)]
    tables = cast(Any, SimpleNamespace(behind_count=lambda shard: 10 * shard))
    try:
        joined = await JoinedMetrics(runners, tables, {"cluster": "c"}).join(
            _exposition("b", _gauge("rmq_o", 1))
        )
    finally:
        await server.stop()

    samples = _samples(joined)
    assert [sample for sample in samples if sample[0] == "rmq_shard_up"] == [
        ("rmq_shard_up", "b-0", 1),
        ("rmq_shard_up", "b-1", 0),
        ("rmq_shard_up", "b-2", 0),
    ]
    assert ("rmq_shard_restarts_total", "b-2", 2) in samples
    assert ("rmq_shard_hangs_total", "b-2", 6) in samples
    assert ("rmq_shard_pending_changes", "b-1", 10) in samples
    assert ("rmq_x", "b-0", 7) in samples and ("rmq_o", "b", 1) in samples


async def _scraped(answer: bytes, *, ends: bool = True) -> bytes:
    """Scrape a server that gives this answer."""
    serving: list[asyncio.Task[Any] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not ends:
            await reader.read()  # until the scrape gives up
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            return await scrape(server.sockets[0].getsockname()[1], 0.2)
        finally:
            await asyncio.wait([task for task in serving if task is not None])


async def test_a_complete_answer_is_read() -> None:
    assert await _scraped(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc") == b"abc"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "the answer begins with b'HTTP/1.1 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "the answer ended after 3 of 9 bytes"),
        (b"", "the answer begins with b''"),
    ],
)
async def test_another_answer_is_refused(answer: bytes, told: str) -> None:
    with pytest.raises(ScrapeError, match=told):
        await _scraped(answer)


async def test_an_answer_that_does_not_end_is_refused() -> None:
    with pytest.raises(ScrapeError, match="no answer within"):
        await _scraped(b"HTTP/1.1 200 OK\r\n\r\nabc", ends=False)
