"""Sends while one of three brokers stops, freezes or becomes slow: failures, losses, duplicates, latency.

python -m benchmarks.send_faults frozen [--rate 2000] [--seconds 20] [--tolerance off|v5|classic]

First our SDK, then Apache's Java client 5.3.3 with the same brokers: synchronous sends with its own fault
tolerance (v5), unless it is off.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.load import LoadClient
from rmq_client import FaultTolerance, Producer
from tests.support import toolchain
from tests.support.send_faults import QUEUES, TOPIC, BrokerFault, PacedSends, three_brokers

_WARM_SECONDS: Final = 5.0
# A JVM is slow in its first seconds.
_JAVA_WARM_SECONDS: Final = 20
_SHOWN_ERRORS: Final = 5
_TOLERANCES: Final = {
    "off": None,
    "v5": FaultTolerance.v5(start_detector=True),
    "classic": FaultTolerance.classic(start_detector=True),
}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Results of the sends, and median latencies before and after the fault."""

    sent: int
    errors: Sequence[str]
    failed: int
    lost: int
    twice: int
    ms_before: float
    ms_by_second: Sequence[float]

    def show(self, name: str) -> None:
        print(f"{name}: sent {self.sent}, failed {self.failed}, lost {self.lost}, duplicated {self.twice}")
        for error in self.errors:
            print(f"  {error}")
        print(f"  median before: {self.ms_before:.1f} ms; afterwards, second by second:")
        print("  " + " ".join(f"{median:.1f}" for median in self.ms_by_second))


async def _ours(
    fault: BrokerFault, per_second: int, seconds: int, tolerance: FaultTolerance | None
) -> _Outcome:
    async with three_brokers() as cluster:
        async with Producer(
            cluster.address, group="bench-faults", timeout_seconds=3.0, fault_tolerance=tolerance
        ) as producer:
            sends = PacedSends(producer, per_second)
            await sends.run(1.0)
            began = await sends.run(_WARM_SECONDS)
            before = sends.median_seconds(began, began + _WARM_SECONDS)
            failing = asyncio.create_task(cluster.break_one(fault))
            began = await sends.run(seconds)
            await failing
            await sends.end()
        await cluster.mend(fault)
        stored = await cluster.stored()
    medians = [sends.median_seconds(began + second, began + second + 1) for second in range(seconds)]
    return _Outcome(
        len(sends.ended),
        [str(error) for error in sends.failures[:_SHOWN_ERRORS]],
        len(sends.failures),
        len(sends.acknowledged - set(stored)),
        stored.total() - len(stored),
        before * 1000,
        [median * 1000 for median in medians],
    )


async def _javas(
    fault: BrokerFault, per_second: int, seconds: int, tolerance: FaultTolerance | None
) -> _Outcome:
    program = toolchain.bench_client()
    with tempfile.TemporaryDirectory(prefix="rmq-bench-client-") as home:
        async with three_brokers() as cluster:
            result = await LoadClient(program, cluster.address, Path(home)).faults(
                TOPIC,
                partial(cluster.break_one, fault),
                queues=QUEUES,
                rate=per_second,
                tolerance=tolerance is not None,
                seconds=seconds,
                warmup_s=_JAVA_WARM_SECONDS,
            )
            await cluster.mend(fault)
            stored = Counter(int(body.split(b":", 1)[0]) for body in (await cluster.stored()).elements())
    values = result.values
    acknowledged = set(range(values["sent"])) - set(values["failed"])
    return _Outcome(
        values["sent"],
        [f"{count} x {kind}" for kind, count in values["errorKinds"].items()],
        len(values["failed"]),
        len(acknowledged - set(stored)),
        stored.total() - len(stored),
        values["medianMillisBefore"],
        values["medianMillis"],
    )


async def _measure(chosen: Namespace) -> None:
    fault, tolerance = BrokerFault[chosen.fault.upper()], _TOLERANCES[chosen.tolerance]
    for name, side in (("rmq_client", _ours), ("Apache's Java client", _javas)):
        (await side(fault, chosen.rate, chosen.seconds, tolerance)).show(name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fault", choices=[fault.name.lower() for fault in BrokerFault])
    parser.add_argument("--rate", type=int, default=2000, help="sends per second, of 1 KiB")
    parser.add_argument("--seconds", type=int, default=20, help="how long it goes on with the fault")
    parser.add_argument("--tolerance", choices=_TOLERANCES, default="v5")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
