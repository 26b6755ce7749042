"""Power cuts under load: only what was flushed stays for certain, of the rest a part by chance.

Under SYNC_FLUSH nothing that was acknowledged is lost; under ASYNC_FLUSH the log is a prefix of what it was,
and nothing is lost that had been flushed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support.broker_requests import request
from tests.support.ledger import Ledger
from tests.support.power_loss import cut_power
from tests.support.raw_client import raw_client

_ROUNDS = max(3, int(os.environ.get("RMQ_CRASH_ROUNDS", "4")) // 2)
_FEWEST, _MOST = 300, 1200
_SHARES_KEPT = (0.0, 0.0, 0.05, 0.5, 0.95, 1.0)


class Machine:
    """A broker on a disk that keeps only what was flushed."""

    def __init__(self, home: Path, flush_mode: str, *options: str) -> None:
        self._memory = home / "memory"
        root = home / "store"
        faults = ["--root", str(root), "--memory", str(self._memory), *options]
        self.broker = FaultyBroker(home, flush_mode, faults=faults)
        self.before = home / "before"

    def lose_power(self, chance: random.Random, share_kept: float) -> None:
        """Cut it now; what had been written until then stays in `before`."""
        self.broker.kill()
        root, left = self.broker.store_path, self.before.with_name("left")
        cut_power(root, self._memory, left, chance, share_kept)
        if (left / "rmq_boot_id").exists():
            (left / "rmq_boot_id").write_text("the boot before")
        shutil.rmtree(self.before, ignore_errors=True)
        root.rename(self.before)
        left.rename(root)
        shutil.rmtree(self._memory)

    async def flushed(self) -> None:
        """Wait until the broker says that all of its log is on the disk."""
        async with raw_client(self.broker.port) as client, asyncio.timeout(20):
            while True:
                answer = await client.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO))
                if json.loads(answer.body)["table"]["flushBehindBytes"] == "0":
                    return


@pytest.mark.timeout(60 + 20 * _ROUNDS)
async def test_power_cuts_under_load(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    machine = Machine(tmp_path, flush_mode)
    async with machine.broker as broker:
        for _ in range(_ROUNDS):
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(chance.randrange(_FEWEST, _MOST))
                machine.lose_power(chance, chance.choice(_SHARES_KEPT))
                await load.until_ended()
            await broker.start()
            stored = await read_queues(broker.port)
            if flush_mode == "ASYNC_FLUSH":
                print(ledger.forget_lost(stored), "acknowledged messages lost")
            print(ledger.check(stored))
            _check_prefix(machine)
            check_directory(broker.store_path)
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


@pytest.mark.parametrize("flushing", [True, False], ids=["flushing", "not-flushing"])
async def test_what_was_flushed_survives_and_the_test_would_notice(
    tmp_path: Path, flush_mode: str, flushing: bool, seed: int
) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    machine = Machine(tmp_path, flush_mode, *(() if flushing else ("--no-flush",)))
    async with machine.broker as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_FEWEST)
        await machine.flushed()
        machine.lose_power(chance, share_kept=0.0)
        await broker.start()
        stored = await read_queues(broker.port)
        if flushing:
            ledger.check(stored)
        else:
            with pytest.raises(AssertionError, match="lost"):
                ledger.check(stored)


def _check_prefix(machine: Machine) -> None:
    """The log that was found is the beginning of the one that was written."""
    written, found = (_log_of(root) for root in (machine.before, machine.broker.store_path))
    found = found.rstrip(b"\0")  # a record may end with zeros: those are not compared
    assert written.startswith(found)


def _log_of(root: Path) -> bytes:
    folder = root / "commitlog"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir())) if folder.exists() else b""
