"""Delayed messages and power cuts: each flushed message is delivered, and none early."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from rmq_broker.delivery.delay_offsets import DelayOffsetKeeper
from rmq_broker.delivery.message_writer import Written
from rmq_remoting.daemon.atomic_file import replace_file
from rmq_remoting.daemon.config_file import ConfigFile
from tests.support.clock import Clock
from tests.support.rows import each_row, each_seed
from tests.unit.broker.delivery.parts import DeliveryBroker, inner
from tests.unit.broker.powered_disk import PoweredDisk, end_of

_CUTS = 4
_STEPS = 30
_MOST_FLUSHES = 30
_LEVELS = {1: 1000, 2: 5000, 5: 60_000}


@dataclass(frozen=True, slots=True)
class _Sent:
    """A delayed message: its place in the log, its queue offset in its level, and when it is due."""

    place: Written
    level: int
    due_ms: int


class _Broker:
    """The delivery of a broker that is reopened many times, with its file `delayOffset.json`."""

    def __init__(self, disk: PoweredDisk, chance: random.Random, *, flushes_each: bool) -> None:
        self.sent: dict[int, _Sent] = {}
        self.durable: dict[int, int] = {}  # the offsets by level in the file, as of its last replacement
        self._disk = disk
        self._chance = chance
        self._flushes_each = flushes_each
        self._count = 0
        self._clock = Clock()
        self.open()

    def open(self) -> None:
        self.delivery = DeliveryBroker(self._disk.root, self._clock, mappedFileSizeCommitLog=64 * 1024)
        offsets, settings = self.delivery.delay_offsets, self.delivery.settings
        self._file = ConfigFile(settings.config_dir / "delayOffset.json", offsets)
        self._file.load()
        self.durable = offsets.current()
        self._keeper = DelayOffsetKeeper(offsets, self.delivery.store, self._file, settings)
        self.delivery.delayed.correct_offsets()

    async def step(self) -> None:
        """Do a random step."""
        steps = [self.send, self.send, self.pass_time, self.pass_time, self.flush_log, self.write_offsets]
        await self._chance.choice([*steps, self.flush])()
        if self._flushes_each:
            await self.flush_log()

    async def send(self) -> None:
        for _ in range(self._chance.randrange(1, 20)):
            number, self._count = self._count, self._count + 1
            level = self._chance.choice([*_LEVELS])
            place = self.delivery.writer.put(inner("T", b"%d" % number), level)
            self.sent[number] = _Sent(place, level, self._clock.now_ms + _LEVELS[level])

    async def pass_time(self) -> None:
        self._clock.pass_seconds(self._chance.choice([0, 0.4, 1, 5, 30]))
        await self.delivery.delayed.deliver_due()

    async def flush_log(self) -> None:
        self.delivery.store.flush_log()

    async def write_offsets(self) -> None:
        offsets = self.delivery.delay_offsets
        self._keeper.look()
        if offsets.take_news():
            content = offsets.encode()
            replace_file(self._file.path, content, keep_backup=True)
            if self._disk.is_on:
                self.durable = dict(offsets._durable)

    async def flush(self) -> None:
        """Flush all files in turn."""
        await self.write_offsets()
        self.delivery.store.flush()
        await self.write_offsets()

    @property
    def flushed(self) -> set[int]:
        """The numbers of the messages that are on the disk."""
        flushed = self.delivery.store.commit_log.flushed_offset
        return {number for number, sent in self.sent.items() if end_of(sent.place) <= flushed}

    async def run_until_power_is_lost(self) -> None:
        """Do random steps, one of which finds the power gone at a flush, and restart."""
        flushed = self.flushed
        self._disk.lose_power_after(self._chance.randrange(_MOST_FLUSHES))
        for _ in range(_STEPS):
            await self.step()
            if not self._disk.is_on:
                break
            flushed = self.flushed
        self._disk.lose_power()
        self.delivery.close()
        self._disk.turn_on()
        self._clock.pass_seconds(self._chance.choice([0, 0.3, 90]))
        written = self.durable
        self.open()
        # The replacement of the file that the power cut interrupted may have succeeded.
        assert all(self.durable.get(level, 0) >= offset for level, offset in written.items())
        log_end = self.delivery.store.commit_log.max_offset
        self.sent = {number: sent for number, sent in self.sent.items() if end_of(sent.place) <= log_end}
        assert flushed <= self.sent.keys()
        self.check_delivered(self.durable)

    def delivered(self) -> dict[int, list[int]]:
        """The store times of the deliveries of each message, by number."""
        times: dict[int, list[int]] = {}
        for message in self.delivery.stored("T"):
            times.setdefault(int(message.body), []).append(message.store_timestamp)
        return times

    def check_delivered(self, offsets: dict[int, int]) -> None:
        """Check that each message before a level's offset was delivered, and that none was early."""
        delivered = self.delivered()
        for number, sent in self.sent.items():
            if sent.place.queue_offset < offsets.get(sent.level, 0):
                assert number in delivered
            assert all(time >= sent.due_ms for time in delivered.get(number, ()))


@each_row("flushes_each", [True, False])
@each_seed(8)
async def test_flushed_messages_are_delivered(tmp_path: Path, seed: int, flushes_each: bool) -> None:
    chance = random.Random(seed)
    disk = PoweredDisk(tmp_path, chance, strict_names=seed % 2 == 1)
    with disk.watched():
        broker = _Broker(disk, chance, flushes_each=flushes_each)
        for _ in range(_CUTS):
            await broker.run_until_power_is_lost()
        await broker.delivery.pass_seconds(90)
        broker.check_delivered(broker.delivery.delay_offsets.current())
        assert broker.delivered().keys() == broker.sent.keys()
        assert sum(broker.delivery.delayed.waiting().values()) == broker.delivery.delayed.lost == 0
        broker.delivery.close()


async def test_messages_before_the_offsets_in_the_file_are_not_redelivered(tmp_path: Path) -> None:
    chance = random.Random(1)
    disk = PoweredDisk(tmp_path, chance, strict_names=True)
    with disk.watched():
        broker = _Broker(disk, chance, flushes_each=False)
        for number in range(20):
            broker.delivery.writer.put(inner("T", b"%d" % number), 1)
        await broker.delivery.pass_seconds(1)
        for _ in range(2):
            await broker.flush()
        broker.delivery.writer.put(inner("T", b"20"), 1)
        broker.delivery.store.flush()
        await broker.delivery.pass_seconds(1)  # delivered, but not flushed
        disk.lose_power()
        broker.delivery.close()
        disk.turn_on()
        broker.open()
        await broker.delivery.pass_seconds(1)
        assert broker.delivery.bodies("T") == [b"%d" % number for number in range(21)]
        broker.delivery.close()
