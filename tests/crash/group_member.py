"""A member of a consumer group as a process, until SIGTERM.

group_member NAMESRV TOPIC GROUP [--orderly] [--popping]

Prints `ready`, and after each call of the listener one line per message: its body, then when the call began
and ended (nanoseconds of the machine's monotonic clock).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from typing import Final

from rmq_client import ConsumerTiming, MessageExt, PopSettings, PushConsumer

COMMIT_SECONDS: Final = 1.0
# Shorter intervals than the defaults, so that a test of seconds sees many rebalances and commits.
_TIMING: Final = ConsumerTiming(
    rebalance_seconds=2.0,
    rebalance_again_seconds=0.1,
    commit_seconds=COMMIT_SECONDS,
    lock_renewal_seconds=1.0,
)
_POP: Final = PopSettings(invisible_seconds=5.0)


async def listen(messages: list[MessageExt]) -> None:
    for message in messages:
        began = time.monotonic_ns()
        await asyncio.sleep(0.002)
        line = f"{message.body.decode()} {began} {time.monotonic_ns()}\n"
        sys.stdout.write(line)
    sys.stdout.flush()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("namesrv")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--orderly", action="store_true")
    parser.add_argument("--popping", action="store_true")
    chosen = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with PushConsumer(
        chosen.namesrv,
        group=chosen.group,
        topics=[chosen.topic],
        listener=listen,
        consume_from="first",
        orderly=chosen.orderly,
        client_rebalance=not chosen.popping,
        pop=_POP,
        timing=_TIMING,
    ):
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
