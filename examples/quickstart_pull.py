"""Read a topic from its beginning to its end, once, and commit: the next run prints only new messages.

The topic must exist: quickstart_send.py sends messages to it, and the broker creates it with the first one.

python examples/quickstart_pull.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import PullConsumer


async def main(namesrv: str, topic: str) -> None:
    async with PullConsumer(
        namesrv, group="quickstart-reader", topics=topic, consume_from="first"
    ) as consumer:
        while messages := await consumer.poll(max_messages=100, timeout_seconds=2):
            for message in messages:
                print(f"queue {message.queue_id} offset {message.queue_offset}: {message.body.decode()}")
            await consumer.commit()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart")))
