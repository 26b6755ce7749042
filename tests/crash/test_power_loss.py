"""Power cuts under load: flushed data survives, and of the rest an arbitrary part.

SYNC_FLUSH loses no acknowledged message. ASYNC_FLUSH loses only the end of the log, nothing that a flush had
covered, and nothing older than the interval in docs/durability.md.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from tests.crash.directory import check_directory
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.crash.machine import Machine
from tests.support.broker_requests import send, sent
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client

_ROUNDS = max(3, int(os.environ.get("RMQ_CRASH_ROUNDS", "4")) // 2)
_FEWEST, _MOST = 300, 1200
_SHARES_KEPT = (0.0, 0.0, 0.05, 0.5, 0.95, 1.0)
_QUICK_FLUSHES = {"flushIntervalCommitLog": "50", "flushIntervalConsumeQueue": "100"}
_NO_QUEUE_FLUSHES = {"flushIntervalConsumeQueue": "600000"}  # because they flush the log, too
_INTERVAL_MS = 300
# How long a flush may be late or take on a busy machine.
_SLACK_MS = 1000
_LOAD_SECONDS = 3.0


@pytest.mark.smoke("[SYNC_FLUSH]")
@pytest.mark.timeout(60 + 20 * _ROUNDS)
async def test_power_cuts_under_load(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    options = ("--strict-names",) if chance.random() < 0.5 else ()
    machine = Machine(tmp_path, flush_mode, *options, **_QUICK_FLUSHES)
    async with machine.broker as broker:
        for _ in range(_ROUNDS):
            flushed_before = await machine.flushed_offset()
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(chance.randrange(_FEWEST, _MOST))
                await machine.until_flushed(flushed_before)
                machine.lose_power(chance, chance.choice(_SHARES_KEPT))
                await load.until_ended()
            await broker.start()
            stored = await read_queues(broker.port)
            print(f"{len(machine.check_loss())} records lost")
            if flush_mode == "ASYNC_FLUSH":
                ledger.forget_lost(stored)
            print(ledger.check(stored))
            check_directory(broker.store_path)
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


async def test_asynchronous_flush_under_load_loses_one_interval(tmp_path: Path, seed: int) -> None:
    settings = {"flushIntervalCommitLog": str(_INTERVAL_MS), **_NO_QUEUE_FLUSHES}
    machine = Machine(tmp_path, "ASYNC_FLUSH", **settings)
    async with machine.broker as broker, LedgerLoad(broker.port, Ledger(), random.Random(seed)) as load:
        await asyncio.sleep(_LOAD_SECONDS)
        await _check_age_of_loss(machine)
        await load.until_ended()


async def test_asynchronous_flush_of_few_messages_loses_one_thorough_interval(tmp_path: Path) -> None:
    """Fewer new pages than `flushCommitLogLeastPages` wait for the thorough interval."""
    settings = {
        "flushIntervalCommitLog": "50",
        "flushCommitLogThoroughInterval": str(_INTERVAL_MS),
        **_NO_QUEUE_FLUSHES,
    }
    machine = Machine(tmp_path, "ASYNC_FLUSH", **settings)
    async with machine.broker as broker:
        async with raw_client(broker.port) as client:
            end = time.monotonic() + _LOAD_SECONDS
            while time.monotonic() < end:
                sent(await client.ask(send("T")))
                await asyncio.sleep(0.05)
        await _check_age_of_loss(machine)


async def _check_age_of_loss(machine: Machine) -> None:
    """Cut the power, restart the broker, and check when the oldest lost message had been stored."""
    cut_ms = time.time() * 1000
    machine.lose_power(random.Random(1), share_kept=0.0)
    await machine.broker.start()
    lost = machine.check_loss()
    age_ms = max((cut_ms - record.message.store_timestamp for record in lost), default=0)
    print(f"{len(lost)} records lost, the oldest {age_ms:.0f} ms old")
    assert age_ms <= _INTERVAL_MS + _SLACK_MS


@pytest.mark.parametrize(
    ("flushing", "options"),
    [(True, ()), (True, ("--strict-names",)), (False, ("--no-flush",))],
    ids=["flushing", "strict-names", "not-flushing"],
)
async def test_a_broker_that_does_not_flush_is_noticed(
    tmp_path: Path, flush_mode: str, flushing: bool, options: tuple[str, ...], seed: int
) -> None:
    """Flushed messages survive. Without real flushes they are lost, though no flush has failed."""
    chance = random.Random(seed)
    ledger = Ledger()
    machine = Machine(tmp_path, flush_mode, *options)
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_FEWEST)
        await machine.until_all_flushed()
        machine.lose_power(chance, share_kept=0.0)
        await broker.start()
        stored = await read_queues(broker.port)
        if flushing:
            ledger.check(stored)
            assert machine.check_loss() == []
        else:
            with pytest.raises(AssertionError, match="lost"):
                ledger.check(stored)
