"""Print the messages of a topic as they arrive, until Ctrl-C. Two such programs share the queues.

The topic must exist: quickstart_send.py sends messages to it, and the broker creates it with the first one.

python examples/quickstart_consume.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from rmq_client import MessageExt, PushConsumer


async def show(messages: list[MessageExt]) -> None:
    for message in messages:
        print(f"queue {message.queue_id} offset {message.queue_offset}: {message.body.decode()}", flush=True)


async def main(namesrv: str, topic: str) -> None:
    async with PushConsumer(
        namesrv, group="quickstart-consumer", topics=topic, listener=show, consume_from="first"
    ) as consumer:
        print(f"waiting for messages of {topic}; Ctrl-C ends this", flush=True)
        await consumer.wait_ready()
        await consumer.wait_stopped()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    with suppress(KeyboardInterrupt):
        asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart")))
