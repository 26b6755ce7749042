"""A broker that is killed repeatedly while clients send: no acknowledged message is lost.

Some rounds; RMQ_CRASH_ROUNDS sets their number (`make test-crash`: 50).
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from pathlib import Path

import pytest

from rmq_remoting.codes import ResponseCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory, check_with_apache
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support import toolchain
from tests.support.broker_requests import pull, send, sent
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client
from tests.support.requirements import built_or_skip

_ROUNDS = int(os.environ.get("RMQ_CRASH_ROUNDS", "4"))
_FEWEST, _MOST = 400, 1600
# From exec to ready after a kill; an idle machine takes 0.6 s.
_RESTART_SECONDS = 10.0
# Besides the first round, a share of the rounds kills the broker again while it starts.
_KILLED_AGAIN_SHARE = 0.25
_START_SECONDS = 0.6


@pytest.mark.smoke("[ASYNC_FLUSH]")
@pytest.mark.timeout(60 + 15 * _ROUNDS)
async def test_kill_9_under_load(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    restarts: list[float] = []
    async with FaultyBroker(tmp_path, flush_mode) as broker:
        for round_number in range(_ROUNDS):
            rolled = len(broker.log_files) if (broker.store_path / "commitlog").exists() else 0
            async with LedgerLoad(broker.port, ledger, chance) as load:
                await load.until_acknowledged(chance.randrange(_FEWEST, _MOST))
                await asyncio.sleep(chance.random() * 0.02)  # not only right after an answer
                broker.kill()
                await load.until_ended()
            assert len(broker.log_files) >= rolled + 2, "too few messages to roll over to several log files"
            if round_number == 0 or chance.random() < _KILLED_AGAIN_SHARE:
                await _kill_while_starting(broker, chance)
            began = time.monotonic()
            await broker.start()
            restarts.append(time.monotonic() - began)
            print(ledger.check(await read_queues(broker.port)))
            check_directory(broker.store_path)
        print("seconds from exec to ready after each kill:", *[f"{seconds:.2f}" for seconds in restarts])
        assert max(restarts) < _RESTART_SECONDS
        assert ledger.seen_count > 0
        await broker.stop()
        check_directory(broker.store_path, stopped_cleanly=True)
    assert broker.logged_errors() == []


async def _kill_while_starting(broker: FaultyBroker, chance: random.Random) -> None:
    seconds = chance.random() * _START_SECONDS
    while True:
        try:
            await broker.start(ready_timeout_s=seconds)
        except TimeoutError:
            return  # it is killed by then
        broker.kill()
        seconds /= 2


@pytest.mark.java
@pytest.mark.timeout(120)
@pytest.mark.long
async def test_apaches_broker_opens_the_store_of_a_killed_broker(
    tmp_path: Path, flush_mode: str, seed: int
) -> None:
    if flush_mode == "SYNC_FLUSH" and "RMQ_CRASH_ROUNDS" not in os.environ:
        pytest.skip("the files are the same as with ASYNC_FLUSH: only with RMQ_CRASH_ROUNDS")
    program = built_or_skip(toolchain.apache_servers)
    chance = random.Random(seed)
    ledger = Ledger()
    async with FaultyBroker(tmp_path / "ours", flush_mode) as broker:
        async with LedgerLoad(broker.port, ledger, chance) as load:
            await load.until_acknowledged(_MOST)
            broker.kill()
            await load.until_ended()
        shutil.copytree(broker.store_path, tmp_path / "apaches" / "store")
        await check_with_apache(program, tmp_path / "apaches", ledger)
        # This broker finds the same undecided messages as Apache's.
        await broker.start()
        ledger.check(await read_queues(broker.port))


async def test_offsets_survive_a_kill_after_their_flush_interval(tmp_path: Path) -> None:
    async with FaultyBroker(tmp_path, settings={"flushConsumerOffsetInterval": "10"}) as broker:
        async with raw_client(broker.port) as client:
            for _ in range(5):
                sent(await client.ask(send("T")))
            await client.ask(pull("T", "CG", offset=5, commit=3))
            file = broker.store_path / "config" / "consumerOffset.json"
            async with asyncio.timeout(10):
                while not (file.exists() and "T@CG" in file.read_text()):
                    assert (await client.ask(pull("T", "CG"))).code == ResponseCode.SUCCESS
        broker.kill()
        await broker.start()

        async with raw_client(broker.port) as client:
            answer = await client.ask(pull("T", "CG", offset=3))
            assert answer.code == ResponseCode.SUCCESS
        assert '"T@CG":{0:3}' in file.read_text()
        await broker.stop()
