"""Hostile requests to running daemons: each goes on serving an honest client, within its memory.

`make test` runs it for RMQ_FUZZ_SECONDS (10) a daemon, `make test-long` for a minute. RMQ_CRASH_SEED repeats
the requests of a run.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from rmq_broker.build import build_dispatcher
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from tests.support.broker_requests import create_topic, send, succeeded
from tests.support.brokers import broker_configuration
from tests.support.namesrv import running_namesrv
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.processes import run_command
from tests.support.raw_client import RawClient, raw_client

_PROJECT = Path(__file__).resolve().parents[2]
_SECONDS = float(os.environ.get("RMQ_FUZZ_SECONDS", "10"))
_LONG_SECONDS = 60
_MOST_P99_SECONDS = 0.05
# Of address space, of which each thread reserves up to 72 MiB, and of memory in use.
_ADDRESS_SPACE_BYTES = 2 * 1024 * 1024 * 1024
_ANONYMOUS_BYTES = 512 * 1024 * 1024
_SMALL = {"mappedFileSizeCommitLog": str(16 * 1024 * 1024), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}

Ask = Callable[[RawClient], Awaitable[None]]


def _limit_memory(pid: int) -> None:
    hard = resource.prlimit(pid, resource.RLIMIT_AS)[1]
    resource.prlimit(pid, resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, hard))


async def _serve_honestly(port: int, ask: Ask, until_time: float) -> list[float]:
    """Make requests of an honest client one after the other; return their latencies in seconds, sorted."""
    latencies = []
    async with raw_client(port) as client:
        while time.monotonic() < until_time:
            began = time.perf_counter()
            await ask(client)
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(0.005)
    return sorted(latencies)


async def _fuzz(port: int, seed: int, codes: Sequence[int], ask: Ask) -> str:
    """Attack a daemon from another process; return what happened. The latency is checked in long runs."""
    arguments = [str(port), str(seed), str(_SECONDS), ",".join(map(str, codes))]
    command = [sys.executable, "-m", "tests.crash.request_fuzz", *arguments]
    end = time.monotonic() + _SECONDS
    attack = asyncio.create_task(run_command(command, timeout_s=_SECONDS + 30, cwd=_PROJECT))
    latencies = await _serve_honestly(port, ask, end)
    finished = await attack
    assert finished.exit_code == 0, finished
    p99 = latencies[len(latencies) * 99 // 100]
    if _SECONDS >= _LONG_SECONDS:
        assert p99 < _MOST_P99_SECONDS, f"p99 of honest requests: {p99 * 1000:.1f} ms"
    bursts = int(finished.stdout)
    assert bursts > 0
    return f"{bursts} bursts, {len(latencies)} honest requests, p99 {p99 * 1000:.1f} ms"


async def _check_server(server: OwnBroker | OwnNamesrv, summary: str) -> None:
    """Check that a daemon lives within its memory, has failed at nothing, and stops gracefully."""
    assert server.process.exit_code is None, server.process.log_tail()
    anonymous = server.usage().anonymous_bytes
    print(f"{server.name}: {summary}, memory {anonymous >> 20} MiB")
    assert anonymous < _ANONYMOUS_BYTES
    await server.stop()
    assert not server.logged_errors(), "\n".join(server.logged_errors()[:20])


@pytest.mark.timeout(60 + 2 * _SECONDS)
async def test_a_broker_serves_honest_clients_all_the_while(tmp_path: Path, seed: int) -> None:
    dispatcher = await build_dispatcher(broker_configuration(tmp_path / "table"))
    codes = [row.code for row in dispatcher.registrations()]

    async def ask(client: RawClient) -> None:
        succeeded(await client.ask(send("Honest", b"x")))

    async with OwnBroker("", home=tmp_path / "broker", settings=_SMALL) as broker:
        async with raw_client(broker.port) as client:
            succeeded(await client.ask(create_topic("Honest")))
        _limit_memory(broker.process.pid)
        await _check_server(broker, await _fuzz(broker.port, seed, codes, ask))


@pytest.mark.timeout(60 + 2 * _SECONDS)
async def test_a_name_server_serves_honest_clients_all_the_while(tmp_path: Path, seed: int) -> None:
    async with running_namesrv(tmp_path) as running:
        codes = [row.code for row in running.dispatcher.registrations()]
    route = {"topic": "Honest"}

    async def ask(client: RawClient) -> None:
        answer = await client.ask(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route))
        assert answer.code == ResponseCode.SUCCESS

    async with OwnNamesrv(home=tmp_path / "namesrv") as namesrv:
        broker = OwnBroker(namesrv.address, home=tmp_path / "broker", settings=_SMALL)
        async with broker, raw_client(broker.port) as client, raw_client(namesrv.port) as asker:
            succeeded(await client.ask(create_topic("Honest")))
            # The broker answers the creation of a topic once the name servers know it.
            await ask(asker)
            _limit_memory(namesrv.process.pid)
            await _check_server(namesrv, await _fuzz(namesrv.port, seed, codes, ask))
