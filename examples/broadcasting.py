"""Deliver every message to every member of a group, such as an invalidation to all caches.

python examples/broadcasting.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack

from rmq_client import ClientSettings, Message, MessageExt, Producer, PushConsumer

MEMBERS = ("cache-1", "cache-2")


async def main(namesrv: str, topic: str) -> None:
    dropped = asyncio.Queue[str]()

    def cache(name: str, folder: str) -> PushConsumer:
        """Return a member, which keeps its own offsets in the folder."""

        async def drop(messages: list[MessageExt]) -> None:
            for message in messages:
                await dropped.put(f"{name} drops {message.body.decode()}")

        return PushConsumer(
            namesrv,
            group="example-caches",
            topics=[topic],
            listener=drop,
            broadcasting=True,
            consume_from="first",
            offsets_folder=folder,
            # Members in one process need different names.
            settings=ClientSettings(instance_name=name),
        )

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(namesrv, group="example-prices"))
        await producer.send(Message(topic, b"price of apples"))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name in MEMBERS:
            await stack.enter_async_context(cache(name, folder))
        for _ in MEMBERS:
            print(await asyncio.wait_for(dropped.get(), timeout=30))


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "example-invalidations")))
