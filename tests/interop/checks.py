"""What is expected of every pair of a client and servers, whoever made them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.interop.foreign import ForeignClient, JavaShell
from tests.support.outcome import Outcome, expected_body, sha256
from tests.support.running import RunningProgram
from tests.support.waiting import until


def bodies_of(outcome: Outcome) -> list[str]:
    """The digests of what a consumer received."""
    return sorted(message["bodySha256"] for message in outcome.messages)


def expected_bodies(count: int, size: int = 32) -> list[str]:
    """The digests of the bodies that the foreign programs send."""
    return sorted(sha256(expected_body(index, size)) for index in range(count))


async def check_sends_and_consumes(client: ForeignClient, topic: str, mode: str | None = None) -> None:
    """Six messages in a mode of sending, and two with a tag that the consumer does not want."""
    (await client.run("send", topic=topic, count=2, tag="other")).check()
    (await client.run("send", topic=topic, count=6, tag="A", keys="k{}", mode=mode)).check()
    received = await client.run("consume", topic=topic, group=topic, tag="A || B", count=6)
    assert bodies_of(received.check()) == expected_bodies(6)
    assert {message["tags"] for message in received.messages} == {"A"}


async def check_reads_java_and_is_read(client: ForeignClient, shell: JavaShell, topic: str) -> None:
    """Compressed bodies and batches of Java's, and the client's own compressed bodies read by Java."""
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
    """A group's second consumer gets what came after the first one had stopped, and nothing else."""
    for size in (32, 50):
        (await client.run("send", topic=topic, count=4, size=size)).check()
        # More than there are: it is told to stop when it has worked them off, and then commits them all.
        with client.start("consume", topic=topic, group=topic, count=10_000) as consumer:
            await consumer.wait_for("message", 4)
            received = await consumer.stop()
        assert bodies_of(received.check()) == expected_bodies(4, size)


async def check_shares_the_queues(
    client: ForeignClient, topic: str, sender: ForeignClient | JavaShell | None = None
) -> None:
    """Two consumers of a group get everything between them; one that is left alone gets it all."""
    send = (sender or client).run
    with (
        client.start("consume", topic=topic, group=topic, count=10_000) as first,
        client.start("consume", topic=topic, group=topic, count=10_000) as second,
    ):
        async with asyncio.timeout(60):
            # Until the queues are shared, all goes to one of them.
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
    """Where the messages stood that a consumer got, in the order in which it got them."""
    by_queue: dict[int, list[int]] = defaultdict(list)
    for message in consumer.named("message"):
        by_queue[message["queueId"]].append(message["queueOffset"])
    return by_queue


def check_order(by_queue: Mapping[int, list[int]]) -> None:
    """That the messages of each queue came in their order, none twice."""
    for queue_id, offsets in by_queue.items():
        assert offsets == sorted(set(offsets)), f"queue {queue_id}: {offsets}"


async def wait_for_bodies(consumers: Iterable[RunningProgram], expected: list[str]) -> None:
    """Until each of the bodies came to one of the consumers (or to two, while a queue changes hands)."""

    def missing() -> set[str]:
        messages = [message for consumer in consumers for message in consumer.named("message")]
        return set(expected) - {message["bodySha256"] for message in messages}

    await until(lambda: not missing(), timeout_seconds=40)
