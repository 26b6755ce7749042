"""Administration with two brokers of ours: messages by key and id, and the progress of groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    GroupNotFound,
    Message,
    MessageQueue,
    Producer,
    SendResult,
    UsageError,
    blocking,
)
from rmq_client.admin.results import time_of
from tests.support.clusters import RunningCluster, running_cluster

_BROKERS = ("broker-a", "broker-b")


class _Cluster:
    """Topic T with two queues on each broker, and the messages sent to it."""

    def __init__(self, running: RunningCluster) -> None:
        self.address = running.address
        self.brokers = list(running.brokers.values())
        self.sent: list[SendResult] = []


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[_Cluster]:
    """Four messages: the even ones on broker-a, the odd ones on broker-b."""
    async with running_cluster(tmp_path, {name: {"T": 2} for name in _BROKERS}) as running:
        made = _Cluster(running)
        async with Admin(made.address) as admin, Producer(made.address, group="PG") as producer:
            await admin.create_group("CG")
            for number in range(4):
                message = Message("T", f"{number}".encode(), keys=["all", f"k{number}"])
                queue = MessageQueue("T", _BROKERS[number % 2], 0)
                made.sent.append(await producer.send(message, queue=queue))
            async with asyncio.timeout(20):
                # A broker that has just started builds its index in the background.
                while len((await admin.query_messages("T", "all")).messages) < 4:
                    pass
        yield made


async def test_messages_by_key_of_all_brokers(cluster: _Cluster) -> None:
    async with Admin(cluster.address) as admin:
        result = await admin.query_messages("T", "all")
        assert sorted(message.body for message in result.messages) == [b"0", b"1", b"2", b"3"]
        times = [message.store_timestamp for message in result.messages]
        assert times == sorted(times) and result.indexed_until == time_of(times[-1])
        assert not result.failures
        [message] = (await admin.query_messages("T", "k3")).messages
        assert (message.body, message.broker_name) == (b"3", "broker-b")
        [message] = (await admin.query_messages("T", cluster.sent[2].msg_id, unique=True)).messages
        assert message.body == b"2"
        assert len((await admin.query_messages("T", "all", max_messages=3)).messages) == 3
        assert (await admin.query_messages("T", "k4")).messages == []


async def test_messages_between_two_times(cluster: _Cluster) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    async with Admin(cluster.address) as admin:
        assert len((await admin.query_messages("T", "all", begin=now - hour, end=now + hour)).messages) == 4
        assert (await admin.query_messages("T", "all", begin=now + hour)).messages == []
        assert (await admin.query_messages("T", "all", end=now - hour)).messages == []
        with pytest.raises(UsageError, match="between"):
            await admin.query_messages("T", "all", begin=now, end=now - hour)
        with pytest.raises(UsageError, match="max_messages=0"):
            await admin.query_messages("T", "all", max_messages=0)


async def test_messages_by_id(cluster: _Cluster) -> None:
    async with Admin(cluster.address) as admin:
        for number, result in enumerate(cluster.sent):
            for message_id in (result.msg_id, result.offset_msg_id):
                message = await admin.view_message("T", message_id)
                assert message is not None and message.body == f"{number}".encode()
                assert message.broker_name == _BROKERS[number % 2]
        beyond = cluster.sent[0].offset_msg_id[:-16] + "7FFFFFFFFFFFFFFF"
        inside = cluster.sent[0].offset_msg_id[:-16] + "0000000000000001"
        for unknown in (beyond, inside, "0" * 32, "nonsense"):
            assert await admin.view_message("T", unknown) is None


async def test_progress_of_a_group(cluster: _Cluster) -> None:
    queue = MessageQueue("T", "broker-a", 0)
    async with Admin(cluster.address) as admin:
        assert (await admin.lag("CG")).queues == ()
        await admin.commit_offset("CG", queue, 1)
        lag = await admin.lag("CG")
        assert {each.queue.broker_name for each in lag.queues} == {"broker-a"}
        [own] = [each for each in lag.queues if each.queue == queue]
        assert (own.end, own.committed) == (2, 1)
        lag = await admin.lag("CG", "T")
        assert len(lag.queues) == 4
        assert lag.total == 3
        spans = {span.queue: span for span in await admin.consume_time_span("CG", "T")}
        assert len(spans) == 4
        consumed, last = spans[queue].consumed_until, spans[queue].last_stored
        assert consumed is not None and last is not None and consumed <= last
        assert spans[queue].delay_seconds >= 0
        assert spans[MessageQueue("T", "broker-a", 1)].last_stored is None
        with pytest.raises(GroupNotFound, match="group nobody is on none of"):
            await admin.consume_time_span("nobody", "T")


async def test_the_blocking_admin(cluster: _Cluster) -> None:
    def ask() -> None:
        with blocking.Admin(cluster.address) as admin:
            assert len(admin.query_messages("T", "all").messages) == 4
            message = admin.view_message("T", cluster.sent[1].msg_id)
            assert message is not None and message.body == b"1"
            assert len(admin.lag("CG", "T").queues) == 4
            assert len(admin.consume_time_span("CG", "T")) == 4

    await asyncio.to_thread(ask)
