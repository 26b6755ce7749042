"""Topics with the same bodies and keys on this project's broker and on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rmq_client import Admin, Message, MessageQueue, Producer

QUEUES: Final = 8

TAGS: Final = ("created", "paid", "sent", "returned")
REGION: Final = "eu-central"

_BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class Filling:
    """A topic with a number of messages with keys, and their body size. `headers`: with tag and region."""

    topic: str
    messages: int
    body_bytes: int
    headers: bool = False


def queue_sizes(messages: int, queues: int = QUEUES) -> list[int]:
    """Distribute a number of messages evenly over the queues."""
    return [messages // queues + (number < messages % queues) for number in range(queues)]


async def fill_rocketmq(namesrv: str, filling: Filling, queues: int = QUEUES) -> None:
    """Fill a topic with the SDK. SDK and broker add properties of their own."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(filling.topic, queues=queues, exists_ok=True)
    async with Producer(namesrv, group="bench-fill") as producer:
        targets = sorted(await producer.queues(filling.topic))
        sizes = queue_sizes(filling.messages, queues)
        await asyncio.gather(
            *(_fill(producer, queue, filling, size) for queue, size in zip(targets, sizes, strict=True))
        )


async def _fill(producer: Producer, queue: MessageQueue, filling: Filling, count: int) -> None:
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(begin + _BATCH, count))
        await producer.send_batch(_messages(filling, queue.queue_id, numbers), queue=queue)


def _messages(filling: Filling, queue_id: int, numbers: range) -> Iterator[Message]:
    for number in numbers:
        place = number * QUEUES + queue_id
        yield Message(
            filling.topic,
            b"%016d" % place + b"x" * (filling.body_bytes - 16),
            keys=f"order-{place:012d}",
            tags=TAGS[place % len(TAGS)] if filling.headers else None,
            properties={"region": REGION} if filling.headers else {},
        )
