"""Disks that are slow, that fail, and that are full, under load: what is acknowledged holds all the same."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import QUEUES, LedgerLoad, read_queues
from tests.crash.test_power_loss import Machine
from tests.support.broker_requests import send
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client
from tests.support.small_disk import small_disk
from tests.support.waiting import until

_MESSAGES = 300
_UNWRITTEN = {
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SYSTEM_ERROR,
}


class FaultyMachine(Machine):
    """A machine whose disk is told at any time how to behave."""

    def __init__(self, home: Path, flush_mode: str, **settings: str) -> None:
        self._faults = home / "faults.json"
        super().__init__(home, flush_mode, "--faults", str(self._faults))
        self.broker.settings |= settings
        self.disk()

    def disk(self, **faults: object) -> None:
        """From the next flush on."""
        new = self._faults.with_suffix(".new")
        new.write_text(json.dumps(faults))
        new.replace(self._faults)


async def test_a_flush_of_50_ms(tmp_path: Path, flush_mode: str, seed: int) -> None:
    """Everybody waits for it together, nobody is refused."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode)
    async with machine.broker as broker:
        machine.disk(delay_seconds=0.05, only="commitlog/")
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            assert set(load.answers) == {ResponseCode.SUCCESS}
            machine.lose_power(chance, share_kept=0.5)
            await load.until_ended()
        await _back(machine, ledger, flush_mode)


async def test_a_flush_of_2_seconds(tmp_path: Path, flush_mode: str, seed: int) -> None:
    """Under SYNC_FLUSH sends are answered FLUSH_DISK_TIMEOUT after `syncFlushTimeout`, never SEND_OK."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode, syncFlushTimeout="300")
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.disk(delay_seconds=2.0, only="commitlog/")
            if flush_mode == "SYNC_FLUSH":
                await until(lambda: load.answers.get(ResponseCode.FLUSH_DISK_TIMEOUT), 10)
                assert set(load.answers) <= {ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}
            else:
                await load.until_acknowledged(_MESSAGES)
                assert set(load.answers) == {ResponseCode.SUCCESS}
            machine.lose_power(chance, share_kept=0.5)
            await load.until_ended()
        machine.disk()
        await _back(machine, ledger, flush_mode)


@pytest.mark.parametrize("only", ["commitlog/", "consumequeue/"])
async def test_a_flush_that_fails(tmp_path: Path, flush_mode: str, only: str, seed: int) -> None:
    """No send is accepted from then on, though the next flush would succeed; what is there can be read."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode)
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.disk(error=True, only=only)
            await until(lambda: ledger.refused_count, 10)
            machine.disk()
            # Answers to what was flushed before may still be on their way.
            refused = ledger.refused_count
            await until(lambda: ledger.refused_count > refused + _MESSAGES, 10)
            acknowledged = ledger.acknowledged_count
            await until(lambda: ledger.refused_count > refused + 2 * _MESSAGES, 10)
            assert ledger.acknowledged_count == acknowledged
        async with raw_client(broker.port) as client:
            answer = await client.ask(send(QUEUES[0][0], queue_id=0))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark is not None and "Input/output error" in answer.remark
        # Undecided ones may be behind what consumers see: only a restart decides them.
        stored = await read_queues(broker.port)
        assert sum(map(len, stored.values())) >= acknowledged
        machine.lose_power(chance, share_kept=0.0)
        await _back(machine, ledger, flush_mode)


async def test_a_flush_of_the_index_that_fails(tmp_path: Path, flush_mode: str, seed: int) -> None:
    """Nobody is refused for that: the index is built again, from the log."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode, maxIndexNum="300")
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.disk(error=True, only="index/")
            await until(lambda: "the index cannot be written" in broker.process.log_tail(), 20)
            machine.disk()
            await load.until_acknowledged(_MESSAGES)
            assert set(load.answers) == {ResponseCode.SUCCESS}
        broker.kill()
        await _back(machine, ledger, "SYNC_FLUSH")  # the process is killed: nothing is lost in either mode


async def _back(machine: Machine, ledger: Ledger, flush_mode: str) -> None:
    await machine.broker.start()
    stored = await read_queues(machine.broker.port)
    if flush_mode == "ASYNC_FLUSH":
        ledger.forget_lost(stored)
    ledger.check(stored)
    await machine.broker.stop()
    check_directory(machine.broker.store_path, stopped_cleanly=True)


# --- a disk that is really full ---


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=12) as folder:
        yield folder


async def test_a_full_disk(tmp_path: Path, disk: Path, flush_mode: str, seed: int) -> None:
    """Sends are refused, and accepted again by the same process when there is space."""
    chance, ledger = random.Random(seed), Ledger()
    ballast, little = disk / "ballast", disk / "little"
    home = tmp_path / "home"
    home.mkdir()
    (disk / "store").mkdir()
    (home / "store").symlink_to(disk / "store")
    # Nothing is cleaned: the ledger holds all messages against the log.
    settings = {"cleanFileForciblyEnable": "false"}
    async with FaultyBroker(home, flush_mode, settings=settings) as broker:
        ballast.write_bytes(bytes(4 << 20))
        little.write_bytes(bytes(1 << 20))
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await until(lambda: ledger.refused_count > _MESSAGES, 30)
            ballast.unlink()
            await load.until_acknowledged(_MESSAGES)
            await until(lambda: ledger.refused_count > 2 * _MESSAGES, 30)
        await _settled(broker, ledger)
        # Killed while it is full: a start that finds no byte of space says so, and needs little.
        broker.kill()
        assert set(load.answers) <= _UNWRITTEN | {ResponseCode.SUCCESS}
        try:
            await broker.start()
        except RuntimeError as error:
            assert "No space left on device" in str(error)
            little.unlink()
            await broker.start()
        ledger.check(await read_queues(broker.port))
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)


async def _settled(broker: FaultyBroker, ledger: Ledger) -> None:
    """What is stored of the load that has ended is stored now: the connections' last requests are done."""
    async with asyncio.timeout(10):
        before = -1
        while (now := sum(map(len, (await read_queues(broker.port)).values()))) != before:
            before = now
    ledger.check(await read_queues(broker.port))
