"""A replica that acts as the master stores its messages with other masters, and its log stays as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.groups.names import TRANSACTION_GROUP
from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.clock import START_MS
from tests.unit.broker.acting.parts import GroupBroker
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.pop.parts import GROUP, bodies_of
from tests.unit.broker.transactions.parts import HALF, ROLLBACK


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[GroupBroker]:
    master = GroupBroker(tmp_path)
    await master.pops.load()
    yield master
    master.close()


async def test_delayed_messages(master: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        master.writer.put(inner(body=b"%d" % number, queue_id=number % 4), 1)
    replica, others = master.acting(monkeypatch)
    end = replica.store.max_phy_offset()
    await replica.delayed.deliver_due()
    assert not others.stored
    await replica.pass_seconds(1)
    assert others.bodies == [b"%d" % number for number in range(100)]
    assert {message.topic for message in others.stored} == {"T"}
    assert replica.delay_offsets.get(1) == 100 and replica.delayed.delivered == 100
    version = DelayOffsetSerializeWrapper.decode(replica.delay_offsets.encode()).data_version
    await replica.services.delivery.save_offsets()
    answer = DelayOffsetSerializeWrapper.decode(replica.delay_offsets.encode())
    assert answer.offset_table == {1: 100} and version is not None and answer.data_version is not None
    assert answer.data_version.counter == version.counter + 1
    assert replica.store.max_phy_offset() == end
    replica.close()


async def test_a_delayed_message_that_is_not_stored_is_not_skipped(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10):
        master.writer.put(inner(body=b"%d" % number), 1)
    replica, others = master.acting(monkeypatch)
    others.refused.add(b"3")
    for _ in range(5):
        await replica.pass_seconds(2)
    assert replica.delay_offsets.get(1) == 3
    # Those behind it were stored once, and are not sent again.
    assert others.bodies == [b"0", b"1", b"2", *[b"%d" % number for number in range(4, 10)]]
    assert [record.message for record in caplog.records if "stalled" in record.message] == [
        "delivery of due delayed messages stalled, will retry cause=refused"
    ]
    attempts = others.attempts
    await replica.pass_seconds(0.5)
    assert others.attempts == attempts
    others.refused.clear()
    await replica.pass_seconds(2)
    assert others.bodies[-1] == b"3" and replica.delay_offsets.get(1) == 10
    assert replica.delayed.delivered == 10 and not replica.delayed.lost
    replica.close()


async def test_timed_messages(master: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        due_ms = START_MS + 2000 + 50 * number
        master.writer.put(inner(body=b"%d" % number, TIMER_DELIVER_MS=str(due_ms)))
    replica, others = master.acting(monkeypatch)
    end = replica.store.max_phy_offset()
    await replica.pass_seconds(1)
    assert not others.stored
    await replica.pass_seconds(10)
    assert sorted(others.bodies, key=int) == [b"%d" % number for number in range(100)]
    assert replica.timers.pending.count == 0 and replica.store.max_phy_offset() == end
    replica.close()


async def test_a_timed_message_that_is_not_stored_is_not_skipped(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        master.writer.put(inner(body=b"%d" % number, TIMER_DELIVER_MS=str(START_MS + 2000)))
    master.writer.put(inner(body=b"later", TIMER_DELIVER_MS=str(START_MS + 4000)))
    replica, others = master.acting(monkeypatch)
    others.refused.add(b"3")
    for _ in range(5):
        await replica.pass_seconds(2)
    assert others.bodies == [b"0", b"1", b"2", *[b"%d" % number for number in range(4, 10)]]
    others.refused.clear()
    await replica.pass_seconds(2)
    assert others.bodies[-2:] == [b"3", b"later"] and len(others.stored) == 11
    replica.close()


async def test_a_message_beyond_the_timers_window_waits_on_without_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = GroupBroker(tmp_path, timerRollWindowSlot=10)
    master.writer.put(inner(body=b"far", TIMER_DELIVER_MS=str(START_MS + 60_000)))
    replica, others = master.acting(monkeypatch)
    replica.timers.pending._window_slots = 10
    end = replica.store.max_phy_offset()
    for _ in range(55):
        await replica.pass_seconds(1)
    assert not others.stored and replica.timers.counts.rolled > 2
    for _ in range(10):
        await replica.pass_seconds(1)
    assert others.bodies == [b"far"] and replica.store.max_phy_offset() == end
    assert replica.timers.pending.count == 0
    replica.close()


async def test_half_messages_go_to_another_master_in_order(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = master.send(b"ended")
    for number in range(3):
        master.send(b"%d" % number)
    master.end(ROLLBACK, ended)
    master.service.ops.write()
    replica, others = master.acting(monkeypatch)
    replica.service = replica.transactions
    await replica.service.load()
    await replica.check_after(1)
    assert not others.stored
    others.refused.add(b"1")
    await replica.check_after(10)
    assert others.bodies == [b"0"] and replica.service.checks.moved == 1
    others.refused.clear()
    await replica.check_after(10)
    assert others.bodies == [b"0", b"1", b"2"]
    assert {message.topic for message in others.stored} == {HALF}
    assert not len(replica.service.halves)
    replica.store.flush_log()
    for _ in range(2):
        replica.service.progress.look()
    assert replica.offsets.query(TRANSACTION_GROUP, HALF, 0) == 4
    assert replica.ops() == [b"0,"]
    replica.close()


async def test_a_new_half_message_does_not_hold_up_an_older_one(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master's check has moved the older one behind it in the queue."""
    master.send(b"old")
    master.clock.pass_seconds(3)
    master.send(b"new")
    await master.check_after(3)
    replica, others = master.acting(monkeypatch)
    replica.service = replica.transactions
    await replica.service.load()
    await replica.check_after(1)
    assert others.bodies == [b"old"]
    replica.close()


