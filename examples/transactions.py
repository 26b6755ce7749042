"""Send messages together with local work: a message is delivered only if its work was committed.

python examples/transactions.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, MessageExt, Producer, PullConsumer, TransactionState

paid: set[str] = set()  # stands for a table of a database


async def pay(order: str, balance: int, price: int) -> None:
    if price > balance:
        raise ValueError(f"order {order} costs {price}, the account has {balance}")
    paid.add(order)


async def check(message: MessageExt) -> TransactionState:
    """Answer a broker that asks for the outcome, because the process of the transaction has died."""
    return TransactionState.COMMIT if message.keys[0] in paid else TransactionState.ROLLBACK


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="example-shop", check_transaction=check) as producer:
        for order, price in (("4711", 20), ("4712", 2000)):
            message = Message(topic, f"order {order} is paid".encode(), keys=[order])
            try:
                async with producer.transaction(message):
                    await pay(order, balance=100, price=price)
            except ValueError as error:
                print(f"rolled back: {error}")
            else:
                print(f"committed: order {order}")

    async with PullConsumer(namesrv, group="example-dispatch", consume_from="first") as consumer:
        await consumer.assign(await consumer.queues(topic))
        while messages := await consumer.poll(timeout_seconds=1):
            for message in messages:
                print(f"delivered: {message.body.decode()}")
            await consumer.commit()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-transactions")))
