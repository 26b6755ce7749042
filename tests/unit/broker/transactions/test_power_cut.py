"""Transactions and power cuts: flushed ones end, and only committed messages are delivered."""

from __future__ import annotations

import random
from pathlib import Path

from rmq_broker.delivery.inner_message import read_message
from rmq_broker.delivery.message_writer import Written
from rmq_remoting.daemon.atomic_file import replace_file
from rmq_remoting.daemon.config_file import ConfigFile
from rmq_remoting.headers.transaction import CheckTransactionStateRequestHeader
from rmq_remoting.message_codec import decode_messages
from tests.support.clock import Clock
from tests.support.rows import each_row, each_seed
from tests.unit.broker.powered_disk import PoweredDisk, end_of
from tests.unit.broker.transactions.parts import (
    COMMIT,
    GIVEN_UP,
    ROLLBACK,
    TOPIC,
    TransactionBroker,
    place_of,
)

_CUTS = 4
_STEPS = 30
_MOST_FLUSHES = 10
_MOST_CHECKS = 4
_QUEUE_ID = 2  # where the messages belong


class _TransactionSteps:
    """A broker's transactions, reopened many times, and their reported outcomes by number."""

    def __init__(self, disk: PoweredDisk, chance: random.Random, *, flushes_each: bool) -> None:
        self.places: dict[int, Written] = {}  # of half messages that are in the log
        self.committed: set[int] = set()
        self.rolled_back: set[int] = set()
        self._disk = disk
        self._chance = chance
        self._flushes_each = flushes_each
        self._count = 0
        self._clock = Clock()
        self._offsets_path = disk.root / "config" / "consumerOffset.json"

    async def open(self) -> None:
        sizes = {"mappedFileSizeCommitLog": 64 * 1024}
        self.broker = TransactionBroker(
            self._disk.root, self._clock, transactionCheckMax=_MOST_CHECKS, **sizes
        )
        ConfigFile(self._offsets_path, self.broker.offsets).load()
        await self.broker.service.load()

    async def step(self) -> None:
        """Do a random step."""
        steps = [self.send, self.end, self.end, self.write_ops, self.flush_log, self.keep_progress]
        await self._chance.choice([*steps, self.check, self.flush])()
        if self._flushes_each:
            await self.flush_log()

    async def send(self) -> None:
        for _ in range(self._chance.randrange(1, 10)):
            number, self._count = self._count, self._count + 1
            self.places[number] = self.broker.send(b"%d" % number, queue_id=_QUEUE_ID)

    async def end(self) -> None:
        under_way = sorted(self.under_way)
        for number in self._chance.sample(under_way, min(4, len(under_way))):
            if self._chance.random() < 0.5:
                self.broker.end(COMMIT, self.places[number])
                self.committed.add(number)
            else:
                self.broker.end(ROLLBACK, self.places[number])
                self.rolled_back.add(number)

    async def check(self) -> None:
        await self.broker.check_after(30)

    async def write_ops(self) -> None:
        self.broker.service.ops.write()

    async def flush_log(self) -> None:
        self.broker.store.flush_log()

    async def keep_progress(self) -> None:
        self.broker.service.progress.look()
        replace_file(self._offsets_path, self.broker.offsets.encode(), keep_backup=True)

    async def flush(self) -> None:
        """Flush all files in turn."""
        await self.keep_progress()
        self.broker.store.flush()
        await self.keep_progress()

    async def lose_power(self) -> None:
        """Cut the power, now or during a write, and restart."""
        flushed = self.broker.store.commit_log.flushed_offset
        certain = {number for number, place in self.places.items() if end_of(place) <= flushed}
        self._disk.lose_power_after(self._chance.randrange(_MOST_FLUSHES))
        await self.flush()
        self._disk.lose_power()
        self.broker.store.close()
        self._disk.turn_on()
        await self.open()
        log_end = self.broker.store.commit_log.max_offset
        self.places = {number: place for number, place in self.places.items() if end_of(place) <= log_end}
        assert certain <= self.places.keys()

    async def answer_questions(self) -> None:
        """Check each transaction in progress once, or give it up; its producer commits it."""
        under_way = self.under_way
        producer = self.broker.join()
        await self.broker.check_after(30)
        for command in producer.received:
            (message,) = decode_messages(command.body)
            under_way.remove(int(message.body))
            self.committed.add(int(message.body))
            header = CheckTransactionStateRequestHeader.decode(command.ext_fields)
            self.broker.end(COMMIT, place_of(header), from_transaction_check=True)
        assert under_way <= self.given_up

    # --- what became of them ---

    @property
    def under_way(self) -> set[int]:
        records = (
            self.broker.store.record_at(half.physical_offset) for half in self.broker.halves.in_order()
        )
        return {int(read_message(record).message.body) for record in records if record is not None}

    @property
    def delivered(self) -> set[int]:
        return {int(body) for body in self.broker.bodies(TOPIC, _QUEUE_ID)}

    @property
    def given_up(self) -> set[int]:
        return {int(body) for body in self.broker.bodies(GIVEN_UP)}

    def check_all(self) -> None:
        """Check that each transaction is in progress or has its reported outcome."""
        delivered = self.delivered
        assert delivered <= self.committed
        assert self.places.keys() <= self.under_way | delivered | self.rolled_back | self.given_up


@each_row("flushes_each", [True, False])
@each_seed(8)
async def test_flushed_transactions_end(tmp_path: Path, seed: int, flushes_each: bool) -> None:
    chance = random.Random(seed)
    disk = PoweredDisk(tmp_path, chance, strict_names=seed % 2 == 1)
    with disk.watched():
        machine = _TransactionSteps(disk, chance, flushes_each=flushes_each)
        await machine.open()
        for _ in range(_CUTS):
            for _ in range(chance.randrange(1, _STEPS)):
                await machine.step()
            acknowledged = machine.committed & machine.delivered
            await machine.lose_power()
            if flushes_each:
                assert acknowledged <= machine.delivered
            machine.check_all()

        await machine.answer_questions()
        machine.check_all()
        assert machine.under_way == set()
        machine.broker.store.close()
