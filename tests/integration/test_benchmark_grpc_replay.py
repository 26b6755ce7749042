"""The load that replays gRPC sends, against a proxy and a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.grpc_replay import Refused, Replay
from rmq_client import PullConsumer
from rmq_client.admin import Admin
from tests.support.clusters import RunningCluster, running_cluster
from tests.support.running_proxy import running_proxy

_QUEUES = 4


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as running:
        async with Admin(running.address) as admin:
            await admin.create_topic("Replayed", queues=_QUEUES, attributes={"+message.type": "NORMAL"})
        yield running


async def test_each_counted_send_is_a_stored_message_of_its_own(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:
        replay = await asyncio.to_thread(Replay, proxy.address, "Replayed", 8)
        with closing(replay):
            first, _ = await asyncio.to_thread(replay.run, 0.1)
            second, load_seconds = await asyncio.to_thread(replay.run, 0.1)

    async with PullConsumer(cluster.address, group="g", topics="Replayed", consume_from="first") as consumer:
        ids: set[str] = set()
        stored = 0
        while stored < first + second:
            messages = await consumer.poll(max_messages=1024)
            assert messages, f"{stored} of {first + second} messages"
            stored += len(messages)
            ids.update(message.unique_key or "" for message in messages)
        assert stored == len(ids) == first + second == replay.accepted
    assert second >= 8
    assert load_seconds > 0


async def test_a_refusal_ends_the_load(cluster: RunningCluster) -> None:
    async with running_proxy(cluster.address) as proxy:
        replay = await asyncio.to_thread(Replay, proxy.address, "a b")
        with closing(replay), pytest.raises(Refused, match="a send was refused"):
            await asyncio.to_thread(replay.run, 5.0)
