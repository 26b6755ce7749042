"""Acknowledgements: batches, and single ones where batches do not work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from rmq_client.consumer.requests.ack_sender import AckSender
from rmq_client.consumer.requests.pop_client import PopClient
from rmq_client.consumer.requests.pop_receipts import PopHandle
from rmq_client.errors import BrokerUnreachable, ClientError, ReceiptExpired, broker_error
from rmq_remoting.codes import ResponseCode
from rmq_remoting.pop_receipt import Receipt

_BROKER = "b:1"


class _Client(PopClient):
    """Answers as the test says."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.alone: list[int] = []
        self.is_whole = True
        self.batch_error: ClientError | None = None
        self.expired: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def ack(self, address: str, held: PopHandle) -> None:
        await self.gate.wait()
        self.alone.append(held.offset)
        if held.offset in self.expired:
            raise ReceiptExpired(ResponseCode.NO_MESSAGE, "expired", address)

    async def ack_batch(self, address: str, topic: str, held: Iterable[PopHandle]) -> bool:
        self.batches.append([one.offset for one in held])
        if self.batch_error is not None:
            raise self.batch_error
        return self.is_whole


def _held(offset: int, start: int = 0) -> PopHandle:
    return PopHandle("T", 0, offset, Receipt(start, 1, 60_000, 0, "0", "b", 0, offset))


async def _ack(acks: AckSender, *offsets: int) -> list[BaseException | None]:
    return await asyncio.gather(
        *(acks.ack(_BROKER, "T", _held(offset)) for offset in offsets), return_exceptions=True
    )


async def test_acknowledgements_posted_during_a_request_share_the_next() -> None:
    client = _Client()
    acks = AckSender(client)
    client.gate.clear()
    first = acks.post(_BROKER, "T", _held(0))
    await asyncio.sleep(0)
    others = [acks.post(_BROKER, "T", _held(offset)) for offset in (1, 2, 3)]
    client.gate.set()
    await asyncio.gather(first, *others)
    assert (client.alone, client.batches) == ([0], [[1, 2, 3]])


async def test_a_partly_failed_batch_is_acknowledged_one_by_one() -> None:
    client = _Client()
    client.is_whole = False
    client.expired = {1}
    outcomes = await _ack(AckSender(client), 0, 1, 2)
    assert [type(outcome) for outcome in outcomes] == [type(None), ReceiptExpired, type(None)]
    assert client.alone == [0, 1, 2]


async def test_a_broker_without_batch_acks_is_asked_once() -> None:
    client = _Client()
    client.batch_error = broker_error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown code 200151", _BROKER)
    acks = AckSender(client)
    assert await _ack(acks, 0, 1) == [None, None]
    assert await _ack(acks, 2, 3) == [None, None]
    assert (client.batches, client.alone) == ([[0, 1]], [0, 1, 2, 3])


async def test_a_failed_batch_fails_every_sender() -> None:
    client = _Client()
    client.batch_error = BrokerUnreachable("connection refused")
    assert [type(outcome) for outcome in await _ack(AckSender(client), 0, 1)] == [BrokerUnreachable] * 2
    assert client.alone == []


async def test_messages_far_from_the_start_of_their_pop_are_acknowledged_alone() -> None:
    client = _Client()
    acks = AckSender(client)
    assert await _ack(acks, 0, 1, 100_000) == [None] * 3
    assert (client.batches, client.alone) == ([[0, 1]], [100_000])


async def test_an_abandoned_acknowledgement_is_sent() -> None:
    client = _Client()
    acks = AckSender(client)
    client.gate.clear()
    task = asyncio.ensure_future(acks.ack(_BROKER, "T", _held(0)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    client.gate.set()
    await acks.drain(1.0)
    assert client.alone == [0]
