"""Requests of an idle stream: `python -m benchmarks.spark.polling`.

The driver's half of a stream polls a cluster in memory of 8 brokers with 8 queues each, as Spark's default
trigger does: 10 ms after the last answer. The program prints the requests per second, by kind of server.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

from pyspark_rocketmq.columns import arrow_schema
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.spark_versions import ReadMaxRows
from pyspark_rocketmq.stream_reader import StreamReader
from tests.support.fake_cluster import FakeCluster

_BROKERS: Final = 8
_QUEUES_PER_BROKER: Final = 8
_POLLING_DELAY_SECONDS: Final = 0.01
_SETTLING_SECONDS: Final = 4.0
_NO_LIMIT: Final = ReadMaxRows(2**62)


def _poll(reader: StreamReader, seconds: float) -> int:
    """Ask for the end of a batch, again and again. Return how often."""
    at = reader.initialOffset()
    end = time.monotonic() + seconds
    triggers = 0
    while time.monotonic() < end:
        at = reader.latestOffset(at, _NO_LIMIT)
        triggers += 1
        time.sleep(_POLLING_DELAY_SECONDS)
    return triggers


async def _measure(seconds: float) -> None:
    async with FakeCluster({f"broker-{n}": {"T": _QUEUES_PER_BROKER} for n in range(_BROKERS)}) as cluster:
        options = ReadOptions.for_stream({"rocketmq.namesrv.addr": cluster.address, "subscribe": "T"})
        reader = StreamReader(options, arrow_schema(["body"]))
        try:
            await asyncio.to_thread(_poll, reader, _SETTLING_SECONDS)
            for server in (cluster.namesrv, *cluster.brokers.values()):
                server.seen.clear()
            triggers = await asyncio.to_thread(_poll, reader, seconds)
        finally:
            await asyncio.to_thread(reader.stop)
        to_brokers = sum(len(broker.seen) for broker in cluster.brokers.values())
        print(f"triggers: {triggers / seconds:.1f}/s")
        print(f"requests to each broker: {to_brokers / _BROKERS / seconds:.2f}/s")
        print(f"requests to the name server: {len(cluster.namesrv.seen) / seconds:.2f}/s")


def main() -> None:
    """Parse the arguments, measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.polling", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the measurement, in seconds")
    asyncio.run(_measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
