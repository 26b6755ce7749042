"""A standalone Spark cluster on this machine: a master and workers, as processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import pyspark

from examples.pipeline.programs import Program, ProgramFailed
from rmq_testing.ports import free_port

HOST: Final = "127.0.0.1"
_READY_SECONDS: Final = 180.0
_ANSWER_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.1


def environment() -> Mapping[str, str]:
    """Environment of all Spark programs. PySpark's package contains Spark; tasks need this interpreter for
    the connector.
    """
    return {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        # Master and workers need little memory themselves.
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # By default, Spark silently uses the next port if one is taken.
        "SPARK_MASTER_OPTS": "-Dspark.port.maxRetries=0",
    }


class SparkCluster:
    """`async with SparkCluster(workers, folder, logs) as cluster`: `cluster.url` is the master for jobs.

    A worker has one core, and `memory` for its executor.
    """

    def __init__(self, workers: int, folder: Path, logs: Path, memory: str) -> None:
        self._workers = workers
        self._folder = folder
        self._logs = logs
        self._memory = memory
        self._stack = AsyncExitStack()
        self.url = f"spark://{HOST}:{free_port()}"
        self._page = free_port()

    async def __aenter__(self) -> Self:
        async with self._stack:
            port = self.url.rpartition(":")[2]
            master = ("--host", HOST, "--port", port, "--webui-port", str(self._page))
            programs = [await self._start("Spark master", "master.Master", *master)]
            for number in range(1, self._workers + 1):
                worker = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", self._memory)
                work = ("--work-dir", str(self._folder / f"worker-{number}"))
                name = f"Spark worker {number}"
                programs.append(await self._start(name, "worker.Worker", *worker, *work, self.url))
            await self._registered(programs)
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, name: str, kind: str, *arguments: str) -> Program:
        starter = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command: list[str | Path] = ["bash", starter, f"org.apache.spark.deploy.{kind}", *arguments]
        return await self._stack.enter_async_context(Program(name, command, self._logs, environment()))

    async def _registered(self, programs: list[Program]) -> None:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while len(await self._alive()) < self._workers:
                    for program in programs:
                        program.must_run()
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise ProgramFailed(
                f"not all Spark workers registered within {_READY_SECONDS:g} s: see {self._logs}"
            ) from None

    async def at_work(self) -> int:
        """Return the number of workers that run an executor now."""
        return sum(worker["coresused"] > 0 for worker in await self._alive())

    async def _alive(self) -> list[dict[str, Any]]:
        try:
            state = await asyncio.to_thread(self._request)
        except OSError:  # it does not listen yet
            return []
        return [worker for worker in state["workers"] if worker["state"] == "ALIVE"]

    def _request(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=_ANSWER_SECONDS) as answer:
            state: dict[str, Any] = json.load(answer)
            return state


def java_missing() -> str | None:
    """Return why Spark cannot run here, or None."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home) / "bin") if home else None) is None:
        where = f"below JAVA_HOME, {home}" if home else "on the PATH"
        return f"Spark needs Java 17 or later; no `java` was found {where}"
    return None
