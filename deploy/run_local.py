"""`make run`: a name server and a broker on this machine, as two processes that end together.

Their logs go to this terminal. Ctrl-C (or SIGTERM, or the terminal's end) stops them in order, the broker
first, so that it can still unregister; a second one stops them at once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_STARTS_WITHIN_SECONDS = 30.0
_STOPS_WITHIN_SECONDS = 40.0
_PR_SET_PDEATHSIG = 1
_NAMESRV_METRICS_PORT = 5558  # the broker has 5557
_BIN = Path(sys.executable).parent


class StartFailed(Exception):
    """A daemon ended, or said nothing, instead of being ready."""


class Daemon:
    """One daemon's process."""

    def __init__(self, name: str, command: Sequence[str | Path]) -> None:
        self.name = name
        self.address = ""
        self._command = [str(part) for part in command]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is ready. Raises StartFailed."""
        # A session of its own, or the terminal's Ctrl-C would reach both daemons at once, in no order.
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_STARTS_WITHIN_SECONDS):
                line = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            raise StartFailed(f"the {self.name} is not ready after {_STARTS_WITHIN_SECONDS} s") from None
        if not line.startswith("ready "):
            code = await self._process.wait()
            raise StartFailed(f"the {self.name} ended with exit code {code}; the lines above say why")
        self.address = line.split()[2]

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
    lines = [f"{daemon.name:<12} {daemon.address}" for daemon in daemons]
    print("\n" + "\n".join(lines) + "\n" + welcome, flush=True)
    watches = [asyncio.ensure_future(daemon.ended()) for daemon in daemons]
    await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    gone = next(daemon for daemon, watch in zip(daemons, watches, strict=True) if watch.done())
    raise StartFailed(f"the {gone.name} has ended by itself: stopping the other one")


def _welcome(namesrv: str, data: Path) -> str:
    interpreter = os.path.relpath(sys.executable)
    return (
        f"messages     {data}\n"
        f"try          {interpreter} examples/quickstart.py {namesrv}\n"
        f"stop         Ctrl-C\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the messages")
    parser.add_argument("--port", type=int, default=9876, help="the name server's port")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker, key=value")
    options = parser.parse_args()
    namesrv = f"127.0.0.1:{options.port}"
    keys_and_values = options.data / "namesrv" / "kvConfig.json"
    settings = [part for assignment in options.set for part in ("--set", assignment)]
    daemons = (
        Daemon(
            "name server",
            [
                _BIN / "rmq-namesrv",
                *("--port", str(options.port)),
                *("--set", f"kvConfigPath={keys_and_values}"),
                *("--set", f"metricsPromExporterPort={_NAMESRV_METRICS_PORT}"),
            ],
        ),
        Daemon("broker", [_BIN / "rmq-broker", "-n", namesrv, "--store", options.data, *settings]),
    )
    return asyncio.run(_run(daemons, _welcome(namesrv, options.data)))


if __name__ == "__main__":
    sys.exit(main())