async def test_popped_messages_go_to_another_master(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.put(3)
    popped = master.pop(invisible_ms=5000)
    master.ack(popped, 1)
    master.pops.commit_flushed(master.store.max_phy_offset())
    replica, others = master.acting(monkeypatch)
    end, topics = replica.store.max_phy_offset(), replica.topics.version
    await replica.pops.load()
    assert replica.pops.in_flight.messages == 2
    others.refused.add(b"2")
    replica.clock.pass_seconds(6)
    await replica.pops.revival.revive_due()
    assert others.bodies == [b"0"] and replica.pops.in_flight.messages == 1
    others.refused.clear()
    replica.clock.pass_seconds(2)
    await replica.pops.revival.revive_due()
    assert others.bodies == [b"0", b"2"] and not replica.pops.in_flight.messages
    assert {message.topic for message in others.stored} == {"%RETRY%CG_T"}
    assert [message.reconsume_times for message in others.stored] == [1, 1]
    assert (replica.store.max_phy_offset(), replica.topics.version) == (end, topics)
    replica.close()


async def test_a_replica_serves_pops_while_it_acts(
    master: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.put(10)
    before = master.pop(most=2, invisible_ms=60_000)
    master.pops.commit_flushed(master.store.max_phy_offset())
    replica, others = master.acting(monkeypatch)
    assert replica.pop().count == 0  # it does not act
    end = replica.store.max_phy_offset()
    await replica.pops.load()
    replica.pops.start_reviving(TaskSupervisor(lambda name, error: None))
    first, second = replica.pop(most=3), replica.pop(most=3, invisible_ms=5000)
    assert (bodies_of(first), bodies_of(second)) == ([b"2", b"3", b"4"], [b"5", b"6", b"7"])
    replica.ack(before, 0)
    replica.ack(first, 2, 4)
    replica.ack(second, 5, 7)
    replica.pops.commit_closed()
    assert replica.offsets.query(GROUP, "T", 0) == 3  # a master that returns begins at the first open one
    replica.clock.pass_seconds(6)
    await replica.pops.revival.revive_due()
    assert others.bodies == [b"6"]
    replica.ack(first, 3)
    replica.pops.commit_closed()
    assert replica.offsets.query(GROUP, "T", 0) == 8
    assert bodies_of(replica.pop(most=1)) == [b"8"]
    await replica.pops.stop()
    assert replica.offsets.query(GROUP, "T", 0) == 8
    replica.pops.forget()
    assert replica.pop().count == 0 and replica.store.max_phy_offset() == end
    replica.close()
