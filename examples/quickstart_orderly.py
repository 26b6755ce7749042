"""Consume in order until Ctrl-C: the messages of a queue one by one; a failed one is repeated first.

The topic must exist: quickstart_send.py sends messages to it, and the broker creates it with the first one.

python examples/quickstart_orderly.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from rmq_client import ConsumeResult, MessageExt, OrderlyContext, PushConsumer


async def show(messages: list[MessageExt], context: OrderlyContext) -> ConsumeResult:
    for message in messages:
        attempt = message.reconsume_times + 1
        print(f"{message.body.decode()} of queue {message.queue_id}, attempt {attempt}", flush=True)
        if attempt == 1 and message.queue_offset == 0:
            context.suspend_seconds = 0.2
            return ConsumeResult.LATER
    return ConsumeResult.SUCCESS


async def main(namesrv: str, topic: str) -> None:
    async with PushConsumer(
        namesrv,
        group="quickstart-orderly",
        topics=topic,
        listener=show,
        consume_from="first",
        orderly=True,
        max_reconsume_times=3,
    ) as consumer:
        print(f"waiting for messages of {topic}; Ctrl-C ends this", flush=True)
        await consumer.wait_ready()
        await consumer.wait_stopped()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    with suppress(KeyboardInterrupt):
        asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart")))
