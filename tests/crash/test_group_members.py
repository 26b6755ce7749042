"""Members of a consumer group join, leave and are killed under load: no message is lost, order is kept.

Members pull or pop, in any order or in the order of each queue. A message is delivered again only if a killed
member had it unacknowledged.

The churn lasts a few seconds; RMQ_GROUP_SECONDS sets another duration (120 finds rare faults).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from rmq_client import Admin, Message, MessageQueue, Producer
from tests.crash.group_member import COMMIT_SECONDS
from tests.support.own_servers import OwnNamesrv, own_cluster
from tests.support.waiting import until

_SECONDS = float(os.environ.get("RMQ_GROUP_SECONDS", "4"))
_ROOT = Path(__file__).resolve().parents[2]
_TOPIC, _GROUP, _QUEUES = "Churn", "g", 4
_MAX_MEMBERS = 3
_SENDS_PER_SECOND = 200
# How late a commit may be on a busy machine, and how long an acknowledgement may take.
_SLACK_SECONDS, _ACK_SECONDS = 2.0, 1.0
_CATCH_UP_SECONDS = 90.0
# Milliseconds after which the broker frees the queue locks of a killed member.
_BROKER = {"rebalanceLockMaxLiveTime": "5000"}

_Place = tuple[int, int]
"""Queue id and queue offset."""


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A call of a member's listener with one message. The topic has no other producer: the n-th message of a
    queue has offset n.
    """

    member: int
    queue_id: int
    offset: int
    began_ns: int
    ended_ns: int

    @property
    def place(self) -> _Place:
        return self.queue_id, self.offset


class _Member:
    """A process of `group_member`."""

    def __init__(self, namesrv: OwnNamesrv, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "tests.crash.group_member", namesrv.address, _TOPIC, _GROUP]
        self._process = Popen([*command, *options], stdout=PIPE, text=True, cwd=_ROOT)
        self.deliveries: list[_Delivery] = []
        self.is_ready = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def leave(self) -> None:
        """Shut it down gracefully."""
        self._process.terminate()
        self.wait()
        assert self._process.returncode == 0

    def kill(self) -> None:
        """SIGKILL it; all its output is read when this returns."""
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        self._process.wait(30)
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("ready"):
                    self.is_ready = True
                elif line.endswith("\n"):  # a kill may cut off the last line
                    self.deliveries.append(_Delivery(self._process.pid, *map(int, line.split())))


