"""`make pipeline`: a log processed by a broker and Spark, with a final check that every line was counted.

Starts a broker with a name server and the Spark job, and sends the log. With --faults there are three
brokers. One of them is killed and one retired, and the driver of the job is killed. When the job has read
everything, one line of a later time closes the last minutes. Then the job is stopped, the output is checked,
and a chart is drawn. All files are in the folder --work. The exit code is 0 if all counts match exactly.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import math
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from examples.pipeline.brokers import READY_SECONDS, Brokers, standalone_broker
from examples.pipeline.check import Work
from examples.pipeline.faults import BROKERS, Faults, stored
from examples.pipeline.lines import MINUTE, Tally, log_line
from examples.pipeline.programs import Program, ProgramFailed
from examples.pipeline.spark_cluster import HOST, SparkCluster, environment, java_missing
from examples.pipeline.watch import Watch
from rmq_client import Admin, ClientError, Message, Producer

_QUEUES: Final = 8
_MOST_IN_FLIGHT: Final = 2000
_JOB_READY_SECONDS: Final = 300.0
_WORKER_MEMORY: Final = "1g"
_BROKER_TIMEOUT_SECONDS: Final = 30
# The queues of the retired broker leave the job after its time-out; the last batch then shows it.
_RETIRED_AFTER_SECONDS: Final = _BROKER_TIMEOUT_SECONDS + 15.0
_WATERMARK_MINUTES: Final = 10
# Faults make lines late by the outage of a broker or of the driver, and by the long batch after it.
_FAULTS_WATERMARK_SECONDS: Final = 120.0
# A killed broker takes this long to be read again; its lines must not be late then.
_LEAST_WATERMARK_SECONDS: Final = 30.0
# The clock of the log runs up to this many times faster than on average (`make_log`).
_FASTEST_CLOCK: Final = 1.5
_MARK: Final = ".pipeline"


@dataclass(frozen=True, slots=True)
class Place:
    """The name server and the two topics of this run."""

    namesrv: str
    topic: str
    alerts_topic: str


class Run:
    """One run, step by step."""

    def __init__(self, options: argparse.Namespace, work: Work) -> None:
        self._options = options
        self._work = work
        self._stack = AsyncExitStack()
        # Programs that must not end by themselves.
        self._programs: list[Program] = []
        self._brokers: Brokers | None = None
        self._cluster: SparkCluster | None = None
        self._measured: Program | None = None
        self._job: Program
        self._starts = 0

    async def run(self) -> int:
        """Return the exit code. Raises ProgramFailed, ClientError."""
        async with self._stack:
            place = await self._messaging()
            self._cluster = await self._started_cluster()
            await self._make_log()
            summary = await self._streamed(place)
            print(summary, flush=True)
            return await self._judged(place)

    # --- servers ---

    async def _messaging(self) -> Place:
        """Use the given name server, or start brokers; create the topics."""
        namesrv, suffix = self._options.namesrv, f"-{time.strftime('%Y%m%d-%H%M%S')}"
        if self._options.faults:
            brokers = Brokers(BROKERS, self._work.folder, self._work.logs, self._programs)
            self._brokers = await self._stack.enter_async_context(brokers)
            self._measured, namesrv, suffix = brokers.first, brokers.namesrv, ""
        elif namesrv is None:
            self._measured = standalone_broker(self._work.folder / "store", self._work.logs)
            await self._stack.enter_async_context(self._measured)
            self._programs.append(self._measured)
            namesrv, suffix = (await self._measured.serves(READY_SECONDS))["namesrv"], ""
        place = Place(namesrv, f"access-log{suffix}", f"alerts{suffix}")
        async with Admin(namesrv) as admin:
            for topic in (place.topic, place.alerts_topic):
                await admin.create_topic(topic, queues=_QUEUES, exists_ok=True)
        return place

    async def _started_cluster(self) -> SparkCluster | None:
        if not self._options.workers:
            return None
        folder = self._work.folder / "spark"
        cluster = SparkCluster(self._options.workers, folder, self._work.logs, _WORKER_MEMORY)
        return await self._stack.enter_async_context(cluster)

    # --- stream ---

    async def _make_log(self) -> None:
        options, work = self._options, self._work
        make = ["--lines", str(options.lines), "--hours", str(options.hours)]
        async with self._part("make_log", work.log, *make) as making:
            await making.done()
        print(f"{options.lines:,} lines in {work.log}; waiting for Spark", flush=True)

    async def _streamed(self, place: Place) -> str:
        """Send the log and wait until all of it is read and closed. Return a summary."""
        options, cluster = self._options, self._cluster
        began = time.monotonic()
        await self._start_job(place)
        watch = Watch(self._work, self._programs, self._measured, options.tell_every)
        sending = time.monotonic()
        await self._send(place, watch)
        reading = time.monotonic() - sending
        await self._close_the_last_minute(place, watch)
        workers = f"{await cluster.at_work()} of {options.workers} workers at work, " if cluster else ""
        self._programs.remove(self._job)
        await self._job.stop()
        await self._job.done()
        return (
            f"{options.lines:,} lines sent and read in {reading:.1f} s ({options.lines / reading:,.0f}/s), "
            f"{workers}{watch}; total {time.monotonic() - began:.0f} s"
        )

    async def _send(self, place: Place, watch: Watch) -> None:
        """Send the log, and wait until the job has read everything that brokers have stored."""
        retired = 0
        async with self._replay(place) as replay:
            if self._brokers is None:
                await watch.until(lambda: not replay.running)
            else:
                faults = Faults(
                    self._brokers,
                    place.topic,
                    watch,
                    lambda within: self._restart_job(place, within),
                    self._work.checkpoint,
                )
                await self._with_faults(faults, replay, watch)
                retired = faults.retired
            await replay.done()
        async with Admin(place.namesrv) as admin:
            # A line may be stored twice: the producer repeats a send whose response a killed broker did not
            # send.
            whole = retired + await stored(admin, place.topic)
        await watch.until(lambda: watch.read >= whole)

    async def _with_faults(self, faults: Faults, replay: Program, watch: Watch) -> None:
        """Wait until the log is sent, all faults have come, and the retired broker's queues may leave."""
        task = asyncio.create_task(faults.run(self._options.lines, lambda: replay.running))
        try:
            await watch.until(lambda: task.done() and (not replay.running or task.exception() is not None))
            await task
        finally:
            task.cancel()
        rest = (faults.retired_at or 0) + _RETIRED_AFTER_SECONDS - time.monotonic()
        if rest > 0:
            await asyncio.sleep(rest)

    # --- job ---

    async def _start_job(self, place: Place) -> None:
        self._starts += 1
        job = await self._stack.enter_async_context(self._new_job(place))
        self._job = job
        self._programs.append(job)
        await job.says("ready", _JOB_READY_SECONDS)

    async def _restart_job(self, place: Place, within: Callable[[], Awaitable[None]]) -> None:
        """Kill the driver at the moment that `within` waits for, and start it again."""
        await within()
        self._programs.remove(self._job)
        await self._job.kill()
        print("fault: driver killed", flush=True)
        await self._start_job(place)
        print("fault: driver is back", flush=True)

    async def _close_the_last_minute(self, place: Place, watch: Watch) -> None:
        """Close the last minutes: send a line that is later by the watermark.

        Spark emits a minute only then. The line is sent after everything else has been read: queues are read
        in parallel, and such a late line in one queue would make unread lines of other queues too late.
        """
        end = Tally.load(self._work.tally).last_minute + MINUTE
        later = end + timedelta(minutes=self._options.watermark_minutes + 1)
        line = log_line(later, HOST, "GET /end-of-the-log HTTP/1.1", 200, 0, "pipeline")
        async with Producer(place.namesrv, group="access-log-end") as producer:
            await producer.send(Message(place.topic, line.encode()))
        await watch.until(lambda: watch.watermark is not None and watch.watermark >= end)

    def _new_job(self, place: Place) -> Program:
        options, work, cluster = self._options, self._work, self._cluster
        command: list[str | Path] = [sys.executable, Path(__file__).with_name("job.py")]
        command += ["--namesrv", place.namesrv, "--topic", place.topic, "--alerts-topic", place.alerts_topic]
        command += ["--output", work.aggregates.resolve().as_uri()]
        command += ["--checkpoint", work.checkpoint.resolve().as_uri()]
        command += ["--progress", work.job_progress, "--watermark", f"{options.watermark_minutes} minutes"]
        command += ["--master", cluster.url if cluster else options.master]
        if cluster or options.master.startswith("local"):
            command += ["--conf", f"spark.driver.host={HOST}", "--conf", f"spark.driver.bindAddress={HOST}"]
        if cluster:
            command += ["--conf", f"spark.executor.memory={_WORKER_MEMORY}"]
        if options.faults:
            command += ["--deduplicate", "--broker-timeout", f"{_BROKER_TIMEOUT_SECONDS}s"]
            # A limit is distributed in proportion to the backlogs. The queues of a retired broker, which get
            # no more lines, would then be read to their end long after newer lines of other queues.
            command += ["--max-lines", str(2 * options.lines)]
        name = "job" if self._starts == 1 else f"job {self._starts}"
        return Program(name, command, work.logs, environment())

    def _replay(self, place: Place) -> Program:
        options, work = self._options, self._work
        # Lines sent concurrently may be stored and read in another order, by far less than the watermark
        # allows.
        in_flight = min(_MOST_IN_FLIGHT, max(1, options.lines // 100))
        return self._part(
            "replay",
            place.namesrv,
            work.log,
            *("--topic", place.topic, "--rate", str(options.rate), "--in-flight", str(in_flight)),
            *("--progress", work.replay_progress, "--tally", work.tally),
        )

    # --- results ---

    async def _judged(self, place: Place) -> int:
        """Check and draw the chart; return the exit code."""
        work = self._work
        async with self._part("chart", work.folder) as chart:
            await chart.done()
        print(f"chart: {work.chart}", flush=True)
        alerts = ("--namesrv", place.namesrv, "--alerts-topic", place.alerts_topic)
        async with self._part("check", work.folder, *alerts) as check:
            code = await check.ended()
        print(check.printed(), end="", flush=True)
        return code

    def _part(self, name: str, *arguments: str | Path) -> Program:
        """Return a program of this package."""
        command = [sys.executable, "-m", f"examples.pipeline.{name}", *arguments]
        return Program(name, command, self._work.logs)


def fresh(folder: Path) -> Work:
    """Create the folder, or clear it. Raises ProgramFailed if it has files of other origin."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARK).exists():
            raise ProgramFailed(
                f"{folder} has files that no earlier run created: choose another folder with --work"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return Work(folder)


def missing() -> str | None:
    """Return the missing requirement of this machine, or None."""
    for module in ("matplotlib", "pyarrow", "pyspark"):
        if importlib.util.find_spec(module) is None:
            return (
                f"{module} is not installed: pip install 'rmq[broker,spark,pipeline]', or use `make pipeline`"
            )
    return java_missing()


def usual_watermark_minutes(options: argparse.Namespace) -> int:
    """Return the watermark of a run for which none was given: at most the whole log."""
    if not options.faults:
        return _WATERMARK_MINUTES
    log_minutes = float(options.hours) * 60
    share = math.inf
    if options.rate:
        share = _FASTEST_CLOCK * _FAULTS_WATERMARK_SECONDS * options.rate / options.lines
    return max(_WATERMARK_MINUTES, math.ceil(min(share * log_minutes, log_minutes + 1)))


def watermark_seconds(options: argparse.Namespace) -> float:
    """Return how long the replay sends the lines of one watermark; infinite if that is the whole log.

    Infinite without --rate, too, because the time is then unknown.
    """
    share = options.watermark_minutes / (options.hours * 60)
    if share >= 1 or not options.rate:
        return math.inf
    return float(share * options.lines / options.rate)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--lines", type=int, default=1_000_000, help="lines in the log; default: %(default)s")
    add("--hours", type=float, default=2.0, help="time span of the log; default: %(default)s")
    add("--rate", type=float, default=0.0, help="lines sent per second; default: unlimited")
    add("--master", default="local[2]", help="Spark master; default: %(default)s")
    add(
        "--workers",
        type=int,
        default=0,
        help="start a standalone cluster with this number of workers, and use it",
    )
    add(
        "--faults",
        action="store_true",
        help="three brokers: one is killed, the driver is killed, one broker is retired",
    )
    add("--namesrv", metavar="HOST:PORT", help="use this cluster; default: start a broker")
    add(
        "--watermark-minutes",
        type=int,
        help=f"maximum delay of a line; default: {_WATERMARK_MINUTES}, and with --faults the minutes of the "
        f"log that are sent in {_FAULTS_WATERMARK_SECONDS:g} s",
    )
    add(
        "--work", type=Path, default=Path("build/pipeline"), help="folder for all files; default: %(default)s"
    )
    add("--tell-every", type=float, default=2.0, metavar="SECONDS", help="default: %(default)s")
    options = parser.parse_args()
    if options.lines < 1 or options.rate < 0 or options.hours <= 0 or options.workers < 0:
        parser.error("--lines and --hours must be above 0, --rate and --workers at least 0")
    if options.watermark_minutes is None:
        options.watermark_minutes = usual_watermark_minutes(options)
    if options.watermark_minutes < 1:
        parser.error("--watermark-minutes must be at least 1")
    if options.faults and options.namesrv:
        parser.error("--faults starts brokers of its own: leave out --namesrv")
    if options.faults and (seconds := watermark_seconds(options)) < _LEAST_WATERMARK_SECONDS:
        parser.error(
            f"with --faults the watermark must be {_LEAST_WATERMARK_SECONDS:g} s of the run at least, and it "
            f"is {seconds:.0f} s: raise --watermark-minutes or --lines, or lower --rate or --hours"
        )
    return options


async def _run(options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await Run(options, fresh(options.work)).run()


def main() -> int:
    options = arguments()
    if (lack := missing()) is not None:
        print(lack, file=sys.stderr)
        return 1
    try:
        return asyncio.run(_run(options))
    except (ProgramFailed, ClientError) as error:
        print(error, file=sys.stderr)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("stopped", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
