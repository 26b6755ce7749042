"""Timed messages and kill -9: none is lost or early, and recalled ones stay recalled."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.message import MessageExt
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import end_of, read_queues
from tests.support.broker_requests import create_topic, request, send, sent
from tests.support.raw_client import raw_client

_ROUNDS = 3
_A_ROUND = 120
_POLL_SECONDS = 0.02
_DELIVERED = ("T", 0)
# At a kill a part is on the disk, and a part is not.
_SETTINGS = {
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "100",
    "mappedFileSizeTimerLog": "4096",
    "flushIntervalCommitLog": "50",
    "flushCommitLogLeastPages": "0",
    "recallMessageEnable": "true",
}


@pytest.mark.timeout(90)
async def test_each_timed_message_is_delivered(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    recalled: set[int] = set()
    async with FaultyBroker(tmp_path, flush_mode, settings=_SETTINGS) as broker:
        async with raw_client(broker.port) as client:
            assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS
        count = 0
        for _ in range(_ROUNDS):
            delivered_before = await _delivered(broker.port)
            recalled |= await _send(broker.port, range(count, count + _A_ROUND), chance)
            count += _A_ROUND
            await _until_stored(broker.port, delivered_before + chance.randrange(1, 60))
            broker.kill()
            await broker.start()
            await _all_delivered(broker.port, set(range(count)) - recalled)
        stored = await _all_delivered(broker.port, set(range(count)) - recalled)
        assert not {int(message.body) for message in stored} & recalled
        for message in stored:
            assert message.store_timestamp >= int(message.properties["TIMER_DELIVER_MS"])
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


async def _send(port: int, numbers: range, chance: random.Random) -> set[int]:
    """Send messages due within seconds, and recall some; return the numbers of the recalled ones."""
    recalled: set[int] = set()
    async with raw_client(port) as client:
        for number in numbers:
            after_ms = chance.choice([100, 400, 1000, 1800])
            properties = {"TIMER_DELIVER_MS": str(time.time_ns() // 1_000_000 + after_ms)}
            placed = sent(await client.ask(send("T", b"%d" % number, properties=properties)))
            if number % 10 == 0 and after_ms >= 1000:
                back = request(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=placed.recall_handle)
                assert (await client.ask(back)).code == ResponseCode.SUCCESS
                recalled.add(number)
    return recalled


async def _delivered(port: int) -> int:
    async with raw_client(port) as client:
        return await end_of(client, _DELIVERED)


async def _until_stored(port: int, count: int) -> None:
    async with asyncio.timeout(20), raw_client(port) as client:
        while True:
            if await end_of(client, _DELIVERED) >= count:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _all_delivered(port: int, numbers: set[int]) -> list[MessageExt]:
    """Wait until these messages were delivered; return all deliveries."""
    async with asyncio.timeout(20):
        while True:
            messages = (await read_queues(port, [_DELIVERED]))[_DELIVERED]
            if numbers <= {int(message.body) for message in messages}:
                return messages
            await asyncio.sleep(_POLL_SECONDS)
