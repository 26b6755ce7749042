"""A broker whose wall clock is set forward and back under load, and that is killed at any of these times."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support.ledger import Ledger
from tests.support.waiting import until

_HOUR_MS = 3_600_000
_MESSAGES = 250
_SETTINGS = {
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": "50",
}


class _Clock:
    """The broker's wall clock: a file that its process reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead_ms = 0
        path.write_bytes(bytes(8))
        self.faults = ["--clock", str(path)]

    def set_by(self, hours: int) -> None:
        self._ahead_ms += hours * _HOUR_MS
        with self._path.open("r+b") as file:
            file.write(struct.pack("q", self._ahead_ms))


async def _rounds(folder: Path, flush_mode: str, seed: int, rounds: int, reserved_hours: int) -> None:
    """Kill the broker `rounds` times. A restart with a wrong clock takes files for older than they are."""
    settings = _SETTINGS | {"fileReservedTime": str(reserved_hours)}
    chance, ledger, clock = random.Random(seed), Ledger(), _Clock(folder / "clock")
    async with FaultyBroker(folder, flush_mode, settings=settings, faults=clock.faults) as broker:
        for number in range(rounds):
            steps = chance.choice([[5, -5], [-5, 5], [5], [-5]]) if number else [5, -5]
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(_MESSAGES)
                for hours in steps:
                    noticed = _steps_noticed(broker)
                    clock.set_by(hours)
                    await load.until_acknowledged(_MESSAGES)
                    await until(lambda: _steps_noticed(broker) > noticed)  # noqa: B023 (called at once)
                broker.kill()
                await load.until_ended()
            if chance.random() < 0.5:
                clock.set_by(-1)
            await broker.start()
            print(ledger.check(await read_queues(broker.port)))
            check_directory(broker.store_path)
        if rounds > 1:
            await broker.stop()
            check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []
    assert "log file deleted" not in broker.log_path.read_text()


def _steps_noticed(broker: FaultyBroker) -> int:
    return broker.log_path.read_text().count("wall clock was set")


async def test_acknowledged_messages_are_kept(tmp_path: Path, flush_mode: str, seed: int) -> None:
    await _rounds(tmp_path, flush_mode, seed, 1, reserved_hours=2)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_acknowledged_messages_are_kept_in_many_rounds(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    await _rounds(tmp_path, flush_mode, seed, 20, reserved_hours=1000)
