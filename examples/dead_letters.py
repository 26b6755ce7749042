"""Find the messages that a group could not consume, and send them again.

python examples/dead_letters.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    TopicNotFound,
)

GROUP = "example-till"
DEAD_LETTERS = f"%DLQ%{GROUP}"


async def consume(namesrv: str, topic: str, count: int, *, is_closed: bool) -> None:
    """Consume `count` messages. While the till is closed, cards become dead letters."""
    done = asyncio.Queue[str]()

    async def pay(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        if is_closed and message.tags == "card":
            await done.put(f"refused: {message.body.decode()}")
            context.delay_level = -1  # a dead letter at once; 0 would retry the message first
            return ConsumeResult.LATER
        await done.put(f"consumed: {message.body.decode()}")
        return ConsumeResult.SUCCESS

    async with PushConsumer(namesrv, group=GROUP, topics=[topic], listener=pay, consume_from="first"):
        for _ in range(count):
            print(await asyncio.wait_for(done.get(), timeout=30))


async def dead_letters(consumer: PullConsumer) -> list[MessageExt]:
    """Return the dead letters of the group that no earlier run has sent again."""
    for _ in range(50):
        try:
            await consumer.assign(await consumer.queues(DEAD_LETTERS))
        except TopicNotFound:  # the broker creates the topic with the first dead letter
            await asyncio.sleep(0.1)
            continue
        return await consumer.poll(timeout_seconds=5)
    return []


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="example-shop") as producer:
        for number, tag in enumerate(("card", "cash"), 1):
            await producer.send(Message(topic, b"order %d" % number, tags=tag))
        await consume(namesrv, topic, 2, is_closed=True)

        async with PullConsumer(namesrv, group="example-repair", consume_from="first") as consumer:
            letters = await dead_letters(consumer)
            for letter in letters:
                await producer.send(
                    Message(topic, letter.body, tags=letter.tags, properties=letter.user_properties)
                )
                print(f"sent again: {letter.body.decode()}")
            await consumer.commit()
    await consume(namesrv, topic, len(letters), is_closed=False)


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-payments")))
