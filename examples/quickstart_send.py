"""Send ten messages and print where each one was stored.

python examples/quickstart_send.py [NAMESRV] [TOPIC]
"""

from __future__ import annotations

import asyncio
import sys

from rmq_client import Message, Producer


async def main(namesrv: str, topic: str) -> None:
    async with Producer(namesrv, group="quickstart-producer") as producer:
        for number in range(10):
            message = Message(topic, f"hello {number}".encode(), tags="greeting", keys=[f"key-{number}"])
            result = await producer.send(message)
            where = f"queue {result.queue.queue_id} offset {result.queue_offset}"
            print(f"{result.status.name} {result.msg_id} {where}")


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "127.0.0.1:9876"), arguments.get(2, "quickstart")))
