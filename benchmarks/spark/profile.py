"""Profiles one reading task of the connector in this process, without Spark: its rate and its CPU.

python -m benchmarks.spark.profile                          starts a broker with 200,000 messages of 128 B
python -m benchmarks.spark.profile --body-bytes 1024 --set propertiesMode=none
python -m benchmarks.spark.profile --namesrv 127.0.0.1:9876 --topic orders --queue 3
python -m benchmarks.spark.profile --part decode --functions 25

The task reads one queue `--rounds` times. The CPU of each round is shown by thread: the decoding thread is
the one that Spark would run, the fetching thread runs the event loop. `--functions` profiles one of them with
cProfile in an additional round; profiling slows calls down, so only the proportions are meaningful.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.spark.topics import Filling, fill_rocketmq
from pyspark_rocketmq.batch_reader import BatchReader
from pyspark_rocketmq.columns import arrow_schema, columns_of
from pyspark_rocketmq.decoding import ColumnDecoder
from pyspark_rocketmq.driver.task_settings import task_settings
from pyspark_rocketmq.options import ReadOptions
from pyspark_rocketmq.tasks.connection_pool import Connection, connection_pool
from pyspark_rocketmq.tasks.fetching import Fetched, RangeFetch
from pyspark_rocketmq.tasks.partitions import TaskPartition
from pyspark_rocketmq.tasks.ranges import ReadTask
from pyspark_rocketmq.tasks.task_reading import read_task
from rmq_client.blocking import Admin
from tests.support.own_servers import own_cluster

_TOPIC: Final = "Profiled"
_MILLION: Final = 1_000_000


class Reading:
    """One task and three measurable parts of it; each returns its number of messages."""

    def __init__(self, namesrv: str, topic: str, queue_id: int, options: dict[str, str]) -> None:
        self.options = ReadOptions.for_batch(
            {"rocketmq.namesrv.addr": namesrv, "assign": _assignment(namesrv, topic, queue_id)} | options
        )
        schema = arrow_schema(list(columns_of(self.options.properties_mode)), self.options.properties_mode)
        self.settings = task_settings(self.options, schema)
        self.task = self._whole_queue(BatchReader(self.options, schema))
        self._chunks: list[Fetched] = []

    def _whole_queue(self, reader: BatchReader) -> ReadTask:
        partitions = reader.partitions()
        if not partitions:
            raise SystemExit("the queue is empty")
        (partition,) = partitions
        assert isinstance(partition, TaskPartition)
        return partition.task

    def all(self) -> int:
        """Run the task as Spark does."""
        return sum(batch.num_rows for batch in read_task(self.task, self.settings))

    def fetch(self) -> int:
        """Run its pulls only."""
        return sum(chunk.end - chunk.begin for chunk in self._fetched())

    def decode(self) -> int:
        """Run its decoding only, on bodies fetched before."""
        self._chunks = self._chunks or list(self._fetched())
        settings = self.settings
        decoder = ColumnDecoder(
            settings.schema.names,
            properties_mode=self.options.properties_mode,
            check_crc=settings.check_crc,
            decompress=settings.decompress,
            schema=settings.schema,
        )
        key = self.task.ranges[0].key
        return sum(
            decoder.decode(
                key.topic, key.broker, key.queue_id, chunk.bodies, begin=chunk.begin, end=chunk.end
            ).messages
            for chunk in self._chunks
        )

    def _fetched(self) -> Iterator[Fetched]:
        with connection_pool().lease(self.settings.connection) as connection:
            fetch = self._range_fetch(connection)

            async def begin() -> None:
                fetch.start()

            connection.puller.submit(begin()).result()
            while (chunk := connection.puller.submit(fetch.next()).result()) is not None:
                yield chunk

    def _range_fetch(self, connection: Connection) -> RangeFetch:
        (wanted,) = self.task.ranges
        settings = self.settings.fetch
        size = connection.pull_size(wanted.key.broker, settings.pull_max_messages)
        return RangeFetch(connection.puller, wanted, settings, size, time.monotonic)


def _assignment(namesrv: str, topic: str, queue_id: int) -> str:
    """Return the queue of that number of the first broker that has one."""
    with Admin(namesrv) as admin:
        brokers = sorted(
            queue.broker_name for queue in admin.topic_stats(topic) if queue.queue_id == queue_id
        )
    if not brokers:
        raise SystemExit(f"topic {topic} has no queue {queue_id}")
    return json.dumps({topic: {brokers[0]: [queue_id]}})


def _thread_seconds() -> dict[str, float]:
    """Return the CPU of each Python thread so far, by its task."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        name = "decoding" if thread is threading.current_thread() else thread.name
        nanoseconds = int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])
        found[name] = found.get(name, 0.0) + nanoseconds / 1e9
    return found


