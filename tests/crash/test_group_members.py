"""Members of a consumer group join, leave and are killed while messages come: none is lost, order is kept.

They share the queues or pop, in any order or in that of each queue.

A few seconds; RMQ_GROUP_SECONDS sets more (two minutes say something).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from rmq_client import Admin, Message, MessageQueue, Producer
from tests.support.own_servers import OwnNamesrv, own_cluster
from tests.support.waiting import until

_SECONDS = float(os.environ.get("RMQ_GROUP_SECONDS", "5"))
_ROOT = Path(__file__).resolve().parents[2]
_TOPIC, _QUEUES = "Chaos", 4
_MOST_MEMBERS = 3
_SENDS_PER_SECOND = 200
_COMMIT_SECONDS = 5
# How many messages of a member can be under way or waiting when it is killed.
_IN_FLIGHT = 1000
_CATCH_UP_SECONDS = 90.0


# The broker waits for so long for a member that is gone without a good-bye.
_BROKER = {"rebalanceLockMaxLiveTime": "5000"}


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A message as a member got it: the queue that it was sent to, and how many were sent there before it."""

    member: int
    queue_id: int
    number: int
    began_ns: int
    ended_ns: int


class _Member:
    """A process of `group_member`."""

    def __init__(self, namesrv: OwnNamesrv, group: str, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "tests.crash.group_member", namesrv.address, _TOPIC, group]
        self._process = Popen([*command, *options], stdout=PIPE, text=True, cwd=_ROOT)
        self.deliveries: list[_Delivery] = []
        self.is_ready = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def leave(self) -> None:
        """In order, waiting for its end."""
        self._process.terminate()
        self.join()

    def kill(self) -> None:
        """Without a good-bye."""
        self._process.kill()
        self.join()

    def join(self) -> None:
        self._process.wait(30)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("ready"):
                    self.is_ready = True
                elif line.endswith("\n"):  # not what a kill cut off
                    self.deliveries.append(_Delivery(self._process.pid, *map(int, line.split())))


class _Chaos:
    """The members that there were, and what they did."""

    def __init__(self, namesrv: OwnNamesrv, options: Sequence[str], chance: random.Random) -> None:
        self._namesrv = namesrv
        self._options = options
        self._chance = chance
        self._living: list[_Member] = []
        self.members: list[_Member] = []
        self.kills = 0

    async def join(self) -> None:
        member = _Member(self._namesrv, "g", self._options)
        self._living.append(member)
        self.members.append(member)
        await until(lambda: member.is_ready, timeout_seconds=30)

    async def step(self) -> None:
        """Somebody comes or goes."""
        if len(self._living) < 2 or (len(self._living) < _MOST_MEMBERS and self._chance.random() < 0.5):
            await self.join()
            return
        member = self._living.pop(self._chance.randrange(len(self._living)))
        if self._chance.random() < 0.5:
            self.kills += 1
            await asyncio.to_thread(member.kill)
        else:
            await asyncio.to_thread(member.leave)

    async def end(self) -> None:
        for member in self._living:
            await asyncio.to_thread(member.leave)

    def kill_all(self) -> None:
        for member in self._living:
            member.kill()

    @property
    def deliveries(self) -> list[_Delivery]:
        return [delivery for member in self.members for delivery in member.deliveries]


async def _send(producer: Producer, counts: Counter[int], stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        queue_id = number % _QUEUES
        body = b"%d %d" % (queue_id, counts[queue_id])
        await producer.send(Message(_TOPIC, body), queue=MessageQueue(_TOPIC, "broker-a", queue_id))
        counts[queue_id] += 1
        number += 1
        await asyncio.sleep(1 / _SENDS_PER_SECOND)


@pytest.mark.timeout(180 + int(_SECONDS))
@pytest.mark.parametrize("popping", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
async def test_members_come_and_go_and_are_killed(orderly: bool, popping: bool, seed: int) -> None:
    counts: Counter[int] = Counter()
    settings = {**_BROKER, "defaultMessageRequestMode": "POP" if popping else "PULL"}
    options = [*(["--orderly"] if orderly else []), *(["--popping"] if popping else [])]
    async with own_cluster(settings) as (namesrv, _), Admin(namesrv.address) as admin:
        await admin.create_topic(_TOPIC, queues=_QUEUES)
        chaos = _Chaos(namesrv, options, random.Random(seed))
        try:
            async with Producer(namesrv.address, group="p") as producer:
                stop = asyncio.Event()
                sending = asyncio.ensure_future(_send(producer, counts, stop))
                loop = asyncio.get_running_loop()
                until_when = loop.time() + _SECONDS
                await chaos.join()
                while loop.time() < until_when:
                    await chaos.step()
                stop.set()
                await sending
            expected = {(queue, number) for queue, count in counts.items() for number in range(count)}

            def all_came() -> bool:
                return expected <= {(one.queue_id, one.number) for one in chaos.deliveries}

            await until(all_came, timeout_seconds=_CATCH_UP_SECONDS)
            await chaos.end()
        finally:
            chaos.kill_all()
    _check(chaos, sum(counts.values()), orderly)


def _check(chaos: _Chaos, sent: int, orderly: bool) -> None:
    duplicates = len(chaos.deliveries) - sent
    per_kill = _COMMIT_SECONDS * _SENDS_PER_SECOND + _IN_FLIGHT
    assert duplicates <= chaos.kills * per_kill, f"{duplicates} came again after {chaos.kills} kills"
    if not orderly:
        return
    by_queue: dict[int, list[_Delivery]] = defaultdict(list)
    for delivery in sorted(chaos.deliveries, key=lambda one: one.began_ns):
        by_queue[delivery.queue_id].append(delivery)
    for deliveries in by_queue.values():
        assert deliveries[0].number == 0
        for one, following in pairwise(deliveries):
            assert one.ended_ns <= following.began_ns, f"two members had the queue: {one}, {following}"
            if one.member == following.member:
                assert following.number == one.number + 1, f"not in order: {one}, {following}"
            else:
                assert following.number <= one.number + 1, f"passed over: {one}, {following}"
