"""Groups of a Java consumer and a consumer of the SDK: equal allocation, locks and retries."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from rmq_client import (
    Admin,
    ConsumeContext,
    ConsumeResult,
    ConsumerTiming,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
)
from tests.interop.checks import check_order, offsets_by_queue
from tests.interop.clusters import Own
from tests.interop.consumers import QUICK, consumer_of
from tests.interop.foreign import JavaClient
from tests.support.own_servers import own_cluster
from tests.support.processes import ServerProcess
from tests.support.quiet_loops import quiet_loops  # noqa: F401  # an autouse fixture
from tests.support.running import RunningProgram
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

pytestmark = pytest.mark.java

# Times of takeovers and of lock renewals as by default.
_QUICK = ConsumerTiming(rebalance_seconds=2.0, rebalance_again_seconds=0.1, commit_seconds=0.2)
_WAIT_SECONDS = 40.0
# The Java client's default is 20 s.
_QUICK_LOCKS = {"rocketmq.client.rebalance.lockInterval": "1000"}


class _Group:
    """The messages that both members received, by queue and offset."""

    def __init__(self, topic: str, java: RunningProgram) -> None:
        self.topic = topic
        self._java = java
        self.ours: dict[int, list[int]] = defaultdict(list)

    async def listen(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self.ours[message.queue_id].append(message.queue_offset)

    def javas(self) -> dict[int, list[int]]:
        return offsets_by_queue(self._java)

    def has_all(self, ends: dict[int, int]) -> bool:
        javas = self.javas()
        return all(
            set(range(end)) <= {*self.ours[queue_id], *javas[queue_id]} for queue_id, end in ends.items()
        )


async def _send(producer: Producer, topic: str, ends: dict[int, int]) -> None:
    for queue_id in range(4):
        result = await producer.send(
            Message(topic, b"x" * 20), queue=MessageQueue(topic, "broker-a", queue_id)
        )
        ends[queue_id] = result.queue_offset + 1


async def _send_until_shared(producer: Producer, group: _Group, ends: dict[int, int]) -> None:
    """Send until each member received messages of two queues of its own."""
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            before = {queue_id: len(offsets) for queue_id, offsets in group.ours.items()}
            javas_before = {queue_id: len(offsets) for queue_id, offsets in group.javas().items()}
            await _send(producer, group.topic, ends)
            await until(lambda: group.has_all(ends), timeout_seconds=_WAIT_SECONDS)
            grown = {queue for queue, got in group.ours.items() if len(got) > before.get(queue, 0)}
            javas = {queue for queue, got in group.javas().items() if len(got) > javas_before.get(queue, 0)}
            if len(grown) == len(javas) == 2 and not grown & javas:
                return


@pytest.mark.parametrize("orderly", [False, True])
async def test_members_share_the_queues_and_take_over(
    own: Own, own_java: JavaClient, own_topic: str, orderly: bool
) -> None:
    address, ends = own[0].address, dict[int, int]()
    with own_java.start("consume", topic=own_topic, group=own_topic, count=10_000, orderly=orderly) as java:
        group = _Group(own_topic, java)
        async with Producer(address, group="p") as producer:
            await java.wait_for("started")
            async with consumer_of(
                address, own_topic, group.listen, group=own_topic, orderly=orderly, timing=_QUICK
            ) as ours:
                await _send_until_shared(producer, group, ends)
                if orderly:
                    # A killed member keeps its locks for a minute (tested below).
                    (await java.stop()).check()
                else:
                    java.kill()
                await _send(producer, own_topic, ends)
                await until(lambda: group.has_all(ends), timeout_seconds=_WAIT_SECONDS)
                assert len(await ours.assigned_queues()) == 4
    if orderly:
        for by_queue in (group.ours, group.javas()):
            check_order(by_queue)


async def test_the_sdk_takes_over_in_order_from_a_killed_java_consumer(
    java_program: JavaProgram, tmp_path: Path, name: str
) -> None:
    async with own_cluster({"rebalanceLockMaxLiveTime": "3000"}) as (namesrv, _):
        address, ends = namesrv.address, dict[int, int]()
        async with Admin(address) as admin:
            await admin.create_topic(name, queues=4)
        client = JavaClient(java_program, address, tmp_path, properties=_QUICK_LOCKS)
        with client.start("consume", topic=name, group=name, count=10_000, orderly=True) as java:
            group = _Group(name, java)
            await java.wait_for("started")
            async with (
                Producer(address, group="p") as producer,
                consumer_of(address, name, group.listen, group=name, orderly=True, timing=QUICK) as ours,
            ):
                await _send_until_shared(producer, group, ends)
                java.kill()
                await _send(producer, name, ends)
                await until(lambda: group.has_all(ends), timeout_seconds=_WAIT_SECONDS)
                assert len(await ours.assigned_queues()) == 4
            for by_queue in (group.ours, group.javas()):
                check_order(by_queue)


async def test_java_takes_over_in_order_from_a_killed_sdk_consumer(
    java_program: JavaProgram, tmp_path: Path, name: str
) -> None:
    async with own_cluster({"rebalanceLockMaxLiveTime": "3000"}) as (namesrv, _):
        address, ends = namesrv.address, dict[int, int]()
        async with Admin(address) as admin:
            await admin.create_topic(name, queues=4)
        client = JavaClient(java_program, address, tmp_path, properties=_QUICK_LOCKS)
        with client.start("consume", topic=name, group=name, count=10_000, orderly=True) as java:
            group = _Group(name, java)
            await java.wait_for("started")
            output = tmp_path / "ours.out"
            ours = ServerProcess(_our_member(address, name), log_path=output)
            try:
                async with Producer(address, group="p") as producer:
                    async with asyncio.timeout(_WAIT_SECONDS):
                        # After `ready`, a line per received message.
                        while not output.exists() or output.read_text().count("\n") < 3:
                            await _send(producer, name, ends)
                            await asyncio.sleep(0.05)
                    ours.kill()
                    await _send(producer, name, ends)
                    last = {queue_id: end - 1 for queue_id, end in ends.items()}

                    def has_the_last() -> bool:
                        javas = group.javas()
                        return all(offset in javas[queue_id] for queue_id, offset in last.items())

                    await until(has_the_last, timeout_seconds=_WAIT_SECONDS)
            finally:
                ours.kill()
            check_order(group.javas(), handovers=1)


def _our_member(address: str, topic: str) -> list[str]:
    return [sys.executable, "-m", "tests.crash.group_member", address, topic, topic, "--orderly"]


@pytest.mark.long
async def test_messages_refused_by_the_sdk_are_redelivered_to_a_member(
    own: Own, own_java: JavaClient, own_topic: str
) -> None:
    address, ends = own[0].address, dict[int, int]()
    refused: list[int] = []
    repeated: list[int] = []

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        await group.listen(messages if not message.reconsume_times else [])
        context.delay_level = 1
        if message.reconsume_times:
            repeated.append(message.reconsume_times)
            return ConsumeResult.SUCCESS
        refused.append(message.queue_offset)
        return ConsumeResult.LATER

    with own_java.start("consume", topic=own_topic, group=own_topic, count=10_000) as java:
        group = _Group(own_topic, java)
        async with Producer(address, group="p") as producer:
            await java.wait_for("started")
            async with consumer_of(address, own_topic, listen, group=own_topic, timing=_QUICK):
                async with asyncio.timeout(_WAIT_SECONDS):
                    while not refused:
                        await _send(producer, own_topic, ends)

                def all_came_back() -> bool:
                    javas = [one for one in java.named("message") if one["reconsumeTimes"]]
                    return len(javas) + len(repeated) >= len(refused)

                await until(all_came_back, timeout_seconds=_WAIT_SECONDS)
        async with Admin(address) as admin:
            assert f"%RETRY%{own_topic}" in await admin.topics()
