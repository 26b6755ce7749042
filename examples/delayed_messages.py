"""Send messages that are delivered later: after a delay level, after a delay, and at a time.

python examples/delayed_messages.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime

from rmq_client import Message, MessageExt, Producer, PushConsumer


async def main(namesrv: str, topic: str) -> None:
    received = asyncio.Queue[str]()

    async def listener(messages: list[MessageExt]) -> None:
        for message in messages:
            await received.put(message.body.decode())

    begin = time.time()
    in_3_s = datetime.fromtimestamp(begin + 3, UTC)
    messages = [
        Message(topic, b"without a delay"),
        Message(topic, b"delay level 1 (1 s)", delay_level=1),
        Message(topic, b"a delay of 2 s", delay_seconds=2),
        Message(topic, b"a time in 3 s", deliver_at=in_3_s),
    ]
    async with Producer(namesrv, group="example-reminders") as producer:
        for message in messages:
            await producer.send(message)
    async with PushConsumer(
        namesrv, group="example-calendar", topics=[topic], listener=listener, consume_from="first"
    ):
        for _ in messages:
            body = await asyncio.wait_for(received.get(), timeout=30)
            print(f"after {time.time() - begin:.1f} s: {body}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-reminders")))
