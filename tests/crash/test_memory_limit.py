"""A broker that runs out of memory under large requests: it goes on, and no acknowledged message is lost.

The limit (RLIMIT_AS) is set on the running process, a little above what it uses. So an allocation fails
wherever it comes too late, as it does on a machine without swap where overcommitting is forbidden.
"""

from __future__ import annotations

import asyncio
import random
import re
import resource
from collections import Counter
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.framing import encode_frame
from rmq_remoting.headers.send import SendMessageResponseHeader
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import QUEUES, LedgerLoad, read_queues
from tests.support.broker_requests import create_topic, send, succeeded
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client
from tests.support.waiting import until

_MIB = 1024 * 1024
_LARGE: tuple[str, int] = ("Large", 0)
_LARGE_BYTES = 2 * _MIB
_REQUESTS = 32
_SETTINGS = {"maxMessageSize": str(4 * _MIB), "mappedFileSizeCommitLog": str(4 * _MIB)}
_REFUSALS = {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
_OUT_OF_MEMORY = re.compile(r"out of memory|MemoryError|Cannot allocate memory|can't start new thread")


def _limit_memory(pid: int, headroom_bytes: int | None) -> None:
    """Let a process allocate only so much more address space; None: without a limit again."""
    limit = resource.RLIM_INFINITY
    if headroom_bytes is not None:
        status = Path(f"/proc/{pid}/status").read_text()
        (used_kib,) = re.findall(r"^VmSize:\s+(\d+) kB", status, re.MULTILINE)
        limit = int(used_kib) * 1024 + headroom_bytes
    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, hard))


class _LargeSends:
    """Large messages, each over a connection of its own, of which the last bytes are held back at first."""

    def __init__(self, port: int, ledger: Ledger, run: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._port = port
        self._ledger = ledger
        self._run = run
        self._may_end = asyncio.Event()
        self._begun = 0

    async def run(self, broker: FaultyBroker) -> None:
        """Send all of them; their last bytes follow once the broker has run out of memory, or has all."""
        tasks = [asyncio.create_task(self._send(number)) for number in range(_REQUESTS)]
        seen = broker.log_path.stat().st_size
        await until(
            lambda: _OUT_OF_MEMORY.search(broker.log_path.read_text()[seen:]) or self._begun == _REQUESTS,
            20,
        )
        self._may_end.set()
        await asyncio.gather(*tasks)

    async def _send(self, number: int) -> None:
        body = b"large-%d-%d-" % (self._run, number) + bytes(_LARGE_BYTES)
        self._ledger.sending([body])
        frame = encode_frame(send(_LARGE[0], body, queue_id=_LARGE[1]))
        try:
            async with raw_client(self._port) as client:
                client.send_bytes(frame[:-1])
                await client.writer.drain()
                self._begun += 1
                await self._may_end.wait()
                client.send_bytes(frame[-1:])
                self._note(await client.receive(), body)
        except (EOFError, OSError, RuntimeError):  # RuntimeError: uvloop's, for a write after the end
            self.outcomes["cut"] += 1
            self._ledger.unknown([body])

    def _note(self, answer: RemotingCommand, body: bytes) -> None:
        self.outcomes[str(answer.code)] += 1
        if answer.code == ResponseCode.SUCCESS:
            header = SendMessageResponseHeader.decode(answer.ext_fields)
            self._ledger.acknowledged(_LARGE, header.queue_offset, [header.msg_id], [body])
        elif answer.code in _REFUSALS:
            self._ledger.refused([body])
        else:
            assert answer.code == ResponseCode.SYSTEM_ERROR, answer
            self._ledger.unknown([body])


async def _rounds(folder: Path, flush_mode: str, seed: int, rounds: int) -> None:
    chance, ledger = random.Random(seed), Ledger()
    async with FaultyBroker(folder, flush_mode, settings=_SETTINGS) as broker:
        for number in range(rounds):
            async with raw_client(broker.port) as client:
                succeeded(await client.ask(create_topic(_LARGE[0], 1)))
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(200)
                _limit_memory(broker.process.pid, chance.randrange(8, 48) * _MIB)
                sends = _LargeSends(broker.port, ledger, number)
                await sends.run(broker)
            print(dict(sends.outcomes), load.answers)
            assert _OUT_OF_MEMORY.search(broker.log_path.read_text())
            assert sum(sends.outcomes.values()) > sends.outcomes["0"], "there was enough memory for all"
            assert broker.process.exit_code is None
            # The limit stays. Connections that ran out of memory were cut: new ones work.
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(200)
                assert set(load.answers) == {ResponseCode.SUCCESS}
                broker.kill()
                await load.until_ended()
            await broker.start()
            print(ledger.check(await read_queues(broker.port, [*QUEUES, _LARGE])))
            check_directory(broker.store_path)
    told = [line for line in broker.logged_errors() if not _OUT_OF_MEMORY.search(line)]
    assert told == [], "each error is one of memory"


async def test_requests_that_do_not_fit_into_memory(tmp_path: Path, flush_mode: str, seed: int) -> None:
    await _rounds(tmp_path, flush_mode, seed, 1)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_memory_runs_out_many_times(tmp_path: Path, flush_mode: str, seed: int) -> None:
    await _rounds(tmp_path, flush_mode, seed, 20)
