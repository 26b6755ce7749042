"""A replica that takes over at any moment delivers every message, and redelivers few of them.

A master in virtual time stores delayed and timed messages, and delivers them. The replica gets the log late
and in pieces, and the master's answers in between. Then the master is lost.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from rmq_broker.replication.metadata.deliveries import DelayPart, TimerPart
from rmq_broker.replication.metadata.log_barrier import LogBarrier
from rmq_broker.replication.metadata.master import Master
from rmq_remoting.codes import RequestCode
from tests.support.fake_master import ADDRESS, FakeMaster
from tests.unit.broker.delivery.parts import DeliveryBroker, inner
from tests.unit.broker.timers.parts import with_properties

_KEYS: Final = {"messageDelayLevel": "1s 5s 30s", "mappedFileSizeTimerLog": 4096}
_SYNC_SECONDS: Final = 3


class _Group:
    """A master and its replica."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.master = DeliveryBroker(folder / "m", None, **_KEYS)
        keys = {"brokerRole": "SLAVE", "brokerId": 1, **_KEYS}
        self.replica = DeliveryBroker(folder / "r", self.master.clock, **keys)
        self.client = FakeMaster()
        self.client.answers = {
            RequestCode.GET_ALL_DELAY_OFFSET: self.master.delay_offsets.encode,
            RequestCode.GET_TIMER_CHECK_POINT: lambda: self.master.timers.pending.reported().encode(),
        }
        self.barrier = LogBarrier(lambda: self.replica.store.flushed_offset)
        self.parts = (
            DelayPart(self.replica.services.delivery, self.barrier),
            TimerPart(self.replica.timers, self.barrier),
        )
        self.stored = 0
        # By body: when the master delivered the message, in seconds of the test.
        self.delivered: dict[bytes, float] = {}
        self.seconds = 0.0
        self.stalled_until = 0.0
        # When the answers were asked for that are held, and those that were applied last.
        self.asked = self.applied = 0.0

    def store_some(self) -> None:
        for _ in range(self.chance.randint(0, 3)):
            self.stored += 1
            body = b"%d" % self.stored
            if self.chance.random() < 0.5:
                message = inner("T", body)
                message.set_properties({"DELAY": str(self.chance.randint(1, 3))})
            else:
                due_ms = self.master.clock() + self.chance.choice([1, 700, 2500, 10_000, 40_000])
                properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode()}
                message = with_properties(properties, body=body)
            self.master.writer.put(message)

    async def step(self) -> None:
        """Let some time pass on the master, and flush its files or not."""
        seconds = self.chance.choice([0.2, 0.5, 1.0])
        self.seconds += seconds
        await self.master.pass_seconds(seconds)
        for body in self.master.bodies():
            self.delivered.setdefault(body, self.seconds)
        if self.chance.random() < 0.7:
            self.master.store.commit_log.flush()
            self.master.delay_offsets.log_is(
                self.master.store.max_phy_offset(), self.master.store.flushed_offset
            )
            await self.master.timers.flush()

    async def ask(self) -> None:
        if not len(self.barrier):
            self.asked = self.seconds
        for part in self.parts:
            await part.sync(Master(self.client, ADDRESS))
        self.barrier.master_ends_at(self.master.store.max_phy_offset())

    async def replicate(self) -> None:
        """Copy a part of the master's log, or nothing for a while; apply the answers that it allows."""
        if self.chance.random() < 0.1:
            self.stalled_until = self.seconds + self.chance.choice([1, 5, 15])
        offset, end = self.replica.store.max_phy_offset(), self.master.store.max_phy_offset()
        until = self.chance.choice([self.chance.randint(offset, end), end])
        if self.seconds < self.stalled_until:
            until = offset
        while offset < until:
            data = self.master.store.commit_log.get_data(offset, until - offset)
            assert data
            self.replica.store.append_data(offset, data)
            self.replica.store.enter_data()
            offset += len(data)
        self.replica.store.commit_log.flush()
        for _, apply in self.barrier.take_reached():
            await apply()
        if not len(self.barrier):
            self.applied = self.asked


@pytest.mark.parametrize("seed", range(8))
async def test_no_message_is_lost_and_few_are_redelivered(tmp_path: Path, seed: int) -> None:
    group = _Group(tmp_path, seed)
    since_asked = 0.0
    for _ in range(group.chance.randint(20, 80)):
        before = group.seconds
        group.store_some()
        await group.step()
        await group.replicate()
        since_asked += group.seconds - before
        if since_asked >= _SYNC_SECONDS:
            since_asked = 0
            await group.ask()
    clock = group.master.clock
    group.master.close()
    await group.replica.services.delivery.close(all_is_flushed=True)
    await group.replica.store.stop()
    promoted = DeliveryBroker(tmp_path / "r", clock, **_KEYS)
    promoted.services.delivery.load()
    for _ in range(60):
        await promoted.pass_seconds(1)
    counts = Counter(promoted.bodies())
    await promoted.services.delivery.close(all_is_flushed=True)

    waiting = Counter[bytes]()
    for queue_id in range(3):
        waiting.update(promoted.bodies("SCHEDULE_TOPIC_XXXX", queue_id))
    waiting.update(promoted.bodies("rmq_sys_wheel_timer"))
    assert waiting.keys() <= counts.keys(), "a message that the replica has was not delivered"
    # The master had delivered these after the answers that were applied. The timer's rests on the one before.
    redelivered = {body for body, count in counts.items() if count > 1}
    oldest = group.applied - 3 * _SYNC_SECONDS
    assert all(group.delivered[body] >= oldest for body in redelivered)
    promoted.close()
