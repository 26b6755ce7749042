"""Profiles one writing task of the connector in this process, without Spark: its rate and its CPU.

python -m benchmarks.spark.sink_profile                        starts a broker, writes 300,000 rows of 128 B
python -m benchmarks.spark.sink_profile --body-bytes 1024 --keys --set sendBatchSize=2000
python -m benchmarks.spark.sink_profile --part encode --functions 25
python -m benchmarks.spark.sink_profile --part store --functions 25

The rows are prepared in Arrow batches of 10,000 rows, as Spark hands them to a writer. `--part encode` only
encodes them. `--part store` stores the requests in a broker's store in this process, without a network, and
shows the broker's CPU of a batch. All figures are µs of CPU for a row. `--functions` profiles an additional
round with cProfile, which slows calls down: only the proportions are meaningful.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import itertools
import pstats
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from benchmarks.spark.topics import QUEUES
from pyspark_rocketmq.options.write_options import WriteOptions
from pyspark_rocketmq.sink.dead_letters import DeadLetters
from pyspark_rocketmq.sink.encoding import RowEncoder
from pyspark_rocketmq.sink.producer_pool import producer_pool
from pyspark_rocketmq.sink.row_ids import TaskId
from pyspark_rocketmq.sink.schema import SinkColumns
from pyspark_rocketmq.sink.send_requests import SendRequest, send_requests
from pyspark_rocketmq.sink.settings import SinkSettings, sink_settings
from pyspark_rocketmq.sink.task_writer import TaskWriter
from rmq_broker.sending.client_batch import read_batch
from rmq_broker.sending.properties import PropertiesEditor, tags_codes_cache
from rmq_broker.store.api import MessageStore, RecordTemplate
from rmq_client.blocking import Admin
from tests.support.broker_settings import broker_settings
from tests.support.own_servers import OwnBroker, own_cluster
from tests.support.waiting import until

_TOPIC: Final = "Profiled"
_MILLION: Final = 1_000_000
_BATCH_ROWS: Final = 10_000
_CATCH_UP_SECONDS: Final = 60.0
_HOST: Final = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def prepared(rows: int, body_bytes: int, *, keys: bool) -> list[pa.RecordBatch]:
    """Return Arrow batches with numbered bodies, and with a key for each row if wanted."""
    found = []
    for begin in range(0, rows, _BATCH_ROWS):
        numbers = range(begin, min(begin + _BATCH_ROWS, rows))
        rest = b"x" * (body_bytes - 16)
        columns: dict[str, Any] = {"body": [b"%016d" % number + rest for number in numbers]}
        if keys:
            columns["keys"] = [f"order-{number:012d}" for number in numbers]
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


@dataclass(slots=True)
class Writing:
    """The rows of one task, and three measurable parts of writing them; each returns its number of rows."""

    settings: SinkSettings
    batches: Sequence[pa.RecordBatch]
    numbers: itertools.count[int]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches)

    def encoder(self) -> RowEncoder:
        """Return an encoder for a write of its own."""
        columns = SinkColumns({name: place for place, name in enumerate(self.batches[0].schema.names)})
        return RowEncoder(columns, self.settings, self._task(), producer_pool().unique_keys)

    def _task(self) -> TaskId:
        return TaskId(f"{next(self.numbers):032x}", "0", 0)

    def all(self) -> int:
        """Run the task as Spark does."""
        encoder = self.encoder()
        with producer_pool().sender(self.settings) as sender:
            dead = DeadLetters(self.settings, self._task(), sender, producer_pool().unique_keys)
            columns = SinkColumns({name: place for place, name in enumerate(self.batches[0].schema.names)})
            writer = TaskWriter(columns, self.settings, encoder, sender, dead)
            writer.write(self.batches)
            return writer.rows

    def requests(self) -> list[SendRequest]:
        """Encode all rows."""
        encoder, first, made = self.encoder(), 0, []
        for batch in self.batches:
            made += send_requests(encoder.encode(batch, first), {}, self.settings)
            first += batch.num_rows
        return made

    def encode(self) -> int:
        """Run its encoding only."""
        return sum(len(request.rows) for request in self.requests())


class Storing:
    """A broker's store in this process, and the requests of one task."""

    def __init__(self, store: MessageStore, writing: Writing) -> None:
        self._store = store
        self._bodies = [request.outgoing.body for request in writing.requests()]
        self._editor = PropertiesEditor(
            "DefaultCluster", "DefaultRegion", True, lambda: "unused", tags_codes_cache()
        )
        self._template = RecordTemplate(
            _TOPIC, 0, flag=0, sys_flag=0, reconsume_times=0, born_host_bytes=8, store_host=_HOST
        )

    def store(self) -> int:
        """Read and store all batches, as a broker does."""
        shared, rows, queue = self._editor.of_batch(b""), 0, self._store.queues.get_or_create(_TOPIC, 0)
        for body in self._bodies:
            messages, has_keys = read_batch(body, shared, 0, self._editor)
            self._store.put_batch(
                queue,
                self._template,
                messages,
                born_timestamp_ms=int(time.time() * 1000),
                born_host=_HOST,
                has_keys=has_keys,
            )
            rows += len(messages.bodies)
        return rows


