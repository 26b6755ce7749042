"""Timed messages and power cuts: each flushed message is delivered, and none early."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmq_broker.delivery.message_writer import Written
from rmq_broker.timers import wheel
from rmq_remoting.daemon.config_file import ConfigFile
from tests.support.clock import Clock
from tests.support.rows import each_row, each_seed
from tests.unit.broker.delivery.parts import DeliveryBroker
from tests.unit.broker.powered_disk import PoweredDisk, end_of
from tests.unit.broker.timers.parts import opened, with_properties

_CUTS = 4
_STEPS = 25
_MOST_FLUSHES = 8
_LONGEST_MS = 400_000
# Messages that are further ahead are written again on the way.
_WINDOW_SLOTS = 150


@pytest.fixture(autouse=True)
async def no_counts_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written independently of the other files, at any moment."""
    monkeypatch.setattr(ConfigFile, "changed", lambda file: None)


@pytest.fixture(autouse=True)
async def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as a whole at each flush."""
    monkeypatch.setattr(wheel, "SLOTS", 4096)
    monkeypatch.setattr(wheel, "WHEEL_BYTES", 4096 * 32)


@dataclass
class _Sent:
    """The sent messages by number, with their ends in the log, and the recalls by number."""

    places: dict[int, Written] = field(default_factory=dict)
    recalls: dict[int, Written] = field(default_factory=dict)

    def lose_from(self, log_end: int) -> None:
        """Note the new end of the log."""
        for sent in (self.places, self.recalls):
            for number in [number for number, place in sent.items() if end_of(place) > log_end]:
                del sent[number]


class _TimerSteps:
    """A broker's timer that is reopened many times."""

    def __init__(self, disk: PoweredDisk, chance: random.Random, *, flushes_each: bool) -> None:
        self.sent = _Sent()
        self._disk = disk
        self._chance = chance
        self._flushes_each = flushes_each
        self._count = 0
        self._clock = Clock()
        self.delivery = self._opened()

    def _opened(self) -> DeliveryBroker:
        sizes = {"mappedFileSizeCommitLog": 64 * 1024, "mappedFileSizeTimerLog": 3 * 4096 + 40}
        return opened(self._disk.root, self._clock, timerRollWindowSlot=_WINDOW_SLOTS, **sizes)

    async def step(self) -> None:
        """Do a random step."""
        steps = [self.send, self.send, self.recall, self.pass_time, self.pass_time, self.flush_log]
        await self._chance.choice([*steps, self.flush])()
        if self._flushes_each:
            await self.flush_log()

    async def send(self) -> None:
        for _ in range(self._chance.randrange(1, 40)):
            number, self._count = self._count, self._count + 1
            after_ms = self._chance.choice([500, 1000, 2500, self._chance.randrange(_LONGEST_MS)])
            deliver_ms = str(self._clock.now_ms + after_ms)
            fields = {"TIMER_DELIVER_MS": deliver_ms, "UNIQ_KEY": str(number)}
            message = with_properties(fields, body=b"%d" % number)
            self.sent.places[number] = self.delivery.writer.put(message)

    async def recall(self) -> None:
        soon_ms = self._clock.now_ms + 1000
        waiting = [
            (number, place.timer_out_ms)
            for number, place in self.sent.places.items()
            if place.timer_out_ms is not None and place.timer_out_ms > soon_ms
        ]
        for number, out_ms in self._chance.sample(waiting, min(3, len(waiting))):
            if number not in self.sent.recalls:
                fields = {"TIMER_DEL_UNIQKEY": f"T+{number}", "TIMER_DELIVER_MS": str(out_ms + 1)}
                self.sent.recalls[number] = self.delivery.writer.put(with_properties(fields))

    async def pass_time(self) -> None:
        await self.delivery.pass_seconds(self._chance.choice([0, 0.1, 0.7, 1, 5, 60]))

    async def flush_log(self) -> None:
        self.delivery.store.flush_log()

    async def flush(self) -> None:
        """Flush all files in turn."""
        await self.delivery.timers.flush()
        self.delivery.store.flush()
        await self.delivery.timers.flush()

    @property
    def certain(self) -> set[int]:
        """Return the files on the disk."""
        flushed = self.delivery.store.commit_log.flushed_offset
        return {number for number, place in self.sent.places.items() if end_of(place) <= flushed}

    async def lose_power(self) -> None:
        """Cut the power, now or during a write, and restart."""
        certain = self.certain
        self._disk.lose_power_after(self._chance.randrange(_MOST_FLUSHES))
        await self.flush()
        self._disk.lose_power()
        self.close()
        self._disk.turn_on()
        self._clock.pass_seconds(self._chance.choice([0, 0.3, 90]))
        self.delivery = self._opened()
        self.sent.lose_from(self.delivery.store.commit_log.max_offset)
        assert certain <= self.sent.places.keys()

    def close(self) -> None:
        self.delivery.timers.pending.timer_log.close()
        self.delivery.store.close()

    async def deliver_all(self) -> None:
        timers = self.delivery.timers
        while timers.pending.count or timers.entering.behind:
            await self.delivery.pass_seconds(5)
        await self.delivery.pass_seconds(1)


@each_row("flushes_each", [True, False])
@each_seed(8)
async def test_flushed_messages_are_delivered(tmp_path: Path, seed: int, flushes_each: bool) -> None:
    chance = random.Random(seed)
    disk = PoweredDisk(tmp_path, chance, strict_names=seed % 2 == 1)
    with disk.watched():
        broker = _TimerSteps(disk, chance, flushes_each=flushes_each)
        for _ in range(_CUTS):
            for _ in range(chance.randrange(1, _STEPS)):
                await broker.step()
            await broker.lose_power()
            timers = broker.delivery.timers
            assert sum(timers.counts.waiting.values()) == timers.pending.count
        await broker.deliver_all()

        came = broker.delivery.stored("T")
        expected = broker.sent.places.keys() - broker.sent.recalls.keys()
        assert {int(message.body) for message in came} == expected
        for message in came:
            assert message.store_timestamp >= int(message.properties["TIMER_DELIVER_MS"])
        counts = broker.delivery.timers.counts
        assert (counts.lost, sum(counts.waiting.values())) == (0, 0)
        broker.close()
