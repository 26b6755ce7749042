"""Ask a question by a message, and wait for the consumer's reply.

python examples/request_reply.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Admin, ClientError, Message, MessageExt, Producer, PushConsumer

PRICES = {b"apple": b"0.40", b"pear": b"0.55"}


async def create_topic(namesrv: str, topic: str) -> None:
    async with Admin(namesrv) as admin:
        if topic not in await admin.topics():
            await admin.create_topic(topic, queues=2)


async def main(namesrv: str, topic: str) -> None:
    await create_topic(namesrv, topic)
    async with Producer(namesrv, group="example-prices") as producer:

        async def answer(messages: list[MessageExt]) -> None:
            for message in messages:
                try:
                    await producer.reply(message, PRICES.get(message.body, b"not sold here"))
                except ClientError as error:  # a retry would not help: the sender no longer waits
                    print(f"no reply to {message.msg_id}: {error}")

        async with PushConsumer(namesrv, group="example-price-list", topics=[topic], listener=answer):
            for fruit in (b"apple", b"pear", b"melon"):
                reply = await producer.request(Message(topic, fruit), timeout_seconds=30)
                print(f"{fruit.decode()}: {reply.body.decode()}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-prices")))