class _Churn:
    """The members of the group, dead and alive, and the places that each kill left unacknowledged."""

    def __init__(
        self, namesrv: OwnNamesrv, admin: Admin, options: Sequence[str], chance: random.Random
    ) -> None:
        self._namesrv = namesrv
        self._admin = admin
        self._options = options
        self._chance = chance
        self._alive: list[_Member] = []
        self._dead: list[_Member] = []
        self.unacknowledged_at_kills: list[set[_Place]] = []

    async def join(self) -> None:
        member = _Member(self._namesrv, self._options)
        self._alive.append(member)
        await until(lambda: member.is_ready, timeout_seconds=30)

    async def step(self) -> None:
        """Let one member join, leave or be killed."""
        if len(self._alive) < 2 or (len(self._alive) < _MAX_MEMBERS and self._chance.random() < 0.5):
            await self.join()
            return
        member = self._chance.choice(self._alive)
        if self._chance.random() < 0.5:
            await self.kill(member)
        else:
            self._bury(member)
            await asyncio.to_thread(member.leave)

    async def kill_oldest(self) -> None:
        """Kill the oldest member, once it has consumed for longer than a commit may take."""
        member = self._alive[0]
        begin = len(member.deliveries)

        def seconds() -> float:
            since = member.deliveries[begin:]
            return (since[-1].ended_ns - since[0].ended_ns) / 1e9 if since else 0.0

        await until(lambda: seconds() > COMMIT_SECONDS + _SLACK_SECONDS, timeout_seconds=30)
        await self.kill(member)

    async def kill(self, member: _Member) -> None:
        """Kill a member after a call of its listener, before that message is committed or acknowledged."""
        async with asyncio.timeout(30):
            while True:
                seen = len(member.deliveries)
                await until(lambda: len(member.deliveries) > seen, timeout_seconds=30)  # noqa: B023
                offsets = await self._committed_offsets()
                if self._unacknowledged(member, offsets):
                    break
        member.kill()
        self._bury(member)
        unacknowledged = self._unacknowledged(member, offsets)
        oldest_seconds = (time.monotonic_ns() - min(one.ended_ns for one in unacknowledged)) / 1e9
        print(f"killed with {len(unacknowledged)} unacknowledged, the oldest for {oldest_seconds:.1f} s")
        assert oldest_seconds <= COMMIT_SECONDS + _SLACK_SECONDS, "the member did not commit in time"
        self.unacknowledged_at_kills.append({one.place for one in unacknowledged})

    async def end(self) -> None:
        """Shut all members down gracefully."""
        while self._alive:
            member = self._alive[-1]
            self._bury(member)
            await asyncio.to_thread(member.leave)

    def kill_all(self) -> None:
        for member in self._alive:
            member.kill()

    @property
    def deliveries(self) -> list[_Delivery]:
        return [delivery for member in [*self._dead, *self._alive] for delivery in member.deliveries]

    def _bury(self, member: _Member) -> None:
        self._alive.remove(member)
        self._dead.append(member)

    async def _committed_offsets(self) -> Mapping[int, int]:
        """The group's committed offsets by queue id; empty for members that pop, which commit none."""
        if "--popping" in self._options:
            return {}
        queues = [MessageQueue(_TOPIC, "broker-a", queue_id) for queue_id in range(_QUEUES)]
        return {queue.queue_id: await self._admin.committed_offset(_GROUP, queue) or 0 for queue in queues}

    @staticmethod
    def _unacknowledged(member: _Member, committed_offsets: Mapping[int, int]) -> list[_Delivery]:
        """The deliveries that the broker may not know to be consumed."""
        if committed_offsets:
            return [one for one in member.deliveries if one.offset >= committed_offsets[one.queue_id]]
        since_ns = time.monotonic_ns() - int(_ACK_SECONDS * 1e9)
        return [one for one in member.deliveries if one.ended_ns >= since_ns]


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
@pytest.mark.parametrize("popping", [False, True], ids=["pull", "pop"])
@pytest.mark.parametrize(
    "orderly",
    [pytest.param(False, id="concurrent"), pytest.param(True, marks=pytest.mark.long, id="orderly")],
)
async def test_no_message_is_lost_when_members_join_leave_and_are_killed(
    orderly: bool, popping: bool, seed: int
) -> None:
    counts: Counter[int] = Counter()
    settings = {**_BROKER, "defaultMessageRequestMode": "POP" if popping else "PULL"}
    options = [*(["--orderly"] if orderly else []), *(["--popping"] if popping else [])]
    async with own_cluster(settings) as (namesrv, _), Admin(namesrv.address) as admin:
        await admin.create_topic(_TOPIC, queues=_QUEUES)
        churn = _Churn(namesrv, admin, options, random.Random(seed))
        try:
            async with Producer(namesrv.address, group="p") as producer:
                stop = asyncio.Event()
                sending = asyncio.ensure_future(_send(producer, counts, stop))
                loop = asyncio.get_running_loop()
                end = loop.time() + _SECONDS
                await churn.join()
                while loop.time() < end:
                    await churn.step()
                await churn.kill_oldest()
                await churn.join()
                stop.set()
                await sending
            expected = {(queue, offset) for queue, count in counts.items() for offset in range(count)}

            def all_delivered() -> bool:
                return expected <= {one.place for one in churn.deliveries}

            await until(all_delivered, timeout_seconds=_CATCH_UP_SECONDS)
            await churn.end()
        finally:
            churn.kill_all()
    _check_duplicates(churn)
    if orderly:
        _check_order(churn)


def _check_duplicates(churn: _Churn) -> None:
    """Each kill redelivers at most the messages that the killed member had unacknowledged."""
    times_delivered = Counter(one.place for one in churn.deliveries)
    redeliveries = times_delivered - Counter(set(times_delivered))
    allowed = Counter(place for places in churn.unacknowledged_at_kills for place in places)
    print(f"{redeliveries.total()} redeliveries, {allowed.total()} allowed")
    excess = redeliveries - allowed
    assert not excess, "\n".join(
        f"{place} was delivered {times_delivered[place]} times, but {allowed[place]} killed members had it "
        f"unacknowledged: {[one for one in churn.deliveries if one.place == place]}"
        for place in excess
    )


def _check_order(churn: _Churn) -> None:
    by_queue: dict[int, list[_Delivery]] = defaultdict(list)
    for delivery in sorted(churn.deliveries, key=lambda one: one.began_ns):
        by_queue[delivery.queue_id].append(delivery)
    for deliveries in by_queue.values():
        assert deliveries[0].offset == 0
        for one, following in pairwise(deliveries):
            assert one.ended_ns <= following.began_ns, f"two members had the queue: {one}, {following}"
            if one.member == following.member:
                assert following.offset == one.offset + 1, f"not in order: {one}, {following}"
            else:
                assert following.offset <= one.offset + 1, f"skipped: {one}, {following}"
