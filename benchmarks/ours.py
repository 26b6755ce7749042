"""Our name server and broker as processes, of this checkout or of another one."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_broker_port, free_port
from tests.support.probe import cluster_info, has_broker
from tests.support.processes import ServerProcess, Usage

_BIN = Path(sys.executable).parent
_SOURCES = ("remoting", "namesrv", "broker", "client", "proxy")
_READY_WITHIN_SECONDS = 30.0
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class OurServers:
    """The running servers, and the seconds from the broker's exec to its ready line."""

    namesrv_address: str
    namesrv: ServerProcess
    broker: ServerProcess
    port: int  # of the broker
    broker_start_seconds: float

    def usage(self) -> Usage:
        """Return CPU time and memory of the broker so far."""
        return self.broker.usage()


@asynccontextmanager
async def our_servers(
    settings: Mapping[str, str] | None = None, checkout: Path | None = None
) -> AsyncIterator[OurServers]:
    """Run a name server and a broker with an empty store, in a temporary folder.

    `checkout` is the folder of another checkout of this project whose code runs instead.
    """
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-"))
    running: list[ServerProcess] = []
    port, broker_port = free_port(), free_broker_port()
    address = f"127.0.0.1:{port}"
    no_metrics = ("--set", "metricsPromExporterPort=0")
    try:
        namesrv = _start(home, checkout, "rmq-namesrv", "--port", str(port), *no_metrics, *_kv(home))
        running.append(namesrv)
        await _until_answers(address)
        began = time.monotonic()
        all_settings = {"listenPort": broker_port, "brokerIP1": "127.0.0.1", **(settings or {})}
        options = [word for name, value in all_settings.items() for word in ("--set", f"{name}={value}")]
        store = ("--store", str(home / "store"))
        broker = _start(home, checkout, "rmq-broker", "-n", address, *store, *options, *no_metrics)
        running.append(broker)
        seconds = await _ready_seconds(broker, began)
        if not await has_broker(address, f"127.0.0.1:{broker_port}"):
            raise RuntimeError(f"the broker is not registered: {broker.log_tail()}")
        yield OurServers(address, namesrv, broker, broker_port, seconds)
    finally:
        for process in reversed(running):
            process.kill()
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def our_proxy(
    namesrv_address: str, checkout: Path | None = None
) -> AsyncIterator[tuple[ServerProcess, str]]:
    """Run `rmq-proxy` in front of a cluster; its process, and the address of its gRPC port."""
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-"))
    settings = {
        "grpcServerPort": str(free_port()),
        "remotingListenPort": "0",
        "bindAddress": "127.0.0.1",
        "namesrvAddr": namesrv_address,
        "metricsExporterType": "DISABLE",
    }
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    proxy = _start(home, checkout, "rmq-proxy", *options)
    try:
        await _ready_seconds(proxy, time.monotonic())
        yield proxy, f"127.0.0.1:{settings['grpcServerPort']}"
    finally:
        proxy.kill()
        shutil.rmtree(home, ignore_errors=True)


def _kv(home: Path) -> Sequence[str]:
    return ("--set", f"kvConfigPath={home / 'kvConfig.json'}")


def environment_of(checkout: Path | None) -> dict[str, str]:
    """Return the environment of a server with the code of `checkout`, or with this program's (None).

    `checkout` may also be a folder that a wheel has been installed into (`pip install --target`).
    """
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    if checkout is not None:
        is_installed = (checkout / "rmq_remoting").is_dir()
        folders = [checkout] if is_installed else [checkout / folder for folder in _SOURCES]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    return environment


async def load_output(checkout: Path | None, module: str, *options: str) -> Sequence[str]:
    """Run a load program in a process of its own, and return the words that it prints. Raises RuntimeError.

    `checkout` as for `our_servers`: the module of another checkout runs, with the code of that one.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *options,
        cwd=None if checkout is None else _folder_of_benchmarks(checkout),
        env=dict(os.environ) if checkout is None else environment_of(checkout),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} of {checkout or 'this checkout'} ended with {process.returncode}")
    return output.decode().split()


def _folder_of_benchmarks(checkout: Path) -> Path:
    for folder in (checkout, *checkout.resolve().parents):
        if (folder / "benchmarks" / "sdk.py").is_file():
            return folder
    raise FileNotFoundError(f"no benchmarks/sdk.py in {checkout} or above it")


def _start(home: Path, checkout: Path | None, name: str, *options: str) -> ServerProcess:
    # The command of this environment may name an entry point that another checkout lacks.
    program = [str(_BIN / name)]
    if checkout is not None:
        program = [sys.executable, "-m", f"{name.replace('-', '_')}.main"]
    command = [*program, *options]
    return ServerProcess(command, log_path=home / f"{name}.log", environment=environment_of(checkout))


async def _ready_seconds(process: ServerProcess, began: float) -> float:
    deadline = began + _READY_WITHIN_SECONDS
    while not process.says_ready:
        if process.exit_code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.command[0]} is not ready: {process.log_tail()}")
        await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - began


async def _until_answers(address: str) -> None:
    deadline = time.monotonic() + _READY_WITHIN_SECONDS
    while True:
        try:
            await cluster_info(address)
        except (OSError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return
