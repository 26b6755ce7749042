"""The load program of `make bench-growth` for many connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.many_connections import SendsRefused, many_connections
from tests.support.brokers import running_broker


async def test_all_connections_send_in_turns(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, many_connections(broker.port, 20, 3) as connections:
        rate = await connections.send(0.2)
        assert rate > 0
        assert await connections.send(0.1) > 0, "it can be repeated"
        before = broker.broker.services.storage.store.max_offset("Connections", 0)
        assert before > 0


async def test_a_refused_send_ends_the_load(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, maxMessageSize=100) as broker,
        many_connections(broker.port, 2, 2) as connections,
    ):
        with pytest.raises(SendsRefused, match="code 13"):
            await connections.send(5)
