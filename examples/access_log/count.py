"""One member of the group that reads the log: `count.py NAMESRV FILE`; ends on SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from rmq_client import MessageExt, PushConsumer

TOPIC = "access-log"


async def main(namesrv: str, seen: BinaryIO) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    async def keep(messages: list[MessageExt]) -> None:
        # Written before the commit: the file of a killed process contains everything that it has committed.
        seen.write(b"".join(message.body + b"\n" for message in messages))
        seen.flush()

    async with PushConsumer(
        namesrv,
        group="log-readers",
        topics=[TOPIC],
        listener=keep,
        consume_from="first",
        max_messages=32,
    ):
        print("reading", flush=True)
        await stop.wait()


with Path(sys.argv[2]).open("ab") as file:
    asyncio.run(main(sys.argv[1], file))