def measure(part: Callable[[], int], rounds: int) -> None:
    """Print the rate of each round, and the CPU of each thread per message."""
    for number in range(rounds):
        before, cpu_before = _thread_seconds(), time.process_time()
        began = time.monotonic()
        messages = part()
        seconds = time.monotonic() - began
        used = {name: now - before.get(name, 0.0) for name, now in _thread_seconds().items()}
        shown = ", ".join(
            f"{name} {value * _MILLION / messages:.2f}" for name, value in used.items() if value > 0.001
        )
        every = (time.process_time() - cpu_before) * _MILLION / messages
        print(
            f"round {number + 1}: {messages:,} messages, {messages / seconds:,.0f} messages/s, "
            f"µs of CPU for a message: {every:.2f} ({shown})",
            flush=True,
        )


def show_functions(reading: Reading, part: Callable[[], int], thread: str, functions: int) -> None:
    """Run one round under cProfile, in the decoding or the fetching thread."""
    profile = cProfile.Profile()
    with (
        connection_pool().lease(reading.settings.connection) as connection,
        _profiled_here(profile) if thread == "decode" else _profiled_there(profile, connection),
    ):
        part()
    pstats.Stats(profile).sort_stats("tottime").print_stats(functions)


@contextmanager
def _profiled_here(profile: cProfile.Profile) -> Iterator[None]:
    with profile:
        yield


@contextmanager
def _profiled_there(profile: cProfile.Profile, connection: Connection) -> Iterator[None]:
    # A profiler belongs to the thread that enables it.
    async def switch(action: Callable[[], None]) -> None:
        action()

    connection.puller.submit(switch(profile.enable)).result()
    try:
        yield
    finally:
        connection.puller.submit(switch(profile.disable)).result()


def profile_queue(chosen: Namespace, namesrv: str, topic: str) -> None:
    """Run the part chosen on the command line, on one queue."""
    options = dict(pair.split("=", maxsplit=1) for pair in chosen.set)
    reading = Reading(namesrv, topic, chosen.queue, options)
    part = {"all": reading.all, "fetch": reading.fetch, "decode": reading.decode}[chosen.part]
    if chosen.part == "decode":
        part()  # fetches once
    measure(part, chosen.rounds)
    if chosen.functions:
        show_functions(reading, part, chosen.thread, chosen.functions)
    connection_pool().close()


async def with_own_broker(chosen: Namespace) -> None:
    """The same on a broker started and filled for it; only one queue is read."""
    settings = dict(pair.split("=", maxsplit=1) for pair in chosen.broker_set)
    async with own_cluster(settings) as (namesrv, _):
        filling = Filling(_TOPIC, chosen.messages, chosen.body_bytes)
        await fill_rocketmq(namesrv.address, filling, queues=1)
        await asyncio.to_thread(profile_queue, chosen, namesrv.address, _TOPIC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=["all", "fetch", "decode"], default="all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--functions", type=int, default=0, help="functions of a profile to print (0)")
    parser.add_argument("--thread", choices=["decode", "fetch"], default="decode", help="thread to profile")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="connector option")
    parser.add_argument(
        "--namesrv", help="name server of a running cluster; default: start and fill a broker"
    )
    parser.add_argument("--topic", help="topic of that cluster")
    parser.add_argument("--queue", type=int, default=0)
    parser.add_argument(
        "--messages", type=int, default=200_000, help="messages for the started broker (200,000)"
    )
    parser.add_argument("--body-bytes", type=int, default=128, help="size of their bodies (128)")
    parser.add_argument(
        "--broker-set", action="append", default=[], metavar="KEY=VALUE", help="setting of the started broker"
    )
    chosen = parser.parse_args()
    if chosen.namesrv is None:
        asyncio.run(with_own_broker(chosen))
    elif chosen.topic is None:
        parser.error("--namesrv needs --topic")
    else:
        profile_queue(chosen, chosen.namesrv, chosen.topic)


if __name__ == "__main__":
    main()