def measure(part: Callable[[], int], rounds: int, broker: OwnBroker | None) -> None:
    """Print the rate of each round, and the CPU of this process and of the broker for a row."""
    for number in range(rounds):
        broker_before = 0.0 if broker is None else broker.usage().cpu_seconds
        began, cpu_before = time.monotonic(), time.process_time()
        rows = part()
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu_before
        shown = f"{cpu * _MILLION / rows:.2f}"
        if broker is not None:
            shown += f", broker {(broker.usage().cpu_seconds - broker_before) * _MILLION / rows:.2f}"
        print(
            f"round {number + 1}: {rows:,} rows, {rows / seconds:,.0f} rows/s, µs of CPU for a row: {shown}",
            flush=True,
        )


def show_functions(part: Callable[[], int], functions: int) -> None:
    """Run one round under cProfile, in the thread that runs the task."""
    profile = cProfile.Profile()
    with profile:
        part()
    pstats.Stats(profile).sort_stats("tottime").print_stats(functions)


def writing(chosen: Namespace, namesrv: str) -> Writing:
    """Return the rows and the settings chosen on the command line."""
    given = dict(pair.split("=", maxsplit=1) for pair in chosen.set)
    options = WriteOptions.for_batch({"rocketmq.namesrv.addr": namesrv, "topic": _TOPIC} | given)
    batches = prepared(chosen.rows, chosen.body_bytes, keys=chosen.keys)
    return Writing(sink_settings(options), batches, itertools.count())


def run_part(chosen: Namespace, part: Callable[[], int], broker: OwnBroker | None = None) -> None:
    """Measure a part, and profile it if wanted."""
    part()  # connections, caches and files
    measure(part, chosen.rounds, broker)
    if chosen.functions:
        show_functions(part, chosen.functions)


async def with_broker(chosen: Namespace) -> None:
    """Write to a broker started for it."""
    settings = dict(pair.split("=", maxsplit=1) for pair in chosen.broker_set)
    async with own_cluster(settings) as (namesrv, broker):

        def write() -> None:
            with Admin(namesrv.address) as admin:
                admin.create_topic(_TOPIC, queues=QUEUES)
            run_part(chosen, writing(chosen, namesrv.address).all, broker)
            producer_pool().close()

        await asyncio.to_thread(write)


def has_caught_up(store: MessageStore) -> bool:
    """Whether the next messages get their entries in the index at once."""
    index = store.index.statistics()
    return index.entries > 0 and index.behind_bytes == 0


async def in_this_process(chosen: Namespace) -> None:
    """Store the requests in a store of this process, whose event loop waits meanwhile."""
    with tempfile.TemporaryDirectory(prefix="rmq-sink-profile-") as folder:
        settings = broker_settings(storePathRootDir=folder)
        store = MessageStore(settings, settings, settings)
        store.open()
        try:
            store.start()
            storing = Storing(store, writing(chosen, "127.0.0.1:9876"))
            storing.store()  # begins the first file of the index
            await until(lambda: has_caught_up(store), timeout_seconds=_CATCH_UP_SECONDS)
            run_part(chosen, storing.store)
            print(f"{store.index.statistics().entries:,} index entries")
        finally:
            await store.stop()
            store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", choices=["all", "encode", "store"], default="all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--functions", type=int, default=0, help="functions of a profile to print (0)")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--body-bytes", type=int, default=128, help="size of the bodies (128)")
    parser.add_argument("--keys", action="store_true", help="rows have a column keys")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="connector option")
    parser.add_argument(
        "--broker-set", action="append", default=[], metavar="KEY=VALUE", help="setting of the started broker"
    )
    chosen = parser.parse_args()
    if chosen.part == "all":
        asyncio.run(with_broker(chosen))
    elif chosen.part == "store":
        asyncio.run(in_this_process(chosen))
    else:
        run_part(chosen, writing(chosen, "127.0.0.1:9876").encode)


if __name__ == "__main__":
    main()
