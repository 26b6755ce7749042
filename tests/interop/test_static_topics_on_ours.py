"""Static topics of two brokers, by Apache's mqadmin and Java client 5.3.3."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.interop.foreign import JavaClient
from tests.support.outcome import Outcome, expected_body, sha256
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.toolchain import JavaProgram

CLUSTER = "DefaultCluster"
_COUNT = 20

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
