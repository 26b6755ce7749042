"""`rmq bench`: throughput and latency of sends and of consumption, measured against a cluster."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from rmq_client import Admin, Message, Producer

from ..declaring import command, command_group
from ..exits import CommandFailed, Exit
from ..progress import progress
from ..reading import Filter, stored
from ..session import Session
from .common import TopicArgument

app = command_group("Measure sends and reads against a cluster. Create a topic of its own for it.")

MessagesOption = Annotated[int, typer.Option("--messages", min=1, help="Number of messages.")]


@command(
    app, "produce", "rmq bench produce bench --messages 100000 --size 256 --concurrency 64", changes=True
)
def produce(
    session: Session,
    topic: TopicArgument,
    messages: MessagesOption = 10_000,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a body.")] = 256,
    concurrency: Annotated[int, typer.Option(min=1, help="Sends that wait at the same time.")] = 64,
) -> None:
    """Measure synchronous sends."""
    if session.may(f"send {messages} messages of {size} bytes to topic {topic}"):
        session.out.record(asyncio.run(_produce(session, topic, messages, size, concurrency)))


@command(app, "consume", "rmq bench consume bench --messages 100000")
def consume(session: Session, topic: TopicArgument, messages: MessagesOption = 10_000) -> None:
    """Measure reads of the stored messages of a topic, without a group."""
    session.out.record(asyncio.run(_consume(session, topic, messages)))


async def _produce(
    session: Session, topic: str, messages: int, size: int, concurrency: int
) -> dict[str, object]:
    body, left, seconds = b"x" * size, iter(range(messages)), [0.0] * messages
    async with Producer(session.namesrv, group="rmq-bench", settings=session.settings) as producer:
        await producer.send(Message(topic, body))  # connections and routes are no part of the measurement
        with progress(messages, "sending") as advance:

            async def send() -> None:
                for number in left:
                    began = time.perf_counter()
                    await producer.send(Message(topic, body))
                    seconds[number] = time.perf_counter() - began
                    if number % 1000 == 0:
                        advance(number)

            began = time.perf_counter()
            await asyncio.gather(*(send() for _ in range(min(concurrency, messages))))
            elapsed = time.perf_counter() - began
    seconds.sort()
    return {
        "messages": messages,
        "seconds": elapsed,
        "messages_per_second": messages / elapsed,
        "mib_per_second": messages * size / elapsed / 2**20,
        "median_ms": _percentile(seconds, 0.5) * 1000,
        "p99_ms": _percentile(seconds, 0.99) * 1000,
        "max_ms": seconds[-1] * 1000,
    }


async def _consume(session: Session, topic: str, messages: int) -> dict[str, object]:
    read = size = 0
    async with Admin(session.namesrv, settings=session.settings) as admin:
        queues = (await admin.topic_route(topic)).read_queues
        begins = {queue: max(0, await admin.min_offset(queue)) for queue in queues}
        ends = {queue: await admin.max_offset(queue) for queue in queues}
        began = time.perf_counter()
        with progress(messages, "reading") as advance:
            async for message in stored(admin, begins, ends, Filter()):
                read += 1
                size += len(message.body)
                if read % 1000 == 0:
                    advance(read)
                if read == messages:
                    break
        elapsed = time.perf_counter() - began
    if not read:
        raise CommandFailed(f"topic {topic} has no messages: run rmq bench produce", Exit.CONDITION)
    return {
        "messages": read,
        "seconds": elapsed,
        "messages_per_second": read / elapsed,
        "mib_per_second": size / elapsed / 2**20,
    }


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
