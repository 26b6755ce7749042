"""Send a log to a topic, line by line: `python -m examples.pipeline.replay NAMESRV LOG`.

The rate is given in lines per second, or unlimited. Exits with code 0 when every line has been acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from examples.pipeline.lines import Tally
from examples.pipeline.records import append
from rmq_client import BatchPolicy, Message, Producer

TOPIC: Final = "access-log"
_IN_FLIGHT: Final = 2000
_REPORT_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 30.0


class Replay:
    """Sends lines to a topic, with at most `in_flight` unacknowledged ones."""

    def __init__(self, producer: Producer, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._producer = producer
        self._topic = topic
        self._clock = clock
        self.acknowledged = 0

    async def send(self, lines: Iterator[bytes], in_flight: int, rate: float = 0.0) -> None:
        """Send all lines. `rate`: lines per second, 0 for unlimited. Raises ClientError, in a group."""
        began = self._clock()
        numbered = enumerate(lines)

        async def one_of_many() -> None:
            """Send the next line after the previous one has been acknowledged."""
            for number, line in numbered:
                if rate and (early := began + number / rate - self._clock()) > 0:
                    await asyncio.sleep(early)
                await self._producer.send(Message(self._topic, line))
                self.acknowledged += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(one_of_many())

    async def report(self, path: Path) -> None:
        """Append progress records to a file until cancelled."""
        while True:
            self.report_once(path)
            await asyncio.sleep(_REPORT_SECONDS)

    def report_once(self, path: Path) -> None:
        append(path, {"time": time.time(), "sent": self.acknowledged})


async def replay(options: argparse.Namespace) -> None:
    """Send the log and print the rate."""
    lines = options.log.read_bytes().splitlines()
    producer = Producer(
        options.namesrv,
        group="access-log-replay",
        batching=BatchPolicy(),
        timeout_seconds=_PATIENCE_SECONDS,
    )
    began = time.monotonic()
    async with producer:
        sending = Replay(producer, options.topic)
        reporting = None
        if options.progress:
            reporting = asyncio.create_task(sending.report(options.progress))
        await sending.send(iter(lines), options.in_flight, options.rate)
        if reporting is not None:
            reporting.cancel()
            sending.report_once(options.progress)
    elapsed = time.monotonic() - began
    count = sending.acknowledged
    print(f"{count} lines acknowledged in {elapsed:.1f} s ({count / elapsed:,.0f} lines/s)")
    if options.tally:
        Tally.of(lines).save(options.tally)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("namesrv", help="name server, host:port")
    parser.add_argument("log", type=Path, help="log to send")
    parser.add_argument("--topic", default=TOPIC, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=0.0, help="lines per second; default: unlimited")
    parser.add_argument(
        "--in-flight", type=int, default=_IN_FLIGHT, help="unacknowledged lines at once; default: %(default)s"
    )
    parser.add_argument("--progress", type=Path, metavar="FILE", help="append progress records to this file")
    parser.add_argument(
        "--tally", type=Path, metavar="FILE", help="write the lines by minute and status to this file"
    )
    asyncio.run(replay(parser.parse_args()))


if __name__ == "__main__":
    main()
