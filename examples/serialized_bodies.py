"""Send orders as models, consume them as models, and find the message that is no order.

python examples/serialized_bodies.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from pydantic import BaseModel

from rmq_client import Admin, Message, MessageExt, Producer, PushConsumer, PydanticSerializer, body_listener

GROUP = "example-reader"


class Order(BaseModel):
    """A body of the topic."""

    number: int
    total: float


async def main(namesrv: str, topic: str) -> None:
    serializer = PydanticSerializer()
    orders = asyncio.Queue[Order]()

    async def read(order: Order) -> None:
        await orders.put(order)

    # `Order` is known to annotations because it is defined at the top of the module.
    listener = body_listener(read, serializer)
    async with (
        Producer(namesrv, group="example-shop", serializer=serializer) as producer,
        Admin(namesrv) as admin,
    ):
        await producer.send(Message(topic), Order(number=1, total=9.5))
        await producer.send(Message(topic, b'{"number": "two"}'))
        await producer.send(Message(topic), Order(number=3, total=20))
        async with PushConsumer(namesrv, group=GROUP, topics=topic, listener=listener, consume_from="first"):
            for _ in range(2):
                order = await asyncio.wait_for(orders.get(), timeout=30)
                print(f"order {order.number} costs {order.total:.2f}")
            for letter in await dead_letters(admin):
                print(f"dead letter {letter.body.decode()}: {letter.properties['dead_letter_reason']}")


async def dead_letters(admin: Admin) -> list[MessageExt]:
    """Wait for the dead letter of the message that is no order."""
    for _ in range(150):
        letters = await admin.dead_letters(GROUP)
        if letters:
            return letters
        await asyncio.sleep(0.2)
    return []


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-models")))
