"""Thousands of hostile connections to a broker for RMQ_HOSTILE_SECONDS (600): `make soak-hostile`.

At the same time: 10,000 idle connections, 1,000 slow senders, 1,000 slow readers, and 100 connections opened
and dropped per second (`tests/crash/hostile_load.py` says what each does). RMQ_HOSTILE_IDLE,
RMQ_HOSTILE_SENDERS, RMQ_HOSTILE_READERS and RMQ_HOSTILE_DROPS change the numbers. With too few open files for
them, all are scaled down, and a line says so. An honest producer and an honest consumer use our SDK
meanwhile.

A second broker, which has the same honest clients and no hostile connections, is the control. Both are
measured at the same time. So the noise of the machine and the CPU of the hostile process, which on real
networks hostile peers bring themselves, meet both brokers alike. Alone turns, without hostile connections,
alternate with hostile ones and show how equal the two brokers are. Only hostile turns count for
RMQ_HOSTILE_SECONDS. Opening the connections takes some seconds at 1,000 a second, and is not measured.

Two figures are bounded:

- Throughput: that of the attacked broker divided by that of the control in hostile turns, in relation to the
  same quotient in alone turns.
- CPU that the attacked broker spends on hostile connections: its CPU in hostile turns, less that of as many
  honest sends on the control. On two cores the honest clients need more CPU than a broker, so that the broker
  is not at its limit, and the throughput alone would hide this cost. The rest of a CPU is left for the honest
  clients of a broker at its limit. CPU of the kernel counts as far as the broker's threads spend it.

The program fails if

- the throughput is below 80 %, of messages sent or received,
- the hostile connections took more than 20 % of a CPU of the broker,
- a send of an honest client failed, or an acknowledged message was not received,
- memory, descriptors or threads of a daemon grew during the hostile turns, or its memory exceeds a bound,
- a daemon ended, or logged an error,
- fewer than 95 % of the idle connections were open.

It prints the figures, and its exit code is 0 if the broker passed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from tests.crash.growth import growth
from tests.crash.honest_load import HonestLoad, Progress
from tests.crash.hostile_load import Counts, State
from tests.support.broker_requests import create_topic, send, sent, succeeded
from tests.support.own_servers import OwnBroker, OwnNamesrv
from tests.support.raw_client import raw_client

_MIB: Final = 1 << 20
_PROJECT: Final = Path(__file__).resolve().parents[2]
_LARGE_TOPIC: Final = "Large"
_LARGE_BYTES: Final = 60 * 1024
_LARGE_MESSAGES: Final = 32
# Descriptors of the broker and of the hostile process beside the hostile connections, the broker's reserve of
# 256 included.
_OTHER_FILES: Final = 600
_LONGEST_TURN_SECONDS: Final = 150.0
_LEAST_CYCLES: Final = 2
_BASE_TURN_SHARE: Final = 1 / 2
_LONGEST_BASE_SECONDS: Final = 40.0
_SETTLE_SECONDS: Final = 90.0
_AFTER_SETTLED_SECONDS: Final = 2.0
_SAMPLE_SECONDS: Final = 2.0
_SHOWN_SAMPLES: Final = 10
_LEAST_THROUGHPUT: Final = 0.8
_MOST_HOSTILE_CPU: Final = 0.2  # of one CPU
_LEAST_IDLE: Final = 0.95
# The broker needs 100 MiB with these connections, and holds at most 256 MiB for peers that do not read. The
# allocator keeps some more.
_MOST_MEMORY: Final = 768 * _MIB
_SLACK: Final = {"memory": 16 * _MIB, "descriptors": 64, "threads": 4}


@dataclass(frozen=True, slots=True)
class Plan:
    """Size and duration of the load. `is_timed` is false in short runs, whose figures would be noise."""

    counts: Counts
    seconds: float
    in_flight: int = 8
    is_timed: bool = True

    @property
    def cycles(self) -> int:
        """Number of turns of each kind."""
        return max(_LEAST_CYCLES, round(self.seconds / _LONGEST_TURN_SECONDS)) if self.is_timed else 1

    @property
    def hostile_seconds(self) -> float:
        """Duration of a hostile turn."""
        return self.seconds / self.cycles

    @property
    def base_seconds(self) -> float:
        """Duration of an alone turn."""
        return min(_LONGEST_BASE_SECONDS, self.hostile_seconds * _BASE_TURN_SHARE)


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources of a daemon at a time."""

    memory: int  # anonymous, bytes
    descriptors: int
    threads: int


