"""This project's name server and broker as processes: async context managers like those of `apache`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from tests.support.ports import LOOPBACK, free_broker_port, free_port, free_shards_port
from tests.support.processes import ServerProcess, Usage
from tests.support.waiting import until_in_thread

_BIN = Path(sys.executable).parent
_READY_POLL_SECONDS = 0.01
# The disk of a developer's machine may be nearly full, and the machine busy with other tests.
_ANY_MACHINE = {
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "98",
    "waitTimeMillsInSendQueue": "10000",
}


class _OwnServer:
    """One daemon: its folder, settings, process and ready file. Killed at the end of an `async with`."""

    name: str

    def __init__(self, *, port: int, home: Path | None, settings: Mapping[str, str] | None) -> None:
        self.port = port
        self.address = f"{LOOPBACK}:{port}"
        self.settings = dict(settings or {})
        self._owns_home = home is None
        self.home = home if home is not None else Path(tempfile.mkdtemp(prefix=f"own-{self.name}-"))
        self._process: ServerProcess | None = None

    @property
    def log_path(self) -> Path:
        """The file with its stdout and stderr."""
        return self.home / f"{self.name}.out"

    @property
    def ready_file(self) -> Path:
        """The file that has its addresses while it serves."""
        return self.home / f"{self.name}.ready.json"

    @property
    def process(self) -> ServerProcess:
        """The process of the last start."""
        if self._process is None:
            raise RuntimeError(f"the {self.name} was not started: await start(), or use `async with`")
        return self._process

    def usage(self) -> Usage:
        """CPU and memory that the process has used so far."""
        return self.process.usage()

    def logged_errors(self) -> list[str]:
        """The error lines and tracebacks in its log, of all starts so far."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return [line for line in lines if '"level":"error"' in line or line.startswith("Traceback")]

    def configuration(self) -> Mapping[str, str]:
        """Its settings: keys and values."""
        raise NotImplementedError

    async def start(self, ready_timeout_s: float = 20) -> None:
        """Start it, also after stop() or kill() on the same files, and wait until it serves."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.ready_file.unlink(missing_ok=True)  # that of a killed process
        command = [*self._command(), "--ready-file", str(self.ready_file)]
        self._process = ServerProcess(command, log_path=self.log_path)
        deadline = time.monotonic() + ready_timeout_s
        try:
            while not self.ready_file.exists():
                if self.process.exit_code is not None:
                    raise RuntimeError(f"the {self.name} ended: {self.process.log_tail()}")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the {self.name} is not ready in time: {self.process.log_tail()}")
                await asyncio.sleep(_READY_POLL_SECONDS)
        except BaseException:
            self.kill()
            raise

    def _command(self) -> Sequence[str]:
        settings = [f"{key}={value}" for key, value in self.configuration().items()]
        return [str(_BIN / f"rmq-{self.name}"), *(word for pair in settings for word in ("--set", pair))]

    async def stop(self, timeout_s: float = 30) -> None:
        """Shut it down gracefully (SIGTERM) and wait; AssertionError if its exit code is not 0."""
        code = await self.process.stop(timeout_s)
        assert code == 0, f"the {self.name} ended with {code}: {self.process.log_tail()}"

    def kill(self) -> None:
        """SIGKILL; the files stay as they are."""
        self.process.kill()

    def close(self) -> None:
        """Kill it if it runs, and delete the folder if this object made it."""
        if self._process is not None:
            self._process.kill()
        if self._owns_home:
            shutil.rmtree(self.home, ignore_errors=True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class OwnNamesrv(_OwnServer):
    """`rmq-namesrv` on a free port, or `port`; `settings` are further keys and values."""

    name = "namesrv"

    def __init__(
        self,
        *,
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(port=port or free_port(), home=home, settings=settings)

    def configuration(self) -> Mapping[str, str]:
        return {
            "listenPort": str(self.port),
            "bindAddress": LOOPBACK,
            "kvConfigPath": str(self.home / "kvConfig.json"),
            "metricsExporterType": "DISABLE",
            **self.settings,
        }


class OwnBroker(_OwnServer):
    """`rmq-broker`, registered with `namesrv_address` (several with `;` between)."""

    name = "broker"

    def __init__(
        self,
        namesrv_address: str,
        *,
        broker_name: str = "broker-a",
        cluster: str = "DefaultCluster",
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(port=port or free_broker_port(), home=home, settings=settings)
        self.namesrv_address = namesrv_address
        self.broker_name = broker_name
        self.cluster = cluster

    @property
    def store_path(self) -> Path:
        """Its store directory: commitlog, consumequeue, config …"""
        return self.home / "store"

    def configuration(self) -> Mapping[str, str]:
        return {
            "brokerClusterName": self.cluster,
            "brokerName": self.broker_name,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "bindAddress": LOOPBACK,
            "listenPort": str(self.port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(self.store_path),
            "metricsExporterType": "DISABLE",
            **_ANY_MACHINE,
            **self.settings,
        }


class OwnProxy(_OwnServer):
    """`rmq-proxy` in front of the brokers of `namesrv_address`; `settings` are keys and values."""

    name = "proxy"

    def __init__(
        self,
        namesrv_address: str,
        *,
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(port=port or free_port(), home=home, settings=settings)
        self.namesrv_address = namesrv_address

    def configuration(self) -> Mapping[str, str]:
        return {
            "grpcServerPort": str(self.port),
            "remotingListenPort": "0",
            "bindAddress": LOOPBACK,
            "namesrvAddr": self.namesrv_address,
            "grpcShutdownTimeSeconds": "1",
            "metricsExporterType": "DISABLE",
            **self.settings,
        }

    def _command(self) -> Sequence[str]:
        # By its module: an environment from before this command lacks its script.
        return [sys.executable, "-m", "rmq_proxy", *super()._command()[1:]]


class OwnShards(OwnBroker):
    """`rmq-broker --shards`: its supervisor is the process; each shard is a process of its own."""

    def __init__(
        self, namesrv_address: str, count: int, *, home: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(namesrv_address, port=free_shards_port(count), home=home, settings=settings)
        self.count = count

    def port_of(self, number: int) -> int:
        """The port of a shard that clients connect to."""
        return self.port + 10 * number

    def pids(self) -> dict[str, int]:
        """The processes of the shards that run now, by broker name."""
        found: dict[str, int] = {}
        for word in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with suppress(OSError):
                words = Path(f"/proc/{word}/cmdline").read_bytes().decode().split("\0")
                names = [text for text in words if text.startswith(f"brokerName={self.broker_name}-")]
                found |= {name.partition("=")[2]: int(word) for name in names}
        return found

    def kill(self) -> None:
        """SIGKILL the supervisor, then its shards, which would otherwise shut down gracefully."""
        pids = self.pids().values() if self.process.exit_code is None else ()
        super().kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until_in_thread(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids))

    def close(self) -> None:
        """Kill all processes that run, and delete the folder if this object made it."""
        if self._process is not None:
            self.kill()
        super().close()

    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--shards", str(self.count)]


@asynccontextmanager
async def own_cluster(
    settings: Mapping[str, str] | None = None, namesrv_settings: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[OwnNamesrv, OwnBroker]]:
    """A name server and one broker; `settings` are the broker's."""
    async with (
        OwnNamesrv(settings=namesrv_settings) as namesrv,
        OwnBroker(namesrv.address, settings=settings) as broker,
    ):
        yield namesrv, broker
