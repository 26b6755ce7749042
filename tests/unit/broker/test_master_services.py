"""The services of a master are switched off and on while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq_broker.master_services import MasterServices, MasterServicesError
from rmq_broker.static_topics.cleaning import MappingCleaner
from rmq_broker.store.api import StoreDamaged
from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.daemon.tasks import TaskSupervisor
from tests.support.clock import START_MS, Clock
from tests.support.waiting import until
from tests.unit.broker.delivery.parts import inner
from tests.unit.broker.pop.parts import GROUP, PopBroker
from tests.unit.broker.transactions.parts import HALF, TransactionBroker

_TASKS = {
    "clean mappings",
    "delayed messages",
    "pop order",
    "look for work of pops",
    "pop revival",
    "pops",
    "timed messages",
    "transaction checks",
    "transaction counts",
    "transaction ends",
    "transaction progress",
}


class _Broker(TransactionBroker, PopBroker):
    """A broker with all services of a master; a second of its clock passes in each round of the tasks."""

    def __init__(self, folder: Path, clock: Clock | None = None, **keys: object) -> None:
        super().__init__(folder, clock, **keys)
        self.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        self.supervisor = TaskSupervisor(lambda name, error: None, sleep=self._sleep)
        cleaner = MappingCleaner(
            self.settings,
            self.topics,
            self.store,
            self.processors.other_brokers,
            self.clock.clocks.now_seconds,
        )
        self.switch = MasterServices(self.services, cleaner, self.supervisor)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def delivers(self, count: int, topic: str = "T") -> None:
        """Let time pass until this many messages of a topic are delivered."""
        for _ in range(1000):
            if len(self.bodies(topic)) >= count:
                break
            await self.passes(1)

    async def passes(self, seconds: float) -> None:
        """Let time pass, and the tasks run."""
        for _ in range(int(seconds)):
            self.clock.pass_seconds(1)
            for _ in range(10):
                await asyncio.sleep(0.001)

    def failures(self) -> dict[str, int]:
        return {name: each.failures for name, each in self.supervisor.statistics.items() if each.failures}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[_Broker]:
    broker = _Broker(tmp_path)
    yield broker
    await broker.supervisor.stop()
    broker.close()


async def test_the_tasks_run_between_start_and_stop(broker: _Broker) -> None:
    assert not broker.switch.are_running and not broker.supervisor.names
    await broker.switch.start()
    await broker.switch.start()
    assert broker.switch.are_running and set(broker.supervisor.names) == _TASKS
    await broker.switch.stop()
    await broker.switch.stop()
    assert not broker.switch.are_running and not broker.supervisor.names


async def test_nothing_is_delivered_while_they_are_off(broker: _Broker) -> None:
    await broker.switch.start()
    broker.writer.put(inner(body=b"delayed"), delay_level=2)
    broker.writer.put(inner(body=b"timed", TIMER_DELIVER_MS=str(START_MS + 4000)))
    await broker.switch.stop()
    await broker.passes(10)
    assert broker.bodies() == []
    await broker.switch.start()
    await broker.delivers(2)
    assert sorted(broker.bodies()) == [b"delayed", b"timed"]
    assert not broker.failures()


async def test_nothing_is_delivered_twice_by_switching(broker: _Broker) -> None:
    await broker.switch.start()
    for number in range(100):
        broker.writer.put(inner(body=b"d%d" % number), delay_level=1)
        broker.writer.put(inner(body=b"t%d" % number, TIMER_DELIVER_MS=str(START_MS + 1000 + 10 * number)))
    for _ in range(8):
        broker.clock.pass_seconds(0.5)
        await asyncio.sleep(0.002)
        await broker.switch.stop()
        await broker.switch.start()
    broker.clock.pass_seconds(3)
    await until(lambda: len(broker.bodies()) >= 200)
    await broker.passes(3)
    wanted = sorted(b"%b%d" % (kind, number) for kind in (b"d", b"t") for number in range(100))
    assert sorted(broker.bodies()) == wanted
    assert not broker.failures()


async def test_progress_is_on_the_disk_after_a_stop(broker: _Broker, tmp_path: Path) -> None:
    await broker.switch.start()
    broker.writer.put(inner(body=b"delayed"), delay_level=1)
    broker.writer.put(inner(body=b"timed", TIMER_DELIVER_MS=str(START_MS + 2000)))
    await broker.delivers(2)
    assert len(broker.bodies()) == 2
    await broker.switch.stop()
    await broker.supervisor.stop()
    broker.close()
    again = _Broker(tmp_path, broker.clock)
    again.services.delivery.load()
    again.offsets.decode((tmp_path / "config/consumerOffset.json").read_bytes())
    await again.switch.start()
    await again.passes(5)
    assert len(again.bodies()) == 2
    await again.supervisor.stop()
    again.close()


async def test_a_popped_message_is_redelivered_after_the_switch(broker: _Broker) -> None:
    await broker.switch.start()
    broker.put(2, queue_id=1)
    popped = broker.pop(queue_id=1, invisible_ms=3000)
    broker.ack(popped, 0, queue_id=1)
    await broker.switch.stop()
    assert not len(broker.pops.in_flight)
    await broker.passes(10)
    assert broker.pops.redelivery.redelivered == 0
    await broker.switch.start()
    await broker.delivers(1, f"%RETRY%{GROUP}_T")
    assert broker.bodies(f"%RETRY%{GROUP}_T") == [b"1"]
    await broker.switch.stop()
    await broker.switch.start()
    await broker.passes(5)
    assert broker.bodies(f"%RETRY%{GROUP}_T") == [b"1"]


async def test_a_transaction_is_checked_after_the_switch(broker: _Broker) -> None:
    await broker.switch.start()
    producer = broker.join()
    broker.send(b"open")
    ended = broker.send(b"ended")
    broker.end(8, ended)
    await broker.switch.stop()
    await broker.passes(40)
    assert not producer.received and not len(broker.halves)
    await broker.switch.start()
    assert [half.queue_offset for half in broker.halves.in_order()] == [0]
    await broker.passes(1)
    assert {command.code for command in producer.received} == {39}
    assert set(broker.bodies(HALF)) == {b"open", b"ended"}


async def test_state_that_cannot_be_read_is_an_error(
    broker: _Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load() -> None:
        raise StoreDamaged("a queue is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(broker.services.transactions, "load", load)
        with pytest.raises(MasterServicesError, match="a queue is damaged"):
            await broker.switch.start()
    assert not broker.switch.are_running and not broker.supervisor.names
    await broker.switch.start()
    assert broker.switch.are_running
