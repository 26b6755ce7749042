"""A broker at full speed with cleaning on, for RMQ_SOAK_SECONDS (600): `make soak`.

Its memory, descriptors, threads and files must not grow, and no message may be lost. The program prints a
line per sample and a verdict. Its exit code is 0 if the broker passed.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from rmq_remoting.codes import RequestCode
from tests.crash.brokers import FaultyBroker
from tests.crash.directory import check_directory
from tests.crash.growth import growth
from tests.crash.ledger_load import QUEUES, LedgerLoad, end_of, read_queues
from tests.support.broker_requests import create_topic, request, send, sent
from tests.support.ledger import Ledger
from tests.support.raw_client import raw_client

_SAMPLES: Final = 40
_MIB: Final = 1 << 20
# Allowed growth of a measure, besides a tenth.
_SLACK: Final = {"memory": 8 * _MIB, "descriptors": 8, "threads": 4, "log files": 8}
_SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(4 * _MIB),
    # Every file except the current one is expired, at any hour.
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": "500",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """The broker's resources and progress at a time."""

    seconds: float
    acknowledged: int
    memory: int  # anonymous, bytes
    descriptors: int
    threads: int
    log_files: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s {self.acknowledged:10,d} messages {self.memory / _MIB:6.1f} MiB "
            f"{self.descriptors:4d} descriptors {self.threads:3d} threads {self.log_files:3d} log files"
        )


async def soak(home: Path, seconds: float, chance: random.Random) -> list[str]:
    """Run the load; return the problems, one line each."""
    ledger = Ledger()
    samples: list[Sample] = []
    async with FaultyBroker(home, settings=_SETTINGS) as broker:
        began = time.monotonic()
        async with LedgerLoad(broker.port, ledger, chance):
            for number in range(1, _SAMPLES + 1):
                await asyncio.sleep(max(0.0, began + seconds * number / _SAMPLES - time.monotonic()))
                if broker.process.exit_code is not None:
                    return [f"the broker has ended: {broker.process.log_tail()}"]
                await _use_a_short_lived_topic(broker.port, number)
                ledger.forget_cleaned(await _min_offsets(broker.port))
                samples.append(_sample(broker, ledger, time.monotonic() - began))
                print(samples[-1], flush=True)
        broker.kill()
        # Messages must not be deleted while they are read.
        broker.settings |= {"fileReservedTime": "72"}
        await broker.start()
        print(ledger.check(await read_queues(broker.port)))
        await broker.stop()
        check_directory(broker.store_path)
        problems = [f"the broker logged: {line}" for line in broker.logged_errors()]
    if ledger.unknown_count or ledger.refused_count:
        problems.append(f"{ledger.refused_count} sends were refused, {ledger.unknown_count} undecided")
    return problems + _growth(samples)


def _growth(samples: Sequence[Sample]) -> list[str]:
    """Return the measures that have grown."""
    measures: dict[str, Callable[[Sample], int]] = {
        "memory": lambda sample: sample.memory,
        "descriptors": lambda sample: sample.descriptors,
        "threads": lambda sample: sample.threads,
        "log files": lambda sample: sample.log_files,
    }
    problems = []
    for name, measure in measures.items():
        if problem := growth(name, [measure(sample) for sample in samples], _SLACK[name]):
            problems.append(problem)
    if samples[-1].acknowledged == samples[len(samples) // 2].acknowledged:
        problems.append("no more messages were acknowledged")
    if not any(earlier.log_files > later.log_files for earlier, later in pairwise(samples)):
        problems.append("no log file was ever cleaned")
    return problems


def _sample(broker: FaultyBroker, ledger: Ledger, seconds: float) -> Sample:
    process = Path(f"/proc/{broker.process.pid}")
    return Sample(
        seconds,
        ledger.acknowledged_count,
        broker.usage().anonymous_bytes,
        len(list((process / "fd").iterdir())),
        len(list((process / "task").iterdir())),
        len(broker.log_files),
    )


async def _min_offsets(port: int) -> dict[tuple[str, int], int]:
    async with raw_client(port) as client:
        return {queue: await end_of(client, queue, RequestCode.GET_MIN_OFFSET) for queue in QUEUES}


async def _use_a_short_lived_topic(port: int, number: int) -> None:
    topic = f"Passing{number}"
    async with raw_client(port) as client:
        await client.ask(create_topic(topic))
        for _ in range(10):
            sent(await client.ask(send(topic)))
        await client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic))


def main() -> int:
    """Run the command; return its exit code."""
    seconds = float(os.environ.get("RMQ_SOAK_SECONDS", "600"))
    seed = int(os.environ.get("RMQ_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"RMQ_CRASH_SEED={seed}, {seconds:g} s")
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        problems = asyncio.run(soak(Path(home), seconds, random.Random(seed)))
    print("\n".join(problems) or "passed: no message is lost, and nothing has grown")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
