"""Sends while one of three brokers stops, freezes or becomes slow: what fails, what is lost, what it costs.

python -m benchmarks.send_faults frozen [--rate 2000] [--seconds 20] [--tolerance off|v5|classic]
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

import uvloop

from rmq_client import FaultTolerance, Producer
from tests.support.send_faults import BrokerFault, PacedSends, three_brokers

_WARM_SECONDS: Final = 5.0
_TOLERANCES: Final = {
    "off": None,
    "v5": FaultTolerance.v5(start_detector=True),
    "classic": FaultTolerance.classic(start_detector=True),
}


async def _measure(
    fault: BrokerFault, per_second: int, seconds: int, tolerance: FaultTolerance | None
) -> None:
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
    _print(sends, stored.total() - len(stored), len(sends.acknowledged - set(stored)))
    print(f"median before: {before * 1000:.1f} ms; afterwards, second by second:")
    medians = [sends.median_seconds(began + second, began + second + 1) for second in range(seconds)]
    print("  " + " ".join(f"{median * 1000:.1f}" for median in medians))


def _print(sends: PacedSends, duplicates: int, lost: int) -> None:
    print(f"sent {len(sends.ended)}, failed {len(sends.failures)}, lost {lost}, twice {duplicates}")
    for error in sends.failures[:5]:
        print(f"  {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("fault", choices=[fault.name.lower() for fault in BrokerFault])
    parser.add_argument("--rate", type=int, default=2000, help="sends per second, of 1 KiB")
    parser.add_argument("--seconds", type=int, default=20, help="how long it goes on with the fault")
    parser.add_argument("--tolerance", choices=_TOLERANCES, default="v5")
    chosen = parser.parse_args()
    work = _measure(
        BrokerFault[chosen.fault.upper()], chosen.rate, chosen.seconds, _TOLERANCES[chosen.tolerance]
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


if __name__ == "__main__":
    main()
