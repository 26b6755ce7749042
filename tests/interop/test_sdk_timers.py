"""Timed messages of the SDK, with Apache's servers and with this project's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from rmq_client import Message, MessageExt, Producer, PullConsumer, blocking
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.interop.clusters import Cluster
from tests.support.broker_requests import request
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.raw_client import raw_client


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)


@pytest.fixture
async def recalling(cluster: Cluster) -> None:
    """A cluster whose broker allows recalls."""
    change = request(RequestCode.UPDATE_BROKER_CONFIG, b"recallMessageEnable=true\n")
    async with raw_client(cluster[1].port) as client:
        assert (await client.ask(change)).code == ResponseCode.SUCCESS


async def _first(address: str, topic: str, count: int) -> list[MessageExt]:
    async with PullConsumer(address, group=f"reader-of-{topic}", consume_from="first") as reader:
        await reader.assign(await reader.queues(topic))
        messages: list[MessageExt] = []
        async with asyncio.timeout(30):
            while len(messages) < count:
                messages += await reader.poll()
        return messages


async def test_messages_are_delivered_when_due(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    async with Producer(address, group=topic) as producer:
        at_ms = _now_ms() + 1500
        timed = await producer.send(Message(topic, b"at", deliver_at=_time(at_ms)))
        delayed = await producer.send(Message(topic, b"after", delay_seconds=1.2))
        past = await producer.send(Message(topic, b"past", deliver_at=_time(at_ms - 60_000)))
        plain = await producer.send(Message(topic, b"now"))
        assert timed.recall_handle and delayed.recall_handle
        assert (past.recall_handle, plain.recall_handle) == (None, None)
    messages = {message.body: message for message in await _first(address, topic, 4)}
    assert messages[b"at"].store_timestamp >= at_ms
    assert messages[b"at"].deliver_at == _time(at_ms)
    assert messages[b"after"].store_timestamp >= at_ms - 1500 + 1200
    assert messages[b"past"].store_timestamp < at_ms


@pytest.mark.usefixtures("recalling")
async def test_recalled_messages_are_not_delivered(cluster: Cluster, topic: str) -> None:
    address = cluster[0].address
    at_ms = (_now_ms() + 3500) // 1000 * 1000 + 500
    async with Producer(address, group=topic) as producer:
        kept, *others = [
            await producer.send(Message(topic, b"%d" % number, deliver_at=_time(at_ms)))
            for number in range(3)
        ]
        for other in others:
            assert other.recall_handle is not None
            assert await producer.recall(other.recall_handle) == other.msg_id
        last = await producer.send(Message(topic, b"last", deliver_at=_time(at_ms + 1000)))
    messages = await _first(address, topic, 2)
    assert {message.msg_id for message in messages} == {kept.msg_id, last.msg_id}


@pytest.mark.usefixtures("recalling")
async def test_the_blocking_api(cluster: Cluster, topic: str) -> None:
    def send_and_recall() -> None:
        with blocking.Producer(cluster[0].address, group=topic) as producer:
            sent = producer.send(Message(topic, b"x", delay_seconds=60))
            assert sent.recall_handle is not None
            assert producer.recall(sent.recall_handle) == sent.msg_id

    await asyncio.get_running_loop().run_in_executor(None, send_and_recall)
