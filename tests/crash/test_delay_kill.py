"""Delayed messages and kill -9: none is lost or early, and few are delivered again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.codes import ResponseCode
from rmq_remoting.message import MessageExt
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import end_of, read_queues
from tests.support.broker_requests import create_topic, send, sent
from tests.support.raw_client import raw_client
from tests.support.waiting import until

_ROUNDS = 3
_A_ROUND = 100
_POLL_SECONDS = 0.02
_WAITING, _DELIVERED = ("SCHEDULE_TOPIC_XXXX", 0), ("T", 0)
# Short intervals, so that some offsets are on the disk when the broker is killed.
_SETTINGS = {
    "flushDelayOffsetInterval": "100",
    "flushIntervalCommitLog": "50",
    "flushCommitLogLeastPages": "0",
}


@pytest.mark.timeout(90)
async def test_each_delayed_message_is_delivered(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    numbers: list[int] = []
    async with FaultyBroker(tmp_path, flush_mode, settings=_SETTINGS) as broker:
        await _make_topic(broker.port)
        for sent_before in range(0, _ROUNDS * _A_ROUND, _A_ROUND):
            await _send(broker.port, range(sent_before, sent_before + _A_ROUND))
            await _until_stored(broker.port, len(numbers) + chance.randrange(1, _A_ROUND))
            broker.kill()
            written = _written(broker.store_path)
            await broker.start()
            stored = await _all_delivered(broker, sent_before + _A_ROUND)
            now = [int(message.body) for message in stored]
            assert now[: len(numbers)] == numbers
            _check_duplicates(Counter(numbers), Counter(now), written)
            assert list(dict.fromkeys(now)) == list(range(sent_before + _A_ROUND))
            numbers = now
            check_directory(broker.store_path)
        waiting = (await read_queues(broker.port, [_WAITING]))[_WAITING]
        stored_at = {message.body: message.store_timestamp for message in waiting}
        assert all(message.store_timestamp >= stored_at[message.body] + 1000 for message in stored)
        await broker.stop()
        assert _written(broker.store_path) == _ROUNDS * _A_ROUND
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


def _check_duplicates(before: Counter[int], now: Counter[int], written: int) -> None:
    """Compare deliveries by number before a round and after it. In between, the broker was killed once.

    A message before the offset that the file had at the kill is not delivered again, any other once at most.
    """
    for number, times in now.items():
        if number < written:
            assert times == max(1, before[number]), f"{number} was delivered again"
        else:
            assert times <= max(1, before[number]) + 1, f"{number} was delivered {times} times"


def _written(root: Path) -> int:
    """The offset of the first delay level in the file; 0 if there is no file yet."""
    path = root / "config" / "delayOffset.json"
    if not path.exists():
        return 0
    return DelayOffsetSerializeWrapper.decode(path.read_bytes()).offset_table.get(1, 0)


async def _make_topic(port: int) -> None:
    async with raw_client(port) as client:
        assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS


async def _send(port: int, numbers: range) -> None:
    """Send delayed messages whose numbers are their offsets in the queue of the delay level."""
    async with raw_client(port) as client:
        for number in numbers:
            place = sent(await client.ask(send("T", b"%d" % number, properties={"DELAY": "1"})))
            assert place.queue_offset == number


async def _until_stored(port: int, count: int) -> None:
    """Wait until `count` messages were delivered."""
    async with asyncio.timeout(20), raw_client(port) as client:
        while True:
            if await end_of(client, _DELIVERED) >= count:
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _all_delivered(broker: FaultyBroker, count: int) -> list[MessageExt]:
    """Wait until the offset file covers `count` messages; return all deliveries.

    The file follows the deliveries, so that none of the redeliveries after a kill is still to come.
    """
    await until(lambda: _written(broker.store_path) >= count, 20)
    return (await read_queues(broker.port, [_DELIVERED]))[_DELIVERED]
