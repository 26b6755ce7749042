"""Create a topic, find messages by key and by id, and measure the lag of a group.

python examples/administration.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Admin, Message, Producer, PullConsumer


async def send_and_consume_some(namesrv: str, topic: str) -> str:
    """Send ten messages, consume those of one queue, and return the id of the last message."""
    async with Producer(namesrv, group="example-shop") as producer:
        for number in range(10):
            result = await producer.send(Message(topic, b"order %d" % number, keys=[f"order-{number}"]))
    async with PullConsumer(namesrv, group="example-audit", consume_from="first") as consumer:
        await consumer.assign([result.queue])
        await consumer.poll(timeout_seconds=5)
        await consumer.commit()
    return result.msg_id


async def main(namesrv: str, topic: str) -> None:
    async with Admin(namesrv) as admin:
        if topic not in await admin.topics():
            await admin.create_topic(topic, queues=2)
        print("brokers:", ", ".join((await admin.cluster_info()).brokers))

        message_id = await send_and_consume_some(namesrv, topic)

        for queue, offsets in sorted((await admin.topic_stats(topic)).items()):
            print(f"queue {queue.queue_id}: offsets {offsets.min_offset} to {offsets.max_offset}")
        for _ in range(100):
            found = await admin.query_messages(topic, "order-9")
            if found.messages:
                print("by key:", found.messages[-1].body.decode())
                break
            await asyncio.sleep(0.1)  # a broker indexes a message a moment after it has stored it
        message = await admin.view_message(topic, message_id)
        if message is not None:
            print("by id:", message.body.decode())

        for reach in (await admin.lag("example-audit", topic)).queues:
            print(f"lag of queue {reach.queue.queue_id}: {reach.lag}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-audit")))
