"""Entries of POP's journal in the timer: Apache's broker continues from them."""

from __future__ import annotations

from rmq_broker.delivery.timer_entry import TimerEntry
from tests.support.clock import START_MS
from tests.unit.broker.pop.parts import PopBroker


def _told(broker: PopBroker) -> list[TimerEntry]:
    return list(broker.timers.entering.announced.entries)


async def test_each_entry_is_in_the_slot_of_its_time(broker: PopBroker) -> None:
    broker.put(2)
    pop = broker.pop(invisible_ms=10_000)
    broker.ack(pop, 0)
    (check_point, ack) = _told(broker)
    assert (check_point.queue_offset, ack.queue_offset) == (0, 1)
    assert check_point.is_journal
    assert check_point.topic == "rmq_sys_REVIVE_LOG_DefaultCluster"
    # A check point a second before its acknowledgements, each in the second before its time.
    assert (check_point.out_ms, ack.out_ms) == (START_MS + 8000, START_MS + 9000)
    record = broker.store.record_at(check_point.physical_offset)
    assert record is not None
    assert len(record) == check_point.size


async def test_apaches_broker_continues_before_open_check_points(broker: PopBroker) -> None:
    assert broker.pops.held_from_ms() is None
    broker.put(3)
    first = broker.pop(most=1, invisible_ms=10_000)
    second = broker.pop(most=1, invisible_ms=20_000)
    assert broker.pops.held_from_ms() == START_MS + 8000
    broker.ack(first, 0)
    broker.clock.pass_seconds(10)
    await broker.pops.revival.revive_due()
    assert broker.pops.held_from_ms() == START_MS + 18_000
    broker.ack(second, 1)
    await broker.pass_seconds(11)
    assert broker.pops.held_from_ms() is None


async def test_a_failed_redelivery_keeps_its_check_point_open(broker: PopBroker) -> None:
    broker.put(1)
    broker.pop(invisible_ms=10_000)
    broker.store.health.refuse("disk", "full")
    await broker.pass_seconds(11)
    assert broker.pops.held_from_ms() == START_MS + 8000
    broker.store.health.allow("disk")
    await broker.pass_seconds(11)
    assert broker.pops.held_from_ms() is None
