"""Messages are redelivered once, even if the redelivery is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq_broker.store.api import ConsumeQueue, StoreUnavailable
from rmq_broker.topics.names import TIMER_TOPIC
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, pop_broker

_RETRY_TOPIC = f"%RETRY%{GROUP}_T"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as broker:
        await broker.pops.load()
        broker.put(1, queue_id=1)
        broker.pop(queue_id=1, invisible_ms=3_600_000)  # the journal is read from here on
        yield broker


async def test_a_stop_during_a_redelivery(broker: PopBroker) -> None:
    reviving = await _begin_reviving(broker)
    reviving.cancel()
    await asyncio.wait([reviving])
    before = broker.store.max_offset(_RETRY_TOPIC, 0)
    assert 0 < before < 32
    async with opened_again(broker, broker.offsets.encode()) as again:
        await again.pass_seconds(1)
        assert again.store.max_offset(_RETRY_TOPIC, 0) == 32


async def test_a_group_that_is_deleted_during_a_redelivery(broker: PopBroker) -> None:
    reviving = await _begin_reviving(broker)
    broker.groups.delete(GROUP)
    await reviving
    assert [point.key.queue_id for point in broker.pops.in_flight] == [1]
    assert broker.store.max_offset(_RETRY_TOPIC, 0) < 32


async def test_a_topic_that_is_deleted_during_a_redelivery(broker: PopBroker) -> None:
    reviving = await _begin_reviving(broker)
    before = broker.store.max_offset(_RETRY_TOPIC, 0)
    broker.topics.delete(["T"])
    await reviving
    assert not list(broker.pops.in_flight)
    assert broker.pops.in_flight.messages == 0
    assert broker.store.max_offset(_RETRY_TOPIC, 0) == before


async def test_a_redelivery_that_cannot_be_journaled_at_once(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = broker.store.put

    def refuse_entries(queue: ConsumeQueue, *arguments: Any, **named: Any) -> tuple[int, int, int]:
        if queue.topic == TIMER_TOPIC:
            raise StoreUnavailable("full")
        return put(queue, *arguments, **named)

    broker.put(4)
    broker.pop(invisible_ms=1000)
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, "put", refuse_entries)
        await broker.pass_seconds(2)
    assert broker.store.max_offset(_RETRY_TOPIC, 0) == 4
    await broker.pass_seconds(2)
    assert [point.key.queue_id for point in broker.pops.in_flight] == [1]
    async with opened_again(broker, broker.offsets.encode()) as again:
        await again.pass_seconds(2)
        assert again.store.max_offset(_RETRY_TOPIC, 0) == 4


async def test_a_redelivery_after_an_unexpected_error(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put(2)
    broker.pop(invisible_ms=1000)
    with monkeypatch.context() as patch:
        patch.setattr(broker.pops.redelivery, "redeliver", _fail)
        with pytest.raises(ArithmeticError):
            await broker.pass_seconds(2)
    await broker.pass_seconds(2)
    assert broker.store.max_offset(_RETRY_TOPIC, 0) == 2


async def _begin_reviving(broker: PopBroker) -> asyncio.Task[None]:
    """Begin to redeliver 32 messages, and stop in the middle."""
    broker.put(32)
    broker.pop(invisible_ms=1000)
    broker.clock.pass_seconds(2)
    reviving = asyncio.create_task(broker.pops.revival.revive_due())
    await asyncio.sleep(0)
    assert not reviving.done()
    return reviving


def _fail(*_: object) -> None:
    raise ArithmeticError
