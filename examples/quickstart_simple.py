"""Receive messages and acknowledge each one; unacknowledged messages are redelivered.

The topic must exist: quickstart_send.py sends messages to it, and the broker creates it with the first one.

python examples/quickstart_simple.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import SimpleConsumer


async def main(namesrv: str, topic: str) -> None:
    async with SimpleConsumer(
        namesrv, group="quickstart-worker", topics=topic, consume_from="first"
    ) as consumer:
        while messages := await consumer.receive(max_messages=16, invisible_seconds=30, timeout_seconds=2):
            for message in messages:
                print(f"attempt {message.delivery_attempt}: {message.body.decode()}")
                await consumer.ack(message)


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart")))
