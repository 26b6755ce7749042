"""The load program with Apache's Java client: one call is one measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from tests.support.jvm import java_command
from tests.support.processes import Usage
from tests.support.running import RunningProgram
from tests.support.toolchain import JavaProgram

# A fixed heap, so that the client's garbage collection is the same in every round.
CLIENT_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
# Before each measurement by a kept load program: its new clients connect and fetch routes.
WARM_UP_SECONDS: Final = 1
# Time beyond the load itself: start of the JVM, creation of the topic.
_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a measurement: `values` is the result line of bench.Main; CPU is that of the counted time."""

    values: dict[str, Any]
    server_cpu_seconds: float | None = None
    client_rss_bytes: int | None = None

    @property
    def messages(self) -> int:
        return int(self.values["messages"] if "messages" in self.values else self.values["count"])

    @property
    def messages_per_second(self) -> float:
        return float(self.values["messagesPerSecond"])

    @property
    def median_micros(self) -> float:
        """Median latency of a request in µs; KeyError for fill and drain, which have none."""
        return float(self.values["medianMicros"])

    @property
    def p99_micros(self) -> float:
        return float(self.values["p99Micros"])

    @property
    def errors(self) -> int:
        return int(self.values.get("errors", 0))

    @property
    def server_cpu_micros_per_message(self) -> float | None:
        if self.server_cpu_seconds is None or not self.messages:
            return None
        return self.server_cpu_seconds * 1e6 / self.messages


