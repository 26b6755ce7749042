"""Send three messages and receive them: `python examples/quickstart.py [NAMESRV]`.

The broker creates the topic `quickstart` with the first message. All quickstarts use this topic, and each
consumer has a group of its own.
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, MessageExt, Producer, PushConsumer

NAMESRV = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    everything_is_here = asyncio.Event()
    received: list[str] = []

    async def listener(messages: list[MessageExt]) -> None:
        for message in messages:
            received.append(message.body.decode())
            print(
                f"received {message.body.decode()!r} with tags {message.tags!r} from queue {message.queue_id}"
            )
        if len(received) >= 3:
            everything_is_here.set()

    async with Producer(NAMESRV, group="quickstart-producer") as producer:
        for number in range(3):
            result = await producer.send(Message("quickstart", f"hello {number}".encode(), tags="greeting"))
            print(f"sent     'hello {number}' to queue {result.queue.queue_id}, offset {result.queue_offset}")

    topics = {"quickstart": "greeting"}
    async with PushConsumer(
        NAMESRV, group="quickstart", topics=topics, listener=listener, consume_from="first"
    ):
        await asyncio.wait_for(everything_is_here.wait(), timeout=30)


asyncio.run(main())
