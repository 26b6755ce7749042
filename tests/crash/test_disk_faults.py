"""Slow, failing and full disks under load: the guarantees for acknowledged messages hold."""

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
from tests.crash.machine import Machine
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
    """A machine with faults of the disk that a test switches on and off."""

    def __init__(self, home: Path, flush_mode: str, **settings: str) -> None:
        self._faults = home / "faults.json"
        super().__init__(home, flush_mode, "--faults", str(self._faults), **settings)
        self.set_faults()

    def set_faults(self, **faults: object) -> None:
        """Set the faults from the next flush on (`broker_process`); without arguments there are none."""
        new = self._faults.with_suffix(".new")
        new.write_text(json.dumps(faults))
        new.replace(self._faults)

    @property
    def faults_met(self) -> int:
        """Number of flushes so far that a fault concerned."""
        met = self._faults.with_name("met")
        return met.stat().st_size if met.exists() else 0


async def test_a_flush_of_50_ms_delays_sends_and_refuses_none(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode, flushIntervalCommitLog="20")
    async with machine.broker as broker:
        machine.set_faults(delay_seconds=0.05, only="commitlog/")
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            await until(lambda: machine.faults_met > 1, 20)
            assert set(load.answers) == {ResponseCode.SUCCESS}
            machine.lose_power(chance, share_kept=0.5)
            await load.until_ended()
        await _check_after_power_loss(machine, ledger, flush_mode)


async def test_a_flush_of_2_seconds_times_synchronous_sends_out(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    """Under SYNC_FLUSH the answer after `syncFlushTimeout` is FLUSH_DISK_TIMEOUT, never SEND_OK."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode, syncFlushTimeout="300", flushIntervalCommitLog="20")
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.set_faults(delay_seconds=2.0, only="commitlog/")
            await until(lambda: machine.faults_met, 20)
            if flush_mode == "SYNC_FLUSH":
                await until(lambda: load.answers.get(ResponseCode.FLUSH_DISK_TIMEOUT), 10)
                assert set(load.answers) <= {ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}
            else:
                await load.until_acknowledged(_MESSAGES)
                assert set(load.answers) == {ResponseCode.SUCCESS}
            machine.lose_power(chance, share_kept=0.5)
            await load.until_ended()
        machine.set_faults()
        await _check_after_power_loss(machine, ledger, flush_mode)


@pytest.mark.parametrize("only", ["commitlog/", "consumequeue/"])
async def test_a_failed_flush_ends_writing_but_not_reading(
    tmp_path: Path, flush_mode: str, only: str, seed: int
) -> None:
    """The broker refuses all later sends, although the next flush would succeed."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode)
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.set_faults(error=True, only=only)
            await until(lambda: ledger.refused_count, 10)
            machine.set_faults()
            # Answers to messages that were flushed before may still arrive.
            refused = ledger.refused_count
            await until(lambda: ledger.refused_count > refused + _MESSAGES, 10)
            acknowledged = ledger.acknowledged_count
            await until(lambda: ledger.refused_count > refused + 2 * _MESSAGES, 10)
            assert ledger.acknowledged_count == acknowledged
        async with raw_client(broker.port) as client:
            answer = await client.ask(send(QUEUES[0][0], queue_id=0))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.remark is not None and "Input/output error" in answer.remark
        # Consumers may not see undecided messages before the restart.
        stored = await read_queues(broker.port)
        assert sum(map(len, stored.values())) >= acknowledged
        machine.lose_power(chance, share_kept=0.0)
        await _check_after_power_loss(machine, ledger, flush_mode)


async def test_a_failed_flush_of_the_index_refuses_no_message(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    """The broker rebuilds the index from the log."""
    chance, ledger = random.Random(seed), Ledger()
    machine = FaultyMachine(tmp_path, flush_mode, maxIndexNum="300")
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MESSAGES)
            machine.set_faults(error=True, only="index/")
            await until(lambda: "index not written" in broker.process.log_tail(), 20)
            machine.set_faults()
            await load.until_acknowledged(_MESSAGES)
            assert set(load.answers) == {ResponseCode.SUCCESS}
        broker.kill()
        await _check_after_restart(machine.broker, ledger)


async def _check_after_power_loss(machine: Machine, ledger: Ledger, flush_mode: str) -> None:
    await machine.broker.start()
    print(f"{len(machine.check_loss())} records lost")
    if flush_mode == "ASYNC_FLUSH":
        ledger.forget_lost(await read_queues(machine.broker.port))
    await _check(machine.broker, ledger)


async def _check_after_restart(broker: FaultyBroker, ledger: Ledger) -> None:
    await broker.start()
    await _check(broker, ledger)


async def _check(broker: FaultyBroker, ledger: Ledger) -> None:
    ledger.check(await read_queues(broker.port))
    await broker.stop()
    check_directory(broker.store_path, stopped_cleanly=True)


# --- a full disk ---


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=12) as folder:
        yield folder


async def test_a_full_disk_refuses_messages_until_there_is_space(
    tmp_path: Path, disk: Path, flush_mode: str, seed: int
) -> None:
    """The same process accepts messages again."""
    chance, ledger = random.Random(seed), Ledger()
    ballast, little = disk / "ballast", disk / "little"
    home = tmp_path / "home"
    home.mkdir()
    (disk / "store").mkdir()
    (home / "store").symlink_to(disk / "store")
    # Nothing may be deleted: the ledger compares all messages with the log.
    settings = {"cleanFileForciblyEnable": "false"}
    async with FaultyBroker(home, flush_mode, settings=settings) as broker:
        ballast.write_bytes(bytes(4 << 20))
        little.write_bytes(bytes(1 << 20))
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await until(lambda: ledger.refused_count > _MESSAGES, 30)
            ballast.unlink()
            await load.until_acknowledged(_MESSAGES)
            await until(lambda: ledger.refused_count > 2 * _MESSAGES, 30)
        await _check_when_idle(broker, ledger)
        # Killed on a full disk: a start without any space names the cause, and needs little.
        broker.kill()
        assert set(load.answers) <= _UNWRITTEN | {ResponseCode.SUCCESS}
        try:
            await broker.start()
        except RuntimeError as error:
            assert "No space left on device" in str(error)
            little.unlink()
            await broker.start()
        await _check(broker, ledger)


async def _check_when_idle(broker: FaultyBroker, ledger: Ledger) -> None:
    """Check the ledger once the broker has stored the last requests of the closed connections."""
    async with asyncio.timeout(10):
        before = -1
        while (now := sum(map(len, (await read_queues(broker.port)).values()))) != before:
            before = now
    ledger.check(await read_queues(broker.port))
