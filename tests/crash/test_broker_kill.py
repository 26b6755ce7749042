"""A broker that is killed while clients send: nothing that it acknowledged is lost (asynchronous flush)."""

from __future__ import annotations

import time
from pathlib import Path

from rmq_remoting.codes import ResponseCode
from tests.support.broker_load import Acknowledged, Load, read_all
from tests.support.broker_requests import pull, send, sent
from tests.support.own_servers import OwnBroker
from tests.support.raw_client import raw_client

_ROUNDS = 3
_MESSAGES_PER_ROUND = 3000
# From exec to ready after a kill; a quiet machine takes 0.6 s.
_RESTART_SECONDS = 10.0
# Small enough for several files of each kind, so that kills come at their edges, too.
_SMALL_FILES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "6000",
    "maxMessageSize": "65536",
}


async def test_kill_9_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async with OwnBroker("", home=tmp_path, settings=_SMALL_FILES) as broker:
        acknowledged = Acknowledged()
        restarts: list[float] = []
        for number in range(1, _ROUNDS + 1):
            async with Load(broker.port, connections=6, topics=2, acknowledged=acknowledged) as load:
                await load.until_acknowledged(number * _MESSAGES_PER_ROUND)
                broker.kill()
            assert (broker.store_path / "abort").exists()

            began = time.monotonic()
            await broker.start()
            restarts.append(time.monotonic() - began)
            acknowledged.check(await read_all(broker.port, load.queues))

        print("from exec to ready after each kill, s:", *[f"{seconds:.2f}" for seconds in restarts])
        assert max(restarts) < _RESTART_SECONDS
        await broker.stop()
        assert not (broker.store_path / "abort").exists()


async def test_what_was_committed_long_enough_ago_survives_a_kill(tmp_path: Path) -> None:
    """Topics and groups are on disk when their change is answered; offsets after their flush interval."""
    settings = {"flushConsumerOffsetInterval": "10"}
    async with OwnBroker("", home=tmp_path, settings=settings) as broker:
        async with raw_client(broker.port) as client:
            for _ in range(5):
                sent(await client.ask(send("T")))
            await client.ask(pull("T", "CG", offset=5, commit=3))
            file = broker.store_path / "config" / "consumerOffset.json"
            while not (file.exists() and "T@CG" in file.read_text()):
                assert (await client.ask(pull("T", "CG"))).code == ResponseCode.SUCCESS
        broker.kill()
        await broker.start()

        async with raw_client(broker.port) as client:
            answer = await client.ask(pull("T", "CG", offset=3))
            assert answer.code == ResponseCode.SUCCESS
        assert '"T@CG":{0:3}' in file.read_text()
        await broker.stop()
