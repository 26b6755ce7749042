"""Sends a log file line by line: `ship.py NAMESRV FILE`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rmq_client import BatchPolicy, Message, Producer

TOPIC = "access-log"
AT_ONCE = 2000


async def main(namesrv: str, lines: Iterator[bytes]) -> None:
    shipped = 0
    began = time.monotonic()

    async def ship_some(producer: Producer) -> None:
        """One of many senders: takes the next line when its last one has been acknowledged."""
        nonlocal shipped
        for line in lines:
            status = line.split(b'"')[2].split()[0].decode()
            await producer.send(Message(TOPIC, line, tags=f"status-{status}"))
            shipped += 1

    async with (
        Producer(namesrv, group="log-shipper", batching=BatchPolicy()) as producer,
        asyncio.TaskGroup() as senders,
    ):
        for _ in range(AT_ONCE):
            senders.create_task(ship_some(producer))
    elapsed = time.monotonic() - began
    print(f"{shipped} lines acknowledged in {elapsed:.1f} s ({shipped / elapsed:,.0f} lines/s)")


asyncio.run(main(sys.argv[1], iter(Path(sys.argv[2]).read_bytes().splitlines())))
