"""Pay each order once, although it was sent twice and its first payment failed.

python examples/deduplication.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Deduplicator, Message, MessageExt, Producer, PushConsumer

GROUP = "example-payer"


async def main(namesrv: str, topic: str) -> None:
    done = asyncio.Queue[str]()
    attempts = 0

    async def pay(messages: list[MessageExt]) -> None:
        nonlocal attempts
        attempts += 1
        (key,) = messages[0].keys
        if attempts == 1:
            await done.put(f"{key} not paid: the bank is closed")
            raise RuntimeError("the bank is closed")
        await done.put(f"{key} paid")

    listener = Deduplicator(by="keys").listener(pay)
    async with Producer(namesrv, group="example-shop") as producer:
        # As after a time-out, when the shop cannot know whether the first one was stored.
        await producer.send(Message(topic, b"...", keys=["order-1"]))
        async with PushConsumer(
            namesrv, group=GROUP, topics=topic, listener=listener, consume_from="first"
        ) as consumer:
            for _ in range(2):
                print(await asyncio.wait_for(done.get(), timeout=60))
            await producer.send(Message(topic, b"...", keys=["order-1"]))
            await producer.send(Message(topic, b"...", keys=["order-2"]))
            print(await asyncio.wait_for(done.get(), timeout=60))
            async with asyncio.timeout(30):
                while (await consumer.lag()).total:  # noqa: ASYNC110  # the broker has the offsets
                    await asyncio.sleep(0.1)
            print(f"attempts: {attempts}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-once")))