@dataclass(slots=True)
class Work:
    """What honest clients and their broker did in some time."""

    seconds: float
    sent: int
    received: int
    latencies: list[float]  # seconds, sorted
    cpu_seconds: float  # of the broker

    def __str__(self) -> str:
        return (
            f"sent {self.sent / self.seconds:6,.0f}/s  received {self.received / self.seconds:6,.0f}/s  "
            f"p50 {self._quantile(50):5.1f} ms  p99 {self._quantile(99):6.1f} ms  "
            f"CPU {self.cpu_seconds / self.seconds:4.0%}, {self.cpu_per_send * 1e6:4.0f} us per send"
        )

    @property
    def cpu_per_send(self) -> float:
        """Seconds of the broker's CPU."""
        return self.cpu_seconds / max(1, self.sent)

    def _quantile(self, percent: int) -> float:
        return self.latencies[len(self.latencies) * percent // 100] * 1000 if self.latencies else 0.0


def total(works: Sequence[Work]) -> Work:
    """Return the sum of several times."""
    return Work(
        sum(work.seconds for work in works),
        sum(work.sent for work in works),
        sum(work.received for work in works),
        sorted(latency for work in works for latency in work.latencies),
        sum(work.cpu_seconds for work in works),
    )


@dataclass(slots=True)
class Side:
    """A broker and its honest clients."""

    name: str
    broker: OwnBroker
    honest: HonestLoad
    works: dict[str, list[Work]] = field(default_factory=lambda: {"alone": [], "hostile": []})
    _before: tuple[Progress, float] = field(default=(Progress(0.0, 0, 0), 0.0))

    def begin(self) -> None:
        """Begin to measure."""
        self.honest.take_latencies()
        self._before = self.honest.progress, self.broker.usage().cpu_seconds

    def end(self, kind: str) -> None:
        """Keep and print the figures since `begin`."""
        before, cpu_seconds = self._before
        after = self.honest.progress
        work = Work(
            after.at - before.at,
            after.sent - before.sent,
            after.received - before.received,
            self.honest.take_latencies(),
            self.broker.usage().cpu_seconds - cpu_seconds,
        )
        self.works[kind].append(work)
        print(f"{kind:8s} {work.seconds:4.0f} s  {self.name:8s} {work}", flush=True)


class HostileProcess:
    """The process of the hostile connections, and its latest state."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.state = State()
        self._process = process
        self._changed = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def set_mode(self, command: str, timeout_seconds: float) -> None:
        """Give a command, and wait until it is carried out."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self.state.is_settled = False
        async with asyncio.timeout(timeout_seconds), self._changed:
            await self._changed.wait_for(lambda: self.state.mode == command and self.state.is_settled)

    async def next_state(self) -> State:
        """Wait for the next state."""
        async with self._changed:
            await self._changed.wait()
        return self.state

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._changed:
                self.state = State(**json.loads(line))
                self._changed.notify_all()

    async def close(self) -> None:
        """End the process."""
        self._reader.cancel()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def hostile_process(port: int, counts: Counts) -> AsyncIterator[HostileProcess]:
    """Start the process of the hostile connections, without any yet."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.crash.hostile_load",
        str(port),
        _LARGE_TOPIC,
        json.dumps(asdict(counts)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=_PROJECT,
    )
    hostile = HostileProcess(process)
    try:
        yield hostile
    finally:
        await hostile.close()


@dataclass(slots=True)
class Soak:
    """A run: its daemons, loads, turns and samples."""

    plan: Plan
    namesrv: OwnNamesrv
    attacked: Side
    control: Side
    hostile: HostileProcess
    samples: dict[str, list[Sample]] = field(default_factory=lambda: {"broker": [], "namesrv": []})
    least_idle: int = sys.maxsize

    async def run(self) -> None:
        """Run all turns."""
        for _ in range(self.plan.cycles):
            if self.plan.is_timed:
                await self.hostile.set_mode("rest", _SETTLE_SECONDS)
                await self._turn("alone", self.plan.base_seconds)
            await self.hostile.set_mode("attack", _SETTLE_SECONDS)
            await self._turn("hostile", self.plan.hostile_seconds)

    async def _turn(self, kind: str, seconds: float) -> None:
        await asyncio.sleep(_AFTER_SETTLED_SECONDS)
        for side in (self.attacked, self.control):
            side.begin()
        cpu_seconds = (await self.hostile.next_state()).cpu_seconds
        until = time.monotonic() + seconds
        for number in itertools.count():
            if (rest := until - time.monotonic()) <= 0:
                break
            if kind == "hostile":
                await self._sample(is_shown=number % _SHOWN_SAMPLES == 0)
            await asyncio.sleep(min(rest, _SAMPLE_SECONDS))
        for side in (self.attacked, self.control):
            side.end(kind)
        cpu_seconds = (await self.hostile.next_state()).cpu_seconds - cpu_seconds
        print(f"{kind:8s} {seconds:4.0f} s  hostile process: CPU {cpu_seconds / seconds:.0%}", flush=True)

    async def _sample(self, *, is_shown: bool) -> None:
        for server in (self.attacked.broker, self.namesrv):
            self.samples[server.name].append(await asyncio.to_thread(_sample, server))
        state = self.hostile.state
        self.least_idle = min(self.least_idle, state.idle)
        if is_shown:
            sample = self.samples["broker"][-1]
            print(
                f"         broker: {sample.memory / _MIB:.1f} MiB, {sample.descriptors} descriptors, "
                f"{sample.threads} threads; open: {state.idle} idle, {state.slow_senders} slow senders, "
                f"{state.slow_readers} slow readers; so far {state.dropped} dropped, "
                f"{state.closed_by_broker} closed by the broker, {state.failed} failed; "
                f"kernel: {_kernel_sockets()}",
                flush=True,
            )

    def problems(self) -> list[str]:
        """Return the bounds that do not hold, and print the figures."""
        found = [
            f"{side.name}: a send failed: {failure}"
            for side in (self.attacked, self.control)
            for failure in side.honest.failures[:10]
        ]
        if self.plan.is_timed:
            found += self._slower()
        if self.least_idle < (wanted := self.plan.counts.idle * _LEAST_IDLE):
            found.append(f"only {self.least_idle} idle connections were open, the least is {wanted:.0f}")
        for name, samples in self.samples.items():
            for measure, slack in _SLACK.items():
                values = [getattr(sample, measure) for sample in samples]
                if problem := growth(f"{name}: {measure}", values, slack):
                    found.append(problem)
            if (most := max(sample.memory for sample in samples)) > _MOST_MEMORY:
                found.append(
                    f"{name}: memory {most / _MIB:.0f} MiB, the bound is {_MOST_MEMORY / _MIB:.0f} MiB"
                )
        return found

    def _slower(self) -> list[str]:
        totals = {
            kind: (total(self.attacked.works[kind]), total(self.control.works[kind]))
            for kind in ("alone", "hostile")
        }
        for kind, works in totals.items():
            for side, work in zip((self.attacked, self.control), works, strict=True):
                print(f"in all: {kind:8s} {side.name:8s} {work}")
        found = []
        for name in ("sent", "received"):
            alone, hostile = (
                getattr(attacked, name) / getattr(control, name) for attacked, control in totals.values()
            )
            share = hostile / alone
            print(
                f"throughput, {name}: {share:.1%} of what it was; attacked to control {alone:.1%} in alone "
                f"turns, {hostile:.1%} in hostile turns"
            )
            if share < _LEAST_THROUGHPUT:
                found.append(
                    f"messages {name}: {share:.0%} of what it was, the least is {_LEAST_THROUGHPUT:.0%}"
                )
        attacked, control = totals["hostile"]
        share = (attacked.cpu_seconds - attacked.sent * control.cpu_per_send) / attacked.seconds
        print(f"CPU of the broker for the hostile connections: {share:.1%} of one")
        if share > _MOST_HOSTILE_CPU:
            found.append(
                f"the hostile connections took {share:.0%} of a CPU of the broker, the bound is "
                f"{_MOST_HOSTILE_CPU:.0%}"
            )
        return found


def _sample(server: OwnBroker | OwnNamesrv) -> Sample:
    process = Path(f"/proc/{server.process.pid}")
    return Sample(
        server.usage().anonymous_bytes,
        sum(1 for _ in os.scandir(process / "fd")),
        sum(1 for _ in os.scandir(process / "task")),
    )


def _kernel_sockets() -> str:
    lines = Path("/proc/net/sockstat").read_text().splitlines()
    words = next(line for line in lines if line.startswith("TCP:")).split()
    figures = dict(zip(words[1::2], words[2::2], strict=True))
    pages = int(figures["mem"]) * resource.getpagesize() / _MIB
    return f"{figures['orphan']} orphaned sockets, {pages:.0f} MiB"


async def soak(plan: Plan, home: Path) -> list[str]:
    """Run the load; return the problems, one line each."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(OwnNamesrv(home=home / "namesrv"))
        sides = [await _side(stack, name, namesrv, home, plan.in_flight) for name in ("attacked", "control")]
        async with hostile_process(sides[0].broker.port, plan.counts) as hostile:
            run = Soak(plan, namesrv, sides[0], sides[1], hostile)
            await run.run()
            problems = run.problems()
        for side in sides:
            problems += [f"{side.name}: {problem}" for problem in await side.honest.stop_and_check()]
            print(
                f"{side.name}: {side.honest.progress.sent:,d} honest messages were acknowledged, "
                f"{side.honest.duplicates:,d} were received twice"
            )
            await side.honest.close()
        for server in (*(side.broker for side in sides), namesrv):
            if server.process.exit_code is not None:
                return [*problems, f"the {server.name} has ended: {server.process.log_tail()}"]
            await server.stop()
            problems += [f"the {server.name} logged: {line}" for line in server.logged_errors()[:20]]
    return problems


async def _side(stack: AsyncExitStack, name: str, namesrv: OwnNamesrv, home: Path, in_flight: int) -> Side:
    broker = await stack.enter_async_context(OwnBroker(namesrv.address, broker_name=name, home=home / name))
    topic = f"Honest-{name}"
    async with raw_client(broker.port) as client:
        for each in (topic, _LARGE_TOPIC):
            succeeded(await client.ask(create_topic(each)))
        for _ in range(_LARGE_MESSAGES):
            sent(await client.ask(send(_LARGE_TOPIC, os.urandom(_LARGE_BYTES))))
    honest = await stack.enter_async_context(HonestLoad(namesrv.address, topic, in_flight))
    return Side(name, broker, honest)


def counts_within(counts: Counts, open_files: int) -> Counts:
    """Return the counts, reduced in proportion if a process may not open enough files."""
    most = open_files - _OTHER_FILES
    if counts.kept <= most:
        return counts
    share = most / counts.kept
    print(
        f"scaled down to {share:.0%}: {counts.kept} connections need "
        f"`ulimit -n {counts.kept + _OTHER_FILES}`, the hard limit is {open_files}"
    )
    return Counts(
        int(counts.idle * share),
        int(counts.slow_senders * share),
        int(counts.slow_readers * share),
        counts.dropped_per_second,
    )


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"RMQ_HOSTILE_{name}", default))


def raise_open_files() -> int:
    """Raise the limit of open files of this process and its children to the most allowed; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> int:
    """Run the command; return its exit code."""
    wanted = Counts(
        _number("IDLE", 10_000), _number("SENDERS", 1_000), _number("READERS", 1_000), _number("DROPS", 100)
    )
    plan = Plan(counts_within(wanted, raise_open_files()), _number("SECONDS", 600))
    print(f"{plan.counts}, {plan.cycles} hostile turns of {plan.hostile_seconds:.0f} s")
    with (
        tempfile.TemporaryDirectory(prefix="hostile-") as home,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        problems = runner.run(soak(plan, Path(home)))
    print("\n".join(problems) or "passed: honest clients were served, nothing is lost, and nothing has grown")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
