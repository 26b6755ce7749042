"""Watch the lag of a consumer shrink, and the queues come and leave.

python examples/lag.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, MessageQueue, Producer, PullConsumer, RebalanceListener

MESSAGES = 20


class Printer(RebalanceListener):
    """Prints the number of queues that come and leave."""

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        print(f"{len(queues)} queues assigned")

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        print(f"{len(queues)} queues revoked")


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="example-shop") as producer:
        for number in range(MESSAGES):
            await producer.send(Message(topic, b"order %d" % number))
    async with PullConsumer(
        namesrv,
        group="example-watched",
        topics=topic,
        consume_from="first",
        rebalance_listener=Printer(),
    ) as consumer:
        lag = await consumer.lag()
        print(f"{lag.total} messages behind")
        while lag.total:
            await consumer.poll(max_messages=8)
            lag = await consumer.lag()
            print(f"{lag.total} messages behind")
        await consumer.commit()
        committed = await consumer.committed_offsets()
        print(f"committed: {sum(offset or 0 for offset in committed.values())}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-lag")))
