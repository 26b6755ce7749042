"""Let the broker select messages, by tag and by property (SQL92).

Filters by property need `enablePropertyFilter=true` on the broker, except for simple consumers.

python examples/filters.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, Producer, PullConsumer, SimpleConsumer, Sql

ORDERS = (("paid", "north", "120"), ("paid", "south", "300"), ("sent", "east", "500"), ("open", "east", "7"))


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="example-shop") as producer:
        for number, (tag, region, amount) in enumerate(ORDERS, 1):
            properties = {"region": region, "amount": amount}
            await producer.send(Message(topic, b"order %d" % number, tags=tag, properties=properties))

    async with PullConsumer(namesrv, group="example-by-tag", consume_from="first") as consumer:
        await consumer.assign(await consumer.queues(topic), "paid || sent")
        while messages := await consumer.poll(timeout_seconds=1):
            for message in messages:
                print(f"by tag: {message.body.decode()}, {message.tags}")
            await consumer.commit()

    expression = Sql("amount > 100 AND region IN ('north', 'east')")
    async with SimpleConsumer(namesrv, group="example-by-property", consume_from="first") as simple:
        await simple.subscribe(topic, expression)
        matching = 0
        async for message in simple:
            print(f"by property: {message.body.decode()}, {message.user_properties}")
            await simple.ack(message)
            matching += 1
            if matching == 2:
                break


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-orders")))
