"""`make run`: a name server and a broker on this machine, as two processes that end together.

Only this machine can connect, unless --bind names another address.

Their logs go to this terminal. Ctrl-C (or SIGTERM, or the terminal's end) stops them in order, the broker
first, so that it can still unregister; a second one stops them at once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_STARTS_WITHIN_SECONDS = 30.0
_STOPS_WITHIN_SECONDS = 40.0
_LOOK_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_THIS_MACHINE = "127.0.0.1"
_EVERY_INTERFACE = ("0.0.0.0", "::")
_NAMESRV_METRICS_PORT = 5558  # the broker has 5557
_BIN = Path(sys.executable).parent


class StartFailed(Exception):
    """A daemon ended, or said nothing, instead of being ready."""


class Daemon:
    """One daemon's process."""

    def __init__(self, name: str, command: Sequence[str | Path], ready_file: Path) -> None:
        self.name = name
        self._addresses: dict[str, str] = {}
        self._ready_file = ready_file
        self._command = [*(str(part) for part in command), "--ready-file", str(ready_file)]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises StartFailed."""
        # A session of its own, or the terminal's Ctrl-C would reach both daemons at once, in no order.
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        try:
            async with asyncio.timeout(_STARTS_WITHIN_SECONDS):
                while not self._ready_file.exists():
                    if (code := self._process.returncode) is not None:
                        raise StartFailed(
                            f"the {self.name} ended with exit code {code}; the lines above say why. (Other "
                            "ports: make run PORT=9877 BROKER_PORT=20911; another folder: DATA=data2)"
                        )
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise StartFailed(f"the {self.name} is not ready after {_STARTS_WITHIN_SECONDS} s") from None
        self._addresses = json.loads(self._ready_file.read_text())

    def summary(self) -> str:
        """Return the lines that show the addresses of a started daemon."""
        lines = [f"{self.name:<12} {self._addresses['address']}\n"]
        if "grpc" in self._addresses:
            lines.append(f"gRPC         {self._addresses['grpc']}\n")
        if "metrics" in self._addresses:
            lines.append(f"metrics      http://{self._addresses['metrics']}/metrics\n")
        return "".join(lines)

    async def ended(self) -> None:
        """Wait until it has ended, by itself or not."""
        assert self._process is not None
        await self._process.wait()

    async def stop(self) -> None:
        """End it in order, or after a while in any way."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOPS_WITHIN_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


def _end_with_parent() -> None:
    """Let Linux end a daemon whose parent was killed without a chance to do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _run(daemons: Sequence[Daemon], welcome: str) -> int:
    asked_to_stop = asyncio.Event()

    def signalled() -> None:
        if asked_to_stop.is_set():
            for daemon in daemons:
                daemon.kill()
        asked_to_stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, signalled)
    serving = asyncio.ensure_future(_serve(daemons, welcome))
    stopping = asyncio.ensure_future(asked_to_stop.wait())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    for each in (serving, stopping):
        each.cancel()
    outcome = (await asyncio.gather(serving, return_exceptions=True))[0]
    for daemon in reversed(daemons):
        await daemon.stop()
    if asked_to_stop.is_set():
        return 0
    print(outcome, file=sys.stderr)
    return 1


async def _serve(daemons: Sequence[Daemon], welcome: str) -> None:
    """Start all, and watch them. Raises StartFailed as soon as one is not there."""
    for daemon in daemons:
        await daemon.start()
    print("\n" + "".join(daemon.summary() for daemon in daemons) + welcome, flush=True)
    watches = [asyncio.ensure_future(daemon.ended()) for daemon in daemons]
    await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    gone = next(daemon for daemon, watch in zip(daemons, watches, strict=True) if watch.done())
    raise StartFailed(f"the {gone.name} has ended by itself: stopping the other one")


def _welcome(namesrv: str, data: Path, bind: str) -> str:
    interpreter = os.path.relpath(sys.executable)
    reach = "from this machine only; from others with make run BIND=0.0.0.0"
    return (
        f"messages     {data}\n"
        f"reachable    {reach if bind == _THIS_MACHINE else f'by every host that can reach {bind}'}\n"
        f"try          {interpreter} examples/quickstart.py {namesrv}\n"
        f"look         {Path(interpreter).with_name('rmq')} -n {namesrv} topic list\n"
        f"stop         Ctrl-C\n"
    )


def _free(port: int) -> int:
    """Return the port, or 0, for any one, if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return 0
    return port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the messages")
    parser.add_argument("--port", type=int, default=9876, help="the name server's port")
    parser.add_argument("--broker-port", type=int, help="the broker's port (10911)")
    parser.add_argument(
        "--grpc-port",
        type=int,
        help="the port for the 5.x clients (8081, or any free one if that is taken); 0: none",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="the broker's port for metrics; the name server has the next one (5557 and 5558, or any free "
        "ones if those are taken)",
    )
    parser.add_argument("--bind", default=_THIS_MACHINE, help="address to listen on; 0.0.0.0: all of them")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker, key=value")
    options = parser.parse_args()
    host = _THIS_MACHINE if options.bind in _EVERY_INTERFACE else options.bind
    namesrv = f"[{host}]:{options.port}" if ":" in host else f"{host}:{options.port}"
    keys_and_values = options.data / "namesrv" / "kvConfig.json"
    listening = [f"bindAddress={options.bind}"]
    chosen = [f"listenPort={options.broker_port}"] if options.broker_port is not None else []
    if options.grpc_port is not None:
        chosen.append(f"grpcServerPort={options.grpc_port}")
    namesrv_metrics_port = _free(_NAMESRV_METRICS_PORT)
    if options.metrics_port is not None:
        chosen.append(f"metricsPromExporterPort={options.metrics_port}")
        namesrv_metrics_port = options.metrics_port and options.metrics_port + 1  # 0: any
    if options.bind == _THIS_MACHINE:
        chosen += [f"brokerIP1={_THIS_MACHINE}", f"brokerIP2={_THIS_MACHINE}"]
    chosen += options.set
    settings = [part for one in (*listening, *chosen) for part in ("--set", one)]
    name_server: list[str | Path] = [
        _BIN / "rmq-namesrv",
        *("--port", str(options.port)),
        *("--set", f"kvConfigPath={keys_and_values}"),
        *("--set", f"bindAddress={options.bind}"),
        *("--set", f"metricsPromExporterPort={namesrv_metrics_port}"),
    ]
    broker: list[str | Path] = [
        _BIN / "rmq-broker",
        *("-n", namesrv),
        *("--store", options.data),
        *("--grpc", *settings),
    ]
    with tempfile.TemporaryDirectory(prefix="rmq-run-") as folder:
        daemons = (
            Daemon("name server", name_server, Path(folder, "namesrv.json")),
            Daemon("broker", broker, Path(folder, "broker.json")),
        )
        return asyncio.run(_run(daemons, _welcome(namesrv, options.data, options.bind)))


if __name__ == "__main__":
    sys.exit(main())
