"""A name server and brokers on this machine, as processes that can be killed and restarted."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from examples.pipeline.programs import Daemon, Program
from examples.pipeline.spark_cluster import HOST
from rmq_testing.ports import free_broker_port, free_port

READY_SECONDS: Final = 120.0
_BIN: Final = Path(sys.executable).parent


def standalone_broker(store: Path, logs: Path) -> Daemon:
    """Return a broker with a name server of its own, on free ports: enter it to start it."""
    settings = {"listenPort": 0, "metricsExporterType": "DISABLE"}
    settings |= dict.fromkeys(("bindAddress", "brokerIP1", "brokerIP2"), HOST)
    command: list[str | Path] = [_BIN / "rmq-broker", "--standalone", "--namesrv-port", "0", "--store", store]
    return Daemon("broker", [*command, *_assignments(settings)], logs)


class Brokers:
    """`async with Brokers(3, folder, logs) as brokers`: a name server and that many brokers.

    `programs`: those that run now and must not end by themselves.
    """

    def __init__(self, count: int, folder: Path, logs: Path, programs: list[Program]) -> None:
        """`folder`: has the stores of the brokers. `programs`: a list that is kept up to date."""
        self.names: Sequence[str] = [f"broker-{chr(ord('a') + number)}" for number in range(count)]
        self.namesrv = f"{HOST}:{free_port()}"
        self._ports = {name: free_broker_port() for name in self.names}
        self._starts = dict.fromkeys(self.names, 0)
        self._running: dict[str, Program] = {}
        self._folder = folder
        self._logs = logs
        self._programs = programs
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._stack:
            command: list[str | Path] = [_BIN / "rmq-namesrv", "--port", self.namesrv.rpartition(":")[2]]
            server = Daemon("namesrv", [*command, "--set", f"bindAddress={HOST}"], self._logs)
            self._programs.append(await self._stack.enter_async_context(server))
            await server.serves(READY_SECONDS)
            await asyncio.gather(*(self.start(name) for name in self.names))
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def first(self) -> Program:
        """The process of the first broker."""
        return self._running[self.names[0]]

    async def start(self, name: str) -> None:
        """Start a broker on its port and its files, and wait until it is ready. Raises ProgramFailed."""
        self._starts[name] += 1
        command: list[str | Path] = [_BIN / "rmq-broker", "-n", self.namesrv]
        settings = {
            "brokerName": name,
            "listenPort": self._ports[name],
            "storePathRootDir": self._folder / name,
            "bindAddress": HOST,
            "brokerIP1": HOST,
            "brokerIP2": HOST,
            "metricsExporterType": "DISABLE",
        }
        broker = Daemon(f"{name} {self._starts[name]}", [*command, *_assignments(settings)], self._logs)
        await self._stack.enter_async_context(broker)
        await broker.serves(READY_SECONDS)
        self._running[name] = broker
        self._programs.append(broker)

    async def kill(self, name: str) -> None:
        """Send a broker `kill -9`."""
        await self._removed(name).kill()

    async def stop(self, name: str) -> None:
        """Stop a broker gracefully: it unregisters."""
        await self._removed(name).stop()

    def _removed(self, name: str) -> Program:
        broker = self._running.pop(name)
        self._programs.remove(broker)
        return broker


def _assignments(settings: Mapping[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
