"""A broker whose descriptors are used up by connections: it serves those that it has, and goes on storing."""

from __future__ import annotations

import asyncio
import random
import resource
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.brokers import FLUSH_MODES, FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import LedgerLoad, end_of, read_queues
from tests.support.ledger import Ledger
from tests.support.ports import LOOPBACK
from tests.support.raw_client import raw_client
from tests.support.waiting import until

# Above the open files at the time of the limit. The broker keeps 16 of a small limit for files.
_ROOM = 40
_TRIED = 80
_IDLE_SECONDS = 0.5
# Each log file takes two descriptors for good. Files of 256 KiB would use those for files up in a second.
_LOG_FILES = {"mappedFileSizeCommitLog": str(8 * 1024 * 1024)}
_QUEUE = ("Ledger0", 0)


def _open_files(broker: FaultyBroker) -> int:
    return sum(1 for _ in Path(f"/proc/{broker.process.pid}/fd").iterdir())


def _limit_files(broker: FaultyBroker, most: int) -> None:
    hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (min(most, hard), hard))


class _Idle:
    """Connections that send nothing."""

    def __init__(self, port: int) -> None:
        self.open = 0
        self._port = port
        self._tasks: list[asyncio.Task[None]] = []
        self._settled = 0
        self._end = asyncio.Event()

    async def connect(self, count: int) -> None:
        """Open some; those that the broker refuses end at once, or wait for it to accept them."""
        self._tasks += [asyncio.create_task(self._hold()) for _ in range(count)]
        await until(lambda: self._settled == len(self._tasks), 20)

    async def close(self) -> None:
        """Close all of them."""
        self._end.set()
        await asyncio.gather(*self._tasks)

    async def _hold(self) -> None:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, self._port)
        except OSError:
            self._settled += 1
            return
        self._settled += 1
        self.open += 1
        ended = asyncio.create_task(reader.read())
        closing = asyncio.create_task(self._end.wait())
        await asyncio.wait([ended, closing], return_when=asyncio.FIRST_COMPLETED)
        self.open -= 1
        closing.cancel()
        writer.transport.abort()
        await asyncio.gather(ended, closing, return_exceptions=True)


async def _cpu_share_when_idle(broker: FaultyBroker) -> float:
    before = broker.usage().cpu_seconds
    await asyncio.sleep(_IDLE_SECONDS)
    return (broker.usage().cpu_seconds - before) / _IDLE_SECONDS


@pytest.mark.parametrize(
    "flush_mode", [FLUSH_MODES[0], *(pytest.param(mode, marks=pytest.mark.long) for mode in FLUSH_MODES[1:])]
)
async def test_connections_without_end(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance, ledger = random.Random(seed), Ledger()
    async with FaultyBroker(tmp_path, flush_mode, settings=_LOG_FILES) as broker, AsyncExitStack() as stack:
        idle = _Idle(broker.port)
        stack.push_async_callback(idle.close)
        served = await stack.enter_async_context(raw_client(broker.port))
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(100)
            _limit_files(broker, _open_files(broker) + _ROOM)
            await idle.connect(_TRIED)
            await until(lambda: idle.open < _ROOM)
            # The store still gets the next files of log and queues.
            files = len(broker.log_files)
            await until(lambda: len(broker.log_files) > files, 30)
            await load.until_acknowledged(100)
            assert set(load.answers) == {ResponseCode.SUCCESS}
        held = idle.open
        assert held > 0, "those that were accepted stay"

        # Not a single descriptor is left, even for accept().
        await end_of(served, _QUEUE)
        _limit_files(broker, _open_files(broker))
        await idle.connect(_TRIED)
        assert await _cpu_share_when_idle(broker) < 0.5, "it tries to accept again and again"
        await end_of(served, _QUEUE)

        # Descriptors are free again.
        await idle.close()
        _limit_files(broker, _open_files(broker) + _ROOM)
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(200)
            assert set(load.answers) == {ResponseCode.SUCCESS}
            broker.kill()
            await load.until_ended()
        assert "LimitNOFILE" in broker.log_path.read_text()
        await broker.start()
        print(ledger.check(await read_queues(broker.port)))
        check_directory(broker.store_path)
