"""Send many messages: one by one, batched by the producer, and as a batch of the program.

python examples/batching.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from rmq_client import BatchPolicy, Message, Producer

COUNT = 500


def messages_to(topic: str) -> Sequence[Message]:
    return [Message(topic, b"reading %d" % number) for number in range(COUNT)]


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="example-sensors") as producer:
        begin = time.perf_counter()
        for message in messages_to(topic):
            await producer.send(message)
        print(f"one by one: {COUNT} messages in {time.perf_counter() - begin:.2f} s")

    async with Producer(namesrv, group="example-sensors", batching=BatchPolicy()) as producer:
        begin = time.perf_counter()
        # Each call waits for the result of its own message. The producer sends them together.
        await asyncio.gather(*(producer.send(message) for message in messages_to(topic)))
        print(f"batched by the producer: {COUNT} messages in {time.perf_counter() - begin:.2f} s")

        results = await producer.send_batch(messages_to(topic))
        first, last = results[0].queue_offset, results[-1].queue_offset
        print(f"one batch: offsets {first} to {last} of queue {results[0].queue.queue_id}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-readings")))