class LoadClient:
    """Runs bench.Main against the name server at `namesrv`, of any broker. `home` holds the client's logs."""

    def __init__(
        self,
        program: JavaProgram,
        namesrv: str,
        home: Path,
        *,
        header: str = "ROCKETMQ",
        jvm_options: Sequence[str] = CLIENT_JVM,
        keep_running: bool = False,
    ) -> None:
        """`header`: JSON or ROCKETMQ, the header serialization of its requests.

        `keep_running`: one process runs all measurements until `close`, so that its code stays compiled. It
        starts new clients for each of them. By default, each measurement starts a process.
        """
        self._program = program
        self._namesrv = namesrv
        self._home = home
        self._header = header
        self._jvm_options = tuple(jvm_options)
        self._keep_running = keep_running
        self._kept: RunningProgram | None = None
        home.mkdir(parents=True, exist_ok=True)

    async def sync(
        self,
        topic: str,
        *,
        threads: int = 64,
        size: int = 128,
        seconds: int = 10,
        warmup_s: int = 5,
        topics: int = 0,
        queues: int = 8,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        """Send synchronously. `server` reads the broker's usage at the begin and the end of the counted time.

        With `topics`, the sends rotate over this number of topics, `<topic>-0` and so on, with `queues`
        queues each.
        """
        options = {"topic": topic, "topics": topics, "queues": queues, "threads": threads, "size": size}
        return await self._timed("sync", options, seconds, warmup_s, server)

    async def one_thread(
        self,
        topic: str,
        *,
        size: int = 128,
        seconds: int = 10,
        warmup_s: int = 5,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        return await self._timed("oneThread", {"topic": topic, "size": size}, seconds, warmup_s, server)

    async def asynchronous(
        self,
        topic: str,
        *,
        inflight: int = 2000,
        size: int = 128,
        seconds: int = 10,
        warmup_s: int = 5,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        options = {"topic": topic, "inflight": inflight, "size": size}
        return await self._timed("async", options, seconds, warmup_s, server)

    async def batch(
        self,
        topic: str,
        *,
        threads: int = 8,
        batch: int = 32,
        size: int = 128,
        seconds: int = 10,
        warmup_s: int = 5,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        options = {"topic": topic, "threads": threads, "batch": batch, "size": size}
        return await self._timed("batch", options, seconds, warmup_s, server)

    async def transactions(
        self,
        topic: str,
        *,
        threads: int = 32,
        size: int = 128,
        seconds: int = 10,
        warmup_s: int = 5,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        """Send messages in transactions, each committed at once."""
        options = {"topic": topic, "threads": threads, "size": size}
        return await self._timed("transactions", options, seconds, warmup_s, server)

    async def latency(
        self,
        topic: str,
        *,
        rate: int = 5000,
        size: int = 1024,
        seconds: int = 10,
        warmup_s: int = 20,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        """Measure from the due time of a send until a listener has the message. `rate`: sends per s."""
        options = {"topic": topic, "rate": rate, "size": size}
        return await self._timed("latency", options, seconds, warmup_s, server)

    async def fill(
        self,
        topic: str,
        count: int = 2_000_000,
        *,
        size: int = 128,
        kinds: int = 0,
        timeout_s: float = 300,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        """Put exactly `count` messages into the topic.

        With `kinds`, tags and the property kind rotate: kind0 and kind=0, kind1 and kind=1, and so on.
        """
        options = {"topic": topic, "count": count, "size": size, "kinds": kinds}
        return await self._run("fill", options, timeout_s, server)

    async def drain(
        self,
        topic: str,
        count: int = 2_000_000,
        *,
        of: int | None = None,
        tags: str | None = None,
        sql: str | None = None,
        pop: bool = False,
        threads: int = 20,
        timeout_s: float = 300,
        server: Callable[[], Usage] | None = None,
    ) -> LoadResult:
        """Read `count` messages with a push consumer of a new group.

        With `tags` or `sql`, these match the filter among the `of` messages in the topic. `pop`: by POP,
        which must be the broker's mode for the group. `messages_per_second` counts all messages in the
        topic, from the first to the last one read. `values` also counts from the start of the consumer
        (messagesPerSecondFromStart).
        """
        options: dict[str, object] = {
            "topic": topic,
            "count": count,
            "of": count if of is None else of,
            "pop": str(pop).lower(),
            "threads": threads,
            "timeoutSeconds": int(timeout_s),
        }
        if tags is not None:
            options["tags"] = tags
        if sql is not None:
            options["sql"] = sql
        return await self._run("drain", options, timeout_s, server)

    async def join(
        self, topic: str, group: str, *, queues: int, joins: int, warm_up_joins: int, timeout_s: float = 300
    ) -> LoadResult:
        """Let a second push consumer join a group on a topic with traffic and leave it, `joins` times.

        `values` has the median times until its first message (firstMillis), and until it had a message of
        each queue of its half (allMillis).
        """
        options: dict[str, object] = {
            "topic": topic,
            "group": group,
            "queues": queues,
            "joins": joins,
            "warmupJoins": warm_up_joins,
        }
        return await self._run("join", options, timeout_s, None)

    async def faults(
        self,
        topic: str,
        fault: Callable[[], Awaitable[None]],
        *,
        queues: int,
        rate: int,
        size: int = 1024,
        tolerance: bool,
        seconds: int,
        warmup_s: int,
    ) -> LoadResult:
        """Send at a rate; `fault` happens after the warm-up. A body begins with its number and a colon.

        `values` has the number of `sent` messages, the `failed` ones, and median latencies: of the second
        half of the warm-up (medianMillisBefore) and of each second since the fault (medianMillis).
        """
        options: dict[str, object] = {
            "topic": topic,
            "queues": queues,
            "rate": rate,
            "size": size,
            "tolerance": str(tolerance).lower(),
            "seconds": seconds,
            "warmupSeconds": warmup_s,
        }
        return await self._run("faults", options, seconds + warmup_s, None, fault)

    async def _timed(
        self,
        load: str,
        options: dict[str, object],
        seconds: int,
        warmup_s: int,
        server: Callable[[], Usage] | None,
    ) -> LoadResult:
        all_options = {**options, "seconds": seconds, "warmupSeconds": warmup_s}
        return await self._run(load, all_options, seconds + warmup_s, server)

    async def _run(
        self,
        load: str,
        options: dict[str, object],
        timeout_s: float,
        server: Callable[[], Usage] | None,
        when_measuring: Callable[[], Awaitable[None]] | None = None,
    ) -> LoadResult:
        words = [load, "--namesrv", self._namesrv]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        limit_s = timeout_s + _GRACE_SECONDS
        program = self._program_for(words)
        try:
            run = len(program.named("result")) + 1
            if self._keep_running:
                program.write_line(json.dumps(words))
            await program.wait_for("measuring", run, timeout_s=limit_s)
            before = server() if server is not None else None
            if when_measuring is not None:
                await when_measuring()
            await program.wait_for("measured", run, timeout_s=limit_s)
            after = server() if server is not None else None
            client_rss_bytes = Usage.of(program.pid).rss_bytes
            values = (await program.wait_for("result", run, timeout_s=limit_s))[-1]
            if not values["ok"]:
                raise RuntimeError(f"load {load} failed: {values['message']}")
        except BaseException:
            self._kept = None
            program.kill()
            raise
        if not self._keep_running:
            program.kill()
        result = LoadResult(values=values, client_rss_bytes=client_rss_bytes)
        if before is None or after is None:
            return result
        return replace(result, server_cpu_seconds=after.cpu_seconds - before.cpu_seconds)

    def _program_for(self, words: Sequence[str]) -> RunningProgram:
        """Return the process that runs this load: the kept one, or a new one."""
        if self._kept is not None:
            return self._kept
        command = java_command(
            self._program,
            "bench.Main",
            () if self._keep_running else words,
            home=self._home,
            jvm_options=self._jvm_options,
            properties={"rocketmq.serialize.type": self._header},
        )
        program = RunningProgram(command, self._home / "stderr.log", dict(os.environ))
        if self._keep_running:
            self._kept = program
        return program

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the kept process, if there is one."""
        if self._kept is not None:
            self._kept.kill()
            self._kept = None
