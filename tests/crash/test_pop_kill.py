"""POP and kill -9: acknowledged messages stay acknowledged, all others are redelivered."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.support.broker_requests import create_topic, send, sent
from tests.support.pop_requests import ack, hide, pop, popped
from tests.support.raw_client import RawClient, raw_client

_ROUNDS = 3
_MESSAGES = 60
_SHORT_MS = 400
_POLL_MS = 2000


@pytest.mark.timeout(90)
async def test_acknowledged_messages_are_not_redelivered(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    # In one mode offsets are almost never written: the broker restores them from its check points.
    settings = {"flushConsumerOffsetInterval": "600000" if flush_mode == "ASYNC_FLUSH" else "50"}
    acknowledged: set[bytes] = set()
    async with FaultyBroker(tmp_path, flush_mode, settings=settings) as broker:
        async with raw_client(broker.port) as client:
            assert (await client.ask(create_topic("T", 3))).code == ResponseCode.SUCCESS
            for number in range(_MESSAGES):
                sent(await client.ask(send("T", b"%d" % number, queue_id=number % 3)))
        for _ in range(_ROUNDS):
            async with raw_client(broker.port) as client:
                await _consume_some(client, chance, acknowledged)
            broker.kill()
            await broker.start()
        assert acknowledged, "no message was acknowledged before a kill"
        async with raw_client(broker.port) as client:
            rest = await _consume_all(client, acknowledged)
        assert rest | acknowledged == {b"%d" % number for number in range(_MESSAGES)}
        assert not rest & acknowledged
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)


async def test_messages_in_flight_of_an_ordered_pop_survive_a_kill(tmp_path: Path, flush_mode: str) -> None:
    async with FaultyBroker(tmp_path, flush_mode) as broker:
        async with raw_client(broker.port) as client:
            assert (await client.ask(create_topic("T", 1))).code == ResponseCode.SUCCESS
            for number in range(4):
                sent(await client.ask(send("T", b"%d" % number)))
            items = popped(await client.ask(pop("T", queue_id=0, count=3, order=True)))
            # The second is acknowledged before the first.
            for item in (items[1], items[0]):
                assert (await client.ask(ack(item))).code == ResponseCode.SUCCESS
        broker.kill()
        await broker.start()
        async with raw_client(broker.port) as client:
            again = await client.ask(pop("T", queue_id=0, count=3, order=True))
            # The third is still in flight.
            assert again.code == ResponseCode.POLLING_TIMEOUT
            assert (await client.ask(ack(items[2]))).code == ResponseCode.SUCCESS
            (last,) = popped(await client.ask(pop("T", queue_id=0, count=3, order=True)))
            assert last.body == b"3"


async def _consume_some(client: RawClient, chance: random.Random, acknowledged: set[bytes]) -> None:
    """Pop messages; acknowledge each, change its invisible time, or leave it in flight."""
    for _ in range(3):
        answer = await client.ask(pop("T", count=6, invisible_ms=_SHORT_MS, poll_ms=_POLL_MS))
        if answer.code != ResponseCode.SUCCESS:
            continue
        for item in popped(answer):
            assert item.body not in acknowledged, "an acknowledged message was redelivered"
            fate = chance.random()
            if fate < 0.5:
                if (await client.ask(ack(item))).code == ResponseCode.SUCCESS:
                    acknowledged.add(item.body)
            elif fate < 0.7:
                await client.ask(hide(item, _SHORT_MS))


async def _consume_all(client: RawClient, acknowledged: set[bytes]) -> set[bytes]:
    """Pop and acknowledge all messages that are left; return their bodies."""
    rest: set[bytes] = set()
    while len(rest) < _MESSAGES - len(acknowledged):
        for item in popped(await client.ask(pop("T", count=32, poll_ms=4 * _POLL_MS))):
            assert item.body not in rest, "an acknowledged message was redelivered"
            assert (await client.ask(ack(item))).code == ResponseCode.SUCCESS
            rest.add(item.body)
    answer = await client.ask(pop("T", poll_ms=2 * _SHORT_MS))
    assert answer.code == ResponseCode.POLLING_TIMEOUT, "a message was redelivered"
    return rest
