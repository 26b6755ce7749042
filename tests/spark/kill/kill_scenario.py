"""A name server, two brokers under load, and a job that reads them: kills, and checks of the result."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path

import pyarrow.dataset

from tests.spark.kill.job_files import ReadMark
from tests.spark.kill.load_producer import LoadProducer
from tests.spark.kill.spark_job import JobEnded, SparkJob, Victim
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.waiting import until

_BROKERS = ("broker-a", "broker-b")
_QUEUES = 2
# Maximum number of messages that a producer may be ahead of the job, for each broker.
_MOST_AHEAD = 3000
_WAIT_SECONDS = 180.0  # Spark starts in 5 s on an idle machine
# A read of the job takes some hundred milliseconds.
_READ_SECONDS = 0.2

_TOPIC = "Killed"

Position = tuple[str, int, int]


class BatchPhase(Enum):
    """The phase of a batch in which the driver is killed."""

    BEGUN = "begin"
    READING = "reading"
    # The sink has written the batch, the checkpoint has not committed it.
    WRITTEN = "written"


class KillScenario:
    """Created by `kill_scenario`. A kill counts only if it interrupted the work that it was meant to hit."""

    def __init__(self, producers: list[LoadProducer], job: SparkJob, rng: random.Random) -> None:
        self.producers = {producer.broker.broker_name: producer for producer in producers}
        self.job = job
        self.files = job.files
        self.missed = 0
        self._rng = rng
        self._load_tasks: list[asyncio.Task[None]] = []

    # --- load ---

    def start_load(self) -> None:
        """Start the producers; `check_stream` stops them."""
        for name, producer in self.producers.items():
            self._load_tasks.append(asyncio.create_task(producer.send_while(self._has_room(name))))

    async def close(self) -> None:
        """Stop producers and job at any point."""
        for task in self._load_tasks:
            task.cancel()
        await asyncio.gather(*self._load_tasks, return_exceptions=True)
        self.job.close()

    async def _stop_load(self) -> None:
        """Stop the producers after their sends in flight are answered."""
        for producer in self.producers.values():
            producer.stopping = True
        await asyncio.gather(*self._load_tasks)

    def _has_room(self, broker: str) -> Callable[[int], bool]:
        return lambda acknowledged: acknowledged - self.files.checkpoint.count(broker) < _MOST_AHEAD

    # --- kills ---

    async def kill_worker(self) -> None:
        """Kill a worker that reads. Spark repeats the task, and the batch ends."""
        while not await self.job.kill_worker(mark := await self._read_in_progress()):
            self.missed += 1
        mark.path.unlink()
        await self._until_next_batch()

    async def kill_broker_of_stream(self) -> None:
        """As `kill_broker`, and wait for the next batch."""
        await self.kill_broker()
        await self._until_next_batch()

    async def kill_broker_of_batch(self) -> None:
        """As `kill_broker`; repeat the job if it ended before the kill."""
        while True:
            try:
                await self.kill_broker()
            except JobEnded as ended:
                if ended.code != 0:
                    raise
                self.missed += 1
                self.job.start()
            else:
                return

    async def kill_broker(self) -> None:
        """Kill a broker that is being read from, and restart it on its files."""
        while not await self._kill_broker_of(await self._read_in_progress()):
            self.missed += 1

    async def _kill_broker_of(self, mark: ReadMark) -> bool:
        producer = self.producers[self._rng.choice(mark.brokers)]
        producer.up.clear()
        producer.broker.kill()
        hit = mark.exists
        await producer.broker.start()
        producer.up.set()
        return hit

    async def kill_driver(self, victim: Victim, phase: BatchPhase) -> None:
        """Kill the driver within a batch. The restarted job repeats that batch and finishes another one."""
        while (batch := await self._kill_driver(victim, phase)) is None:
            self.missed += 1
            self.job.start()
        print(f"killed {victim.value} in batch {batch}, {phase.value}")
        before = self.files.notes().count(("begin", batch))
        self.job.start()
        await self._until(lambda: self.files.checkpoint.committed > batch)
        assert self.files.notes().count(("begin", batch)) == before + 1

    async def _kill_driver(self, victim: Victim, phase: BatchPhase) -> int | None:
        """Return the batch in progress, or None if the kill came between two batches."""
        await self._until_phase(phase)
        await self.job.kill_driver(victim)
        self.files.hold.unlink(missing_ok=True)
        for mark in self.files.marks():
            mark.path.unlink()
        planned = self.files.checkpoint.planned
        return planned if planned > self.files.checkpoint.committed else None

    async def _until_phase(self, phase: BatchPhase) -> None:
        before = len(self.files.notes())
        if phase is BatchPhase.READING:
            await self._read_in_progress()
            return
        if phase is BatchPhase.WRITTEN:
            self.files.hold.touch()
        await self._until(lambda: len(notes := self.files.notes()) > before and notes[-1][0] == phase.value)

    async def _read_in_progress(self) -> ReadMark:
        """Return the mark of a worker that reads from one of the brokers, at a random point of its read."""
        broker = self._rng.choice(list(self.producers))
        while True:
            await self._until(lambda: self._marks_of(broker))
            marks = self._marks_of(broker)
            await asyncio.sleep(self._rng.random() * _READ_SECONDS)  # a random point of the read
            if marks := [mark for mark in marks if mark.exists]:
                return self._rng.choice(marks)

    def _marks_of(self, broker: str) -> list[ReadMark]:
        return [mark for mark in self.files.marks() if broker in mark.brokers]

    # --- checks ---

    async def check_stream(self) -> str:
        """Let the job read the rest and stop, and compare its output with the brokers. Return a summary."""
        await self._stop_load()
        ends = {name: await producer.ends() for name, producer in self.producers.items()}
        await self._until(lambda: self.files.checkpoint.offsets() == ends)
        await self.job.stop()
        count = await self.check_output()
        batches = Counter(batch for what, batch in self.files.notes() if what == "begin")
        again = sum(count - 1 for count in batches.values())
        return f"{count} messages in {len(batches)} batches, {again} done again; {self.missed} kills missed"

    async def check_output(self) -> int:
        """Return the number of messages. Raises AssertionError for missing, duplicate or wrong ones."""
        stored: dict[Position, bytes] = {}
        for name, producer in self.producers.items():
            messages, verdict = await producer.stored()
            print(f"{name}: {verdict}")
            assert producer.broker.logged_errors() == []
            stored |= {
                (name, message.queue_id, message.queue_offset): _digest(message.body) for message in messages
            }
        rows = _rows(self.files.output)
        twice = [
            position for position, count in Counter(position for position, _ in rows).items() if count > 1
        ]
        assert not twice, f"{len(twice)} messages are duplicated: {sorted(twice)[:10]}"
        found = dict(rows)
        missing = sorted(stored.keys() - found.keys())
        assert not missing, f"{len(missing)} of {len(stored)} messages are missing: {missing[:10]}"
        strange = sorted(position for position in found if found[position] != stored.get(position))
        assert not strange, f"{len(strange)} messages are not what the broker has: {strange[:10]}"
        return len(found)

    async def _until_next_batch(self) -> None:
        done = self.files.checkpoint.committed
        await self._until(lambda: self.files.checkpoint.committed > done)

    async def _until(self, condition: Callable[[], object]) -> None:
        """As `until`. Raises AssertionError if the job or a producer ends meanwhile."""

        def reached() -> object:
            for task in self._load_tasks:
                if task.done():
                    task.result()
            return self.job.runs() and condition()

        await until(reached, _WAIT_SECONDS)


def _rows(output: Path) -> list[tuple[Position, bytes]]:
    table = pyarrow.dataset.dataset(output, format="parquet").to_table()
    columns = [table[name].to_pylist() for name in ("brokerName", "queueId", "queueOffset", "body")]
    return [
        ((name, queue, offset), _digest(body)) for name, queue, offset, body in zip(*columns, strict=True)
    ]


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=12).digest()


@asynccontextmanager
async def kill_scenario(kind: str, folder: Path, rng: random.Random) -> AsyncIterator[KillScenario]:
    """Start the servers. `kind`: of the job, which is not started yet."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv())
        producers = []
        for name in _BROKERS:
            broker = OwnBroker(namesrv.address, broker_name=name, home=folder / name)
            await stack.enter_async_context(broker)
            producers.append(LoadProducer(broker, _TOPIC, _QUEUES, rng))
            await producers[-1].create_topic()
        job = SparkJob(kind, namesrv.address, _TOPIC, folder)
        scenario = KillScenario(producers, job, rng)
        stack.push_async_callback(scenario.close)
        yield scenario
