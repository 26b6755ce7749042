"""Apache RocketMQ's own name server and broker as async context managers."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from tests.support.jvm import QUICK, java_command
from tests.support.ports import LOOPBACK, free_broker_port, free_port
from tests.support.probe import cluster_info, has_broker, is_listening, leads, register_again
from tests.support.processes import ServerProcess, Usage
from tests.support.toolchain import JavaProgram

# A server that offers TLS makes an RSA key, in 2 s of CPU without the JVM's optimizing compiler.
SMALL_HEAP = (*QUICK, "-Dtls.server.mode=disabled", "-Xms256m", "-Xmx512m")
WITH_TLS = (*SMALL_HEAP, "-Dtls.server.mode=permissive")
_READY_POLL_SECONDS = 0.05
_REGISTRATION_LOST_SECONDS = 1.0
# Apache's broker refuses messages at a disk usage of 90 %, which a developer's machine may have.
ANY_DISK = {
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.98",
}

# With the defaults a broker without any load takes a third of a core, and a whole one in its first 3 s.
_QUICK_BROKER = {
    # For the writes of its timing wheel of 37 MB to the page cache.
    "timerFlushIntervalMs": "60000",
    # For the first of these intervals it waits in a loop.
    "transactionMetricFlushInterval": "300",
}


def is_quick(jvm_options: Sequence[str]) -> bool:
    """Return whether a server with these options is for tests, not for measurements with its defaults."""
    return set(QUICK) <= set(jvm_options)


class ApacheServer:
    """One JVM server: its home folder, configuration file, process and readiness.

    Leaving an `async with` block kills it, because Apache's graceful shutdown takes 9 s. Await stop() first
    if the test needs the files of a graceful shutdown.
    """

    main_class: str
    name: str

    def __init__(
        self,
        program: JavaProgram,
        *,
        port: int,
        home: Path | None,
        jvm_options: Sequence[str],
        properties: Mapping[str, str],
    ) -> None:
        self.port = port
        self.address = f"{LOOPBACK}:{port}"
        self._program = program
        self._owns_home = home is None
        self.home = home if home is not None else Path(tempfile.mkdtemp(prefix=f"apache-{self.name}-"))
        self._jvm_options = tuple(jvm_options)
        self._properties = dict(properties)
        self._process: ServerProcess | None = None

    @property
    def log_path(self) -> Path:
        """The file with its stdout and stderr."""
        return self.home / f"{self.name}.out"

    @property
    def log_folder(self) -> Path:
        """Apache's own log files."""
        return self.home / "logs" / "rocketmqlogs"

    @property
    def process(self) -> ServerProcess:
        """The process of the last start."""
        if self._process is None:
            raise RuntimeError(f"Apache's {self.name} was not started: await start(), or use `async with`")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def usage(self) -> Usage:
        """CPU and memory that the process has used so far."""
        return self.process.usage()

    def configuration(self) -> Mapping[str, str]:
        """The keys and values of its configuration file."""
        raise NotImplementedError

    async def is_ready(self) -> bool:
        raise NotImplementedError

    async def start(self, ready_timeout_s: float = 60) -> float:
        """Start it, also after stop() or kill() on the same files; return the seconds until it was ready."""
        started = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        command = self._command()
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home)}
        environment.pop("NAMESRV_ADDR", None)
        self._process = ServerProcess(command, log_path=self.log_path, environment=environment)
        try:
            await self._await_ready(started + ready_timeout_s)
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - started

    def _command(self) -> Sequence[str]:
        return java_command(
            self._program,
            self.main_class,
            self._write_configuration(),
            home=self.home,
            jvm_options=self._jvm_options,
            properties=self._properties,
        )

    def _write_configuration(self) -> list[str]:
        """Write the configuration file, and return the arguments that name it on the command line."""
        file = self.home / f"{self.name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.configuration().items()))
        return ["-c", str(file)]

    async def _await_ready(self, deadline: float) -> None:
        while not await self.is_ready():
            if self.process.exit_code is not None:
                raise RuntimeError(
                    f"Apache's {self.name} ended with {self.process.exit_code}:\n{self._last_words()}"
                )
            if time.monotonic() > deadline:
                raise TimeoutError(f"Apache's {self.name} is not ready in time:\n{self._last_words()}")
            await asyncio.sleep(_READY_POLL_SECONDS)

    def _last_words(self) -> str:
        # Logback prints its whole configuration first.
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "|-INFO in" not in line][-40:])

    async def stop(self, timeout_s: float = 30) -> None:
        """Shut it down gracefully: SIGTERM, then wait."""
        await self.process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL; the files stay as they are."""
        self.process.kill()

    def close(self) -> None:
        """Kill it if it runs, and delete the home folder if this object made it."""
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


class ApacheNamesrv(ApacheServer):
    """Apache's name server on a free port, or `port`.

    `home` keeps its files (a temporary folder otherwise); `settings` are further lines of its configuration.
    """

    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    name = "namesrv"

    def __init__(
        self,
        program: JavaProgram,
        *,
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
        serialize_type: str = "JSON",
        jvm_options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        super().__init__(
            program,
            port=port or free_port(),
            home=home,
            jvm_options=jvm_options,
            properties={"rocketmq.serialize.type": serialize_type},
        )
        self.settings = dict(settings or {})

    def configuration(self) -> Mapping[str, str]:
        return {
            "listenPort": str(self.port),
            "kvConfigPath": str(self.home / "kvConfig.json"),
            **self.settings,
        }

    async def is_ready(self) -> bool:
        try:
            await cluster_info(self.address)
        except (OSError, TimeoutError):
            return False
        return True


class ApacheController(ApacheServer):
    """Apache's controller on a free port, or `port`; alone in its DLedger group without other `settings`."""

    main_class = "org.apache.rocketmq.controller.ControllerStartup"
    name = "controller"

    def __init__(
        self,
        program: JavaProgram,
        *,
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        super().__init__(program, port=port or free_port(), home=home, jvm_options=jvm_options, properties={})
        self.settings = dict(settings or {})

    def configuration(self) -> Mapping[str, str]:
        return {**controller_settings(self.address, self.home), **self.settings}

    async def is_ready(self) -> bool:
        return await leads(self.address)


def controller_settings(address: str, home: Path) -> dict[str, str]:
    """The settings of a controller that is alone in its DLedger group, with files below `home`."""
    return {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-{address}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(home / "controller"),
        "mappedFileSize": str(16 << 20),
    }


def dledger_controllers(program: JavaProgram, home: Path, count: int) -> list[ApacheController]:
    """Controllers of one DLedger group, not started; most of them have to run before one leads."""
    ports = [free_port() for _ in range(count)]
    peers = ";".join(f"n{number}-{LOOPBACK}:{port}" for number, port in enumerate(ports))
    return [
        ApacheController(
            program,
            port=port,
            home=home / f"controller{number}",
            settings={"controllerDLegerPeers": peers, "controllerDLegerSelfId": f"n{number}"},
        )
        for number, port in enumerate(ports)
    ]


def jraft_controllers(program: JavaProgram, home: Path, count: int) -> list[ApacheController]:
    """Controllers of one JRaft group, not started; most of them have to run before one leads."""
    ports, raft_ports = [free_port() for _ in range(count)], [free_port() for _ in range(count)]
    return [
        ApacheController(
            program,
            port=port,
            home=home / f"controller{number}",
            settings={
                "controllerType": "jRaft",
                "jRaftServerId": f"{LOOPBACK}:{raft_ports[number]}",
                "jRaftInitConf": ",".join(f"{LOOPBACK}:{each}" for each in raft_ports),
                "jRaftControllerRPCAddr": ",".join(f"{LOOPBACK}:{each}" for each in ports),
            },
        )
        for number, port in enumerate(ports)
    ]


class ApacheBroker(ApacheServer):
    """Apache's broker, registered with `namesrv_address` (several with `;` between).

    It is ready when the first name server knows it. It gets a free `listenPort`, fast port and HA port.
    """

    main_class = "org.apache.rocketmq.broker.BrokerStartup"
    name = "broker"

    def __init__(
        self,
        program: JavaProgram,
        namesrv_address: str,
        *,
        broker_name: str = "broker-a",
        cluster: str = "DefaultCluster",
        broker_id: int = 0,
        port: int | None = None,
        home: Path | None = None,
        settings: Mapping[str, str] | None = None,
        serialize_type: str = "JSON",
        jvm_options: Sequence[str] = SMALL_HEAP,
    ) -> None:
        super().__init__(
            program,
            port=port or free_broker_port(),
            home=home,
            jvm_options=jvm_options,
            properties={"rocketmq.serialize.type": serialize_type, **ANY_DISK},
        )
        self.namesrv_address = namesrv_address
        self.broker_name = broker_name
        self.cluster = cluster
        self.broker_id = broker_id
        self.settings = {**(_QUICK_BROKER if is_quick(jvm_options) else {}), **(settings or {})}
        self._listens_since: float | None = None

    @property
    def fast_address(self) -> str:
        """The address of the VIP channel, for sends."""
        return f"{LOOPBACK}:{self.port - 2}"

    @property
    def store_path(self) -> Path:
        """Its store directory: commitlog, consumequeue, index, config …"""
        return self.home / "store"

    def configuration(self) -> Mapping[str, str]:
        return {
            "brokerClusterName": self.cluster,
            "brokerName": self.broker_name,
            "brokerId": str(self.broker_id),
            "brokerIP1": LOOPBACK,
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(self.store_path),
            "storePathCommitLog": str(self.store_path / "commitlog"),
            **self.settings,
        }

    async def is_ready(self) -> bool:
        # The port first: the name server may still know a broker that was killed just before.
        if not await is_listening(self.address):
            return False
        if await has_broker(self.namesrv_address.split(";", maxsplit=1)[0], self.address):
            self._listens_since = None
            return True
        await self._hurry_registration()
        return False

    async def _hurry_registration(self) -> None:
        """Make the broker register again if its first registration was lost.

        A 5.3.3 broker that registers before it is connected to the name server (a matter of milliseconds)
        sends nothing, and retries 10 s later.
        """
        if self._listens_since is None:
            self._listens_since = time.monotonic()
        elif time.monotonic() - self._listens_since > _REGISTRATION_LOST_SECONDS:
            self._listens_since = None
            with suppress(OSError, TimeoutError):  # on a busy machine; asked again
                await register_again(self.address)


@asynccontextmanager
async def apache_cluster(
    program: JavaProgram,
    settings: Mapping[str, str] | None = None,
    *,
    jvm_options: Sequence[str] = SMALL_HEAP,
) -> AsyncIterator[tuple[ApacheNamesrv, ApacheBroker]]:
    """A name server and one broker; `settings` go into the broker's configuration file."""
    async with (
        ApacheNamesrv(program, jvm_options=jvm_options) as namesrv,
        ApacheBroker(program, namesrv.address, settings=settings, jvm_options=jvm_options) as broker,
    ):
        yield namesrv, broker
