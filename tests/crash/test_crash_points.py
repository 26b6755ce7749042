"""Crash points: the broker kills itself at a named place, in any thread, and loses no acknowledged message.

A few random crash points of each flush mode; all of them with RMQ_CRASH_ROUNDS (`make test-crash`).
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from pathlib import Path

import pytest

from rmq_broker.store.crash_points import POINTS
from rmq_remoting.codes import RequestCode, ResponseCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.ledger_load import LedgerLoad, read_queues
from tests.support.broker_requests import create_topic, request
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client

_SOME = 4
# Upper bound of the random number of passes at which the broker dies, by kind of crash point.
_MAX_PASSES = {"append": 800, "entry": 800, "log-flush": 5, "queue-write": 3, "roll": 5}
_QUICK_FLUSHES = {"flushIntervalCommitLog": "20", "flushIntervalConsumeQueue": "40"}


class Points:
    """A broker that is started with one crash point after another."""

    def __init__(self, home: Path, flush_mode: str, chance: random.Random) -> None:
        self.broker = FaultyBroker(home, flush_mode, settings=_QUICK_FLUSHES)
        self.ledger = Ledger()
        self.topics: set[str] = set()
        self._chance = chance
        self._names = (f"New{number}" for number in itertools.count())

    async def die_at(self, point: str) -> None:
        """Start the broker with a crash point, and load it until it has died."""
        kind = point.partition(".")[0]
        count = self._chance.randint(1, _MAX_PASSES.get(kind, 2))
        self.broker.environment = {"RMQ_TEST_BUILD": "1", "RMQ_CRASH_POINT": f"{point}:{count}"}
        try:
            await self.broker.start()
        except RuntimeError:
            pass  # it died during the start
        else:
            await (self._create_topics() if kind == "config-rename" else self._send())
        assert await self.broker.process.wait(20) == -signal.SIGKILL, f"{point}:{count}"

    async def check(self) -> None:
        """Start without a crash point, and check all data; leave the broker running."""
        self.broker.environment = {}
        await self.broker.start()
        async with raw_client(self.broker.port) as client:
            answer = await client.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG))
            assert self.topics <= json.loads(answer.body)["topicConfigTable"].keys()
        print(self.ledger.check(await read_queues(self.broker.port)))
        check_directory(self.broker.store_path)

    async def _send(self) -> None:
        try:
            async with LedgerLoad(self.broker.port, self.ledger, self._chance) as load:
                await load.until_ended(timeout_seconds=20)
        except (EOFError, OSError):
            return  # it died before the load began

    async def _create_topics(self) -> None:
        try:
            async with raw_client(self.broker.port) as client:
                for name in itertools.islice(self._names, 50):
                    answer = await client.ask(create_topic(name))
                    assert answer.code == ResponseCode.SUCCESS
                    self.topics.add(name)
        except (EOFError, OSError):
            return


@pytest.mark.interpreted  # a crash point replaces a function
@pytest.mark.timeout(240)
async def test_crash_points_lose_no_acknowledged_message(tmp_path: Path, flush_mode: str, seed: int) -> None:
    chance = random.Random(seed)
    chosen = list(POINTS)
    chance.shuffle(chosen)
    if "RMQ_CRASH_ROUNDS" not in os.environ:
        del chosen[_SOME:]
    points = Points(tmp_path, flush_mode, chance)
    try:
        await points.broker.start()
        for point in chosen:
            points.broker.kill()
            print(point)
            await points.die_at(point)
            await points.check()
        await points.broker.stop()
    finally:
        points.broker.close()
    check_directory(points.broker.store_path, stopped_cleanly=True)


async def test_crash_points_are_ignored_without_permission(tmp_path: Path) -> None:
    async with FaultyBroker(tmp_path, environment={"RMQ_CRASH_POINT": "append.before"}) as broker:
        ledger = Ledger()
        async with LedgerLoad(broker.port, ledger, random.Random(1)) as load:
            await load.until_acknowledged(10)
        await broker.stop()
    assert "is ignored: it is for tests" in broker.log_path.read_text()


async def test_an_unknown_crash_point_is_refused(tmp_path: Path) -> None:
    environment = {"RMQ_TEST_BUILD": "1", "RMQ_CRASH_POINT": "append.sometimes"}
    broker = FaultyBroker(tmp_path, environment=environment)
    with pytest.raises(RuntimeError, match=r"must be one of append\.before"):
        await broker.start()
