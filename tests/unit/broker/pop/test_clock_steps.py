"""Steps of the wall clock: invisible times stay as long as they were.

A step back must not hide unacknowledged messages for hours, nor a step forward redeliver those in flight.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.pop.check_point import QueueKey
from rmq_remoting.pop_receipt import Receipt
from tests.support.clock import START_MS
from tests.unit.broker.pop.crashes import opened_again
from tests.unit.broker.pop.parts import GROUP, PopBroker, bodies_of, pop_broker, receipt_of

_RETRY_TOPIC = f"%RETRY%{GROUP}_T"
_QUEUE = QueueKey("T", GROUP, 0)
_HOURS = [5, -5]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    with pop_broker(tmp_path) as broker:
        await broker.pops.load()
        broker.put(2)
        yield broker


def _redelivered(broker: PopBroker) -> list[bytes]:
    return broker.bodies(_RETRY_TOPIC)


# --- unordered ---


@pytest.mark.parametrize("hours", _HOURS)
async def test_messages_in_flight_are_redelivered_after_their_invisible_time(
    broker: PopBroker, hours: int
) -> None:
    broker.pop(invisible_ms=60_000)
    await broker.pass_seconds(30)
    broker.clock.set_by(hours * 3600)
    await broker.pass_seconds(29.9)
    assert _redelivered(broker) == []
    await broker.pass_seconds(0.1)
    assert _redelivered(broker) == [b"0", b"1"]


@pytest.mark.parametrize("hours", _HOURS)
async def test_acknowledged_messages_are_not_redelivered(broker: PopBroker, hours: int) -> None:
    popped = broker.pop(invisible_ms=60_000)
    broker.clock.set_by(hours * 3600)
    broker.ack(popped, 0)
    await broker.pass_seconds(30)
    broker.ack(popped, 0)
    await broker.pass_seconds(30)
    assert _redelivered(broker) == [b"1"]


@pytest.mark.parametrize("hours", _HOURS)
async def test_messages_popped_just_after_a_step(broker: PopBroker, hours: int) -> None:
    """The step is noticed before their invisible time is noted, or it would be moved, too."""
    broker.pop(most=1, invisible_ms=60_000)
    broker.clock.set_by(hours * 3600)
    broker.pop(most=1, invisible_ms=30_000)
    await broker.pass_seconds(29.9)
    assert _redelivered(broker) == []
    await broker.pass_seconds(0.1)
    assert _redelivered(broker) == [b"1"]
    await broker.pass_seconds(30)
    assert _redelivered(broker) == [b"1", b"0"]


async def test_a_forward_step_and_back(broker: PopBroker) -> None:
    broker.pop(most=1, invisible_ms=60_000)
    broker.clock.set_by(5 * 3600)
    await broker.pass_seconds(10)
    broker.pop(most=1, invisible_ms=60_000)
    broker.clock.set_by(-5 * 3600)
    await broker.pass_seconds(49.9)
    assert _redelivered(broker) == []
    await broker.pass_seconds(0.1)
    assert _redelivered(broker) == [b"0"]
    await broker.pass_seconds(10)
    assert _redelivered(broker) == [b"0", b"1"]


async def test_a_step_back_while_the_broker_is_down(broker: PopBroker) -> None:
    broker.pop(invisible_ms=60_000)
    broker.clock.set_by(-5 * 3600)
    async with opened_again(broker, broker.offsets.encode()) as again:
        await again.pass_seconds(59.9)
        assert _redelivered(again) == []
        await again.pass_seconds(0.1)
        assert _redelivered(again) == [b"0", b"1"]


@pytest.mark.parametrize("hours", _HOURS)
async def test_a_failed_redelivery_is_retried(
    broker: PopBroker, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    broker.pop(invisible_ms=60_000)
    with monkeypatch.context() as patch:
        patch.setattr(broker.pops.revival, "_record", fail)
        await broker.pass_seconds(60)
    broker.clock.set_by(hours * 3600)
    await broker.pass_seconds(0.9)
    assert _redelivered(broker) == []
    await broker.pass_seconds(0.1)
    assert _redelivered(broker) == [b"0", b"1"]


async def test_apaches_timer_would_redeliver_by_the_wall_clock(broker: PopBroker) -> None:
    """Its check points hold times of the wall clock: it has to read from the earliest of them on."""
    broker.pop(most=1, invisible_ms=60_000)
    before = broker.pops.in_flight.earliest_revive_time
    assert before == START_MS + 60_000
    broker.clock.set_by(5 * 3600)
    broker.pop(most=1, invisible_ms=60_000)
    assert broker.pops.in_flight.earliest_revive_time == before
    await broker.pass_seconds(60)
    assert len(_redelivered(broker)) == 2
    assert broker.pops.in_flight.earliest_revive_time is None


# --- in order ---


@pytest.mark.parametrize("hours", _HOURS)
async def test_ordered_messages_block_their_queue_for_their_invisible_time(
    broker: PopBroker, hours: int
) -> None:
    woken: list[QueueKey] = []
    assert bodies_of(broker.pop(in_order=True, invisible_ms=60_000)) == [b"0", b"1"]
    broker.clock.set_by(hours * 3600)
    broker.clock.pass_seconds(59.9)
    assert broker.pop(in_order=True).count == 0
    broker.pops.orders.wake_unblocked(woken.append)
    assert woken == []
    broker.clock.pass_seconds(0.1)
    broker.pops.orders.wake_unblocked(woken.append)
    assert woken == [_QUEUE]
    assert bodies_of(broker.pop(in_order=True)) == [b"0", b"1"]


@pytest.mark.parametrize("hours", _HOURS)
async def test_ordered_messages_are_acknowledged_after_a_step(broker: PopBroker, hours: int) -> None:
    popped = broker.pop(in_order=True, invisible_ms=60_000)
    broker.clock.set_by(hours * 3600)
    broker.ack(popped, 0, 1)
    assert broker.offsets.query(GROUP, "T", 0) == 2
    assert not broker.pops.orders.is_blocked(_QUEUE, None, 0)


@pytest.mark.parametrize("hours", _HOURS)
async def test_changed_invisible_times(broker: PopBroker, hours: int) -> None:
    acknowledging = broker.pops.acknowledging
    receipt = receipt_of(broker.pop(in_order=True, most=1, invisible_ms=60_000))
    broker.clock.set_by(hours * 3600)
    renewed = acknowledging.change_invisible_time(_QUEUE, receipt, 0, 10_000)
    text = f"0 {renewed.pop_time} {renewed.invisible_time_ms} 999 0 broker-a 0 0"
    assert Receipt.parse(text).pop_time == receipt.pop_time, "no part of a receipt is negative"
    broker.clock.pass_seconds(9.9)
    assert broker.pop(in_order=True).count == 0
    broker.clock.pass_seconds(0.1)
    assert bodies_of(broker.pop(in_order=True)) == [b"0", b"1"]


@pytest.mark.parametrize("is_set_while_down", [False, True])
async def test_ordered_messages_after_a_restart(broker: PopBroker, is_set_while_down: bool) -> None:
    broker.pop(in_order=True, invisible_ms=60_000)
    if is_set_while_down:
        orders = broker.pops.orders.encode()
        broker.clock.set_by(-5 * 3600)
    else:
        broker.clock.set_by(-5 * 3600)
        assert broker.pop(in_order=True).count == 0
        orders = broker.pops.orders.encode()
    async with opened_again(broker, broker.offsets.encode(), orders) as again:
        again.clock.pass_seconds(59.9)
        assert again.pop(in_order=True).count == 0
        again.clock.pass_seconds(0.1)
        assert bodies_of(again.pop(in_order=True)) == [b"0", b"1"]
