"""Static topics of two brokers, by Apache's mqadmin and Java client 5.3.3, and the SDK beside them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rmq_client import Admin, Message, MessageExt, Producer
from tests.interop.checks import check_order, offsets_by_queue
from tests.interop.consumers import QUICK, consumer_of
from tests.interop.foreign import JavaClient
from tests.support.outcome import Outcome, expected_body, sha256
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.toolchain import JavaProgram
from tests.support.waiting import until

CLUSTER = "DefaultCluster"
_COUNT = 20
# The Java client's default is 20 s.
_QUICK_LOCKS = {"rocketmq.client.rebalance.lockInterval": "1000"}

pytestmark = pytest.mark.java


def _sent_by_queue(*sends: tuple[Outcome, int]) -> dict[int, list[str]]:
    """The digests of the sent bodies, each of a size, in order and by logical queue."""
    queues: dict[int, list[str]] = defaultdict(list)
    for outcome, size in sends:
        for result in outcome.sent:
            queues[result["queueId"]].append(sha256(expected_body(result["index"], size)))
    return queues


def _received_by_queue(outcome: Outcome) -> dict[int, list[str]]:
    queues: dict[int, list[str]] = defaultdict(list)
    for message in outcome.messages:
        queues[message["queueId"]].append(message["bodySha256"])
    return queues


async def test_queues_are_created_and_moved(java_program: JavaProgram, name: str, tmp_path: Path) -> None:
    async with (
        OwnNamesrv() as namesrv,
        OwnBroker(namesrv.address) as broker_a,
        OwnBroker(namesrv.address, broker_name="broker-b") as broker_b,
    ):
        with JavaClient(java_program, namesrv.address, tmp_path).shell() as shell:
            orders: dict[str, Any] = {"topic": name, "count": _COUNT, "mode": "orderkey"}
            made = await shell.mqadmin("updateStaticTopic", "-t", name, "-qn", "2", "-b", "broker-a")
            assert "new mapping data is written" in made.check().text
            first = (await shell.run("send", size=32, **orders)).check()
            early = (
                await shell.run("consume", topic=name, group="early", count=_COUNT, orderly=True)
            ).check()
            assert _received_by_queue(early) == _sent_by_queue((first, 32))
            assert {message["broker"] for message in early.messages} == {"__syslo__global__"}

            moved = await shell.mqadmin("remappingStaticTopic", "-t", name, "-b", "broker-b")
            assert "mapping data is written" in moved.check().text
            second = (await shell.run("send", size=50, **orders)).check()
            assert all(result["queueOffset"] >= 10_000 for result in second.sent)

            # One group continues where it was, and another one reads everything.
            rest = (await shell.run("consume", topic=name, group="early", count=_COUNT, orderly=True)).check()
            assert _received_by_queue(rest) == _sent_by_queue((second, 50))
            everything: dict[str, Any] = {
                "topic": name,
                "group": "late",
                "count": 2 * _COUNT,
                "orderly": True,
            }
            late = (await shell.run("consume", **everything)).check()
            assert _received_by_queue(late) == _sent_by_queue((first, 32), (second, 50))

            again = await shell.mqadmin("updateStaticTopic", "-t", name, "-qn", "4", "-b", "broker-a")
            assert "new mapping data is written" in again.check().text
            status = (await shell.mqadmin("topicStatus", "-t", name)).check().rows
            assert {row[0] for row in status} >= {"broker-a", "broker-b"}
            (await shell.mqadmin("deleteTopic", "-t", name, "-c", CLUSTER)).check()
            assert (await shell.mqadmin("topicRoute", "-t", name)).failed
        for broker in (broker_a, broker_b):
            await broker.stop()
            assert not broker.logged_errors(), "\n".join(broker.logged_errors())


@pytest.mark.long
async def test_a_running_consumer_follows_its_queues(
    java_program: JavaProgram, name: str, tmp_path: Path
) -> None:
    async with (
        OwnNamesrv() as namesrv,
        OwnBroker(namesrv.address),
        OwnBroker(namesrv.address, broker_name="broker-b"),
    ):
        client = JavaClient(java_program, namesrv.address, tmp_path / "consumer")
        orders: dict[str, Any] = {"topic": name, "count": _COUNT, "mode": "orderkey"}
        consumed: dict[str, Any] = {
            "topic": name,
            "group": name,
            "count": 3 * _COUNT,
            "orderly": True,
            "wait_s": 110,
        }
        with JavaClient(java_program, namesrv.address, tmp_path / "shell").shell() as shell:
            (await shell.mqadmin("updateStaticTopic", "-t", name, "-qn", "2", "-b", "broker-a")).check()
            with client.start("consume", **consumed) as consumer:
                sends = [((await shell.run("send", size=32, **orders)).check(), 32)]
                await consumer.wait_for("message", _COUNT)
                # Not consumed before the remapping.
                sends.append(((await shell.run("send", size=40, **orders)).check(), 40))
                (await shell.mqadmin("remappingStaticTopic", "-t", name, "-b", "broker-b")).check()
                sends.append(((await shell.run("send", size=50, **orders)).check(), 50))
                # The client asks for the route every 30 s.
                outcome = (await consumer.outcome(110)).check()
            assert _received_by_queue(outcome) == _sent_by_queue(*sends)
            assert len(outcome.messages) == 3 * _COUNT


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_java_and_the_sdk_share_the_queues_over_a_move(
    java_program: JavaProgram, name: str, tmp_path: Path
) -> None:
    """Both divide the logical queues in the same way, and exclude each other by locks of the leader."""
    ours: dict[int, list[int]] = defaultdict(list)
    sent: set[tuple[int, int]] = set()

    async def listen(messages: list[MessageExt]) -> None:
        for message in messages:
            ours[message.queue_id].append(message.queue_offset)

    async with (
        OwnNamesrv() as namesrv,
        OwnBroker(namesrv.address),
        OwnBroker(namesrv.address, broker_name="broker-b"),
        Admin(namesrv.address) as admin,
        Producer(namesrv.address, group="p") as producer,
    ):
        await admin.create_static_topic(name, 4, ["broker-a"])
        client = JavaClient(java_program, namesrv.address, tmp_path, properties=_QUICK_LOCKS)
        consumed: dict[str, Any] = {"topic": name, "group": name, "count": 10_000, "orderly": True}
        # The client asks for the route every 30 s.
        with client.start("consume", wait_s=150, **consumed) as java:

            async def send_and_receive() -> tuple[set[int], set[int]]:
                """Send to each queue; return the queues of which the SDK and Java got messages since."""
                before = {queue_id: len(offsets) for queue_id, offsets in ours.items()}
                javas = offsets_by_queue(java)
                javas_before = {queue_id: len(offsets) for queue_id, offsets in javas.items()}
                for key in range(4):
                    result = await producer.send(Message(name, b"x"), key=key)
                    assert result.queue.queue_id == key
                    sent.add((key, result.queue_offset))

                def received() -> bool:
                    both = (*ours.items(), *offsets_by_queue(java).items())
                    return sent <= {(queue_id, offset) for queue_id, offsets in both for offset in offsets}

                await until(received, 60)
                return (
                    {queue_id for queue_id, got in ours.items() if len(got) > before.get(queue_id, 0)},
                    {
                        queue_id
                        for queue_id, got in offsets_by_queue(java).items()
                        if len(got) > javas_before.get(queue_id, 0)
                    },
                )

            async def until_shared() -> None:
                while True:
                    own, javas = await send_and_receive()
                    if len(own) == len(javas) == 2 and not own & javas:
                        return

            await java.wait_for("started")
            async with (
                consumer_of(namesrv.address, name, listen, group=name, orderly=True, timing=QUICK),
                asyncio.timeout(140),
            ):
                await until_shared()
                await admin.move_static_topic(name, ["broker-b"])
                await until_shared()
                assert {queue_id for queue_id, offset in sent if offset >= 10_000} == set(range(4))
                for by_queue in (ours, offsets_by_queue(java)):
                    check_order(by_queue)
