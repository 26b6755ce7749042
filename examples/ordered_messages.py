"""Keep the order of related messages: send them by a key, and consume each queue in order.

python examples/ordered_messages.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, MessageExt, Producer, PushConsumer

ACCOUNTS = ("account-7", "account-8")
STEPS = ("opened", "paid in", "closed")


async def main(namesrv: str, topic: str) -> None:
    booked = asyncio.Queue[str]()

    async def book(messages: list[MessageExt]) -> None:
        for message in messages:
            await booked.put(f"{message.keys[0]} {message.body.decode()}")

    async with Producer(namesrv, group="example-bank") as producer:
        for step in STEPS:
            for account in ACCOUNTS:
                # The hash of the key selects the queue, so an account has one queue.
                await producer.send(Message(topic, step.encode(), keys=[account]), key=account)
    async with PushConsumer(
        namesrv,
        group="example-ledger",
        topics=[topic],
        listener=book,
        consume_from="first",
        orderly=True,
        max_reconsume_times=16,
    ):
        for _ in range(len(STEPS) * len(ACCOUNTS)):
            print(await asyncio.wait_for(booked.get(), timeout=30))


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-bookings")))
