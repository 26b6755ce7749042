"""Checks that every pair of a client and servers must pass."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.interop.foreign import ForeignClient, JavaShell
from tests.support.outcome import Outcome, expected_body, sha256
from tests.support.running import RunningProgram
from tests.support.waiting import until


def bodies_of(outcome: Outcome) -> list[str]:
    """The digests of the messages that a consumer received."""
    return sorted(message["bodySha256"] for message in outcome.messages)


def expected_bodies(count: int, size: int = 32) -> list[str]:
    """The digests of the bodies that the foreign programs send."""
    return sorted(sha256(expected_body(index, size)) for index in range(count))


async def check_sends_and_consumes(client: ForeignClient, topic: str, mode: str | None = None) -> None:
    """Check six messages in one mode of sending, and two with a tag without subscription."""
    (await client.run("send", topic=topic, count=2, tag="other")).check()
    (await client.run("send", topic=topic, count=6, tag="A", keys="k{}", mode=mode)).check()
    received = await client.run("consume", topic=topic, group=topic, tag="A || B", count=6)
    assert bodies_of(received.check()) == expected_bodies(6)
    assert {message["tags"] for message in received.messages} == {"A"}


async def check_reads_java_and_is_read(client: ForeignClient, shell: JavaShell, topic: str) -> None:
    """Check compressed bodies and batches of Java, and that Java reads the client's compressed bodies."""
    (await client.run("send", topic=topic, count=3, size=10_000, tag="foreign")).check()
    (await shell.run("send", topic=topic, count=3, size=10_000, compress="zlib", tag="java")).check()
    (await shell.run("send", topic=topic, count=5, mode="batch", tag="batch")).check()
    read = await client.run("consume", topic=topic, group="a" + topic, tag="java", count=3)
    assert bodies_of(read.check()) == expected_bodies(3, 10_000)
    read = await client.run("consume", topic=topic, group="b" + topic, tag="batch", count=5)
    assert bodies_of(read.check()) == expected_bodies(5)
    read = await shell.run("pull", topic=topic, group="c" + topic, tag="foreign", count=3)
    assert bodies_of(read.check()) == expected_bodies(3, 10_000)
    assert all(message["storeSize"] < 2_000 for message in read.messages)


async def check_goes_on_after_a_restart(client: ForeignClient, topic: str) -> None:
    """Check that a second consumer gets only the messages after the stopped first one's offset."""
    for size in (32, 50):
        (await client.run("send", topic=topic, count=4, size=size)).check()
        # More than there are: it is stopped when it has consumed all of them, and commits them.
        with client.start("consume", topic=topic, group=topic, count=10_000) as consumer:
            await consumer.wait_for("message", 4)
            received = await consumer.stop()
        assert bodies_of(received.check()) == expected_bodies(4, size)


async def check_shares_the_queues(
    client: ForeignClient, topic: str, sender: ForeignClient | JavaShell | None = None
) -> None:
    """Check that two consumers of a group share the messages, and that the remaining one gets all."""
    send = (sender or client).run
    with (
        client.start("consume", topic=topic, group=topic, count=10_000) as first,
        client.start("consume", topic=topic, group=topic, count=10_000) as second,
    ):
        async with asyncio.timeout(60):
            # Before the rebalance one of them gets all messages.
            size = 100
            while not (first.named("message") and second.named("message")):
                size += 1
                (await send("send", topic=topic, count=40, size=size)).check()
                await wait_for_bodies([first, second], expected_bodies(40, size))
        (await second.stop()).check()
        (await send("send", topic=topic, count=20, size=50)).check()
        await wait_for_bodies([first], expected_bodies(20, 50))
        (await first.stop()).check()


def offsets_by_queue(consumer: RunningProgram) -> dict[int, list[int]]:
    """The queue offsets of the messages that a consumer received, in order of arrival."""
    by_queue: dict[int, list[int]] = defaultdict(list)
    for message in consumer.named("message"):
        by_queue[message["queueId"]].append(message["queueOffset"])
    return by_queue


def check_order(by_queue: Mapping[int, list[int]], *, handovers: int = 0) -> None:
    """Check that the messages of each queue arrived in order, without duplicates.

    With each handover of a queue to another member and back, one message may arrive again: the Java client
    does not count the message that it is consuming when the queue is taken from it.
    """
    for queue_id, offsets in by_queue.items():
        assert offsets == sorted(offsets), f"queue {queue_id}: {offsets}"
        assert len(offsets) - len(set(offsets)) <= handovers, f"queue {queue_id}: {offsets}"


async def wait_for_bodies(consumers: Iterable[RunningProgram], expected: list[str]) -> None:
    """Wait until each body arrived at a consumer (or at two, during a rebalance)."""

    def missing() -> set[str]:
        messages = [message for consumer in consumers for message in consumer.named("message")]
        return set(expected) - {message["bodySha256"] for message in messages}

    await until(lambda: not missing(), timeout_seconds=40)
