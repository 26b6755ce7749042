"""Requests that end transactions: half messages read from disk, answers after the flush."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rmq_broker.delivery.message_writer import Written
from rmq_broker.store.api import ColdData, Durability, StoreUnavailable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import CommandError
from tests.support.broker_requests import request
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import answer_of
from tests.unit.broker.transactions.parts import COMMIT, GROUP, TOPIC, TransactionBroker


class _Broker(TransactionBroker):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.processor = self.processors.sends.transactions

    async def commit(self, place: Written, peer: Peer | None = None) -> RemotingCommand:
        command = request(
            RequestCode.END_TRANSACTION,
            producerGroup=GROUP,
            tranStateTableOffset=place.queue_offset,
            commitLogOffset=place.physical_offset,
            commitOrRollback=COMMIT,
            msgId="",
        )
        return await answer_of(self.processor.end((peer or Peer()).connection, command))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    made = _Broker(tmp_path)
    yield made
    made.close()


def _everything_is_cold(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def cold(physical_offset: int, **options: object) -> bytes:
        raise ColdData

    monkeypatch.setattr(broker.store, "record_now", cold)
    for half in broker.halves.in_order():
        half.message = None


async def test_a_half_message_that_is_not_in_memory_is_read_in_a_thread(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = broker.send(b"one")
    _everything_is_cold(broker, monkeypatch)
    assert (await broker.commit(place)).code == ResponseCode.SUCCESS
    assert broker.bodies(TOPIC, 2) == [b"one"]


async def test_the_outcome_of_a_producer_that_disconnects_is_dropped(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, peer = broker.send(b"one"), Peer()
    _everything_is_cold(broker, monkeypatch)
    peer.connection.abort()
    await asyncio.sleep(0)
    with pytest.raises(AssertionError):  # there is no answer
        await broker.commit(place, peer)
    assert (broker.bodies(TOPIC, 2), len(broker.halves)) == ([], 1)


async def test_a_full_disk_is_refused(broker: _Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise StoreUnavailable("the disk is full")

    place = broker.send()
    monkeypatch.setattr(broker.store, "put", refuse)
    with pytest.raises(CommandError, match="the disk is full") as refused:
        await broker.commit(place)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("durability", Durability)
async def test_the_answer_waits_for_the_flush(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    place = broker.send(b"one")
    listeners: list[Callable[[Durability], None]] = []
    monkeypatch.setattr(broker.store, "answers_when_durable", True)
    monkeypatch.setattr(broker.store, "when_durable", listeners.append)
    waiting = asyncio.ensure_future(broker.commit(place))
    await asyncio.sleep(0)
    (listener,) = listeners
    listener(durability)
    # A SYNC_MASTER without replicas goes on alone.
    if durability in (Durability.DURABLE, Durability.NO_REPLICA):
        answer = await waiting
        assert isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS
    else:
        with pytest.raises(CommandError, match="is not flushed yet"):
            await waiting
    assert broker.bodies(TOPIC, 2) == [b"one"]
