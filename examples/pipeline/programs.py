"""Programs that run beside this one and end with it; what they print goes to files."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_STOPS_WITHIN_SECONDS: Final = 40.0
_LOOK_SECONDS: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1
_TAIL_LINES: Final = 15


class ProgramFailed(Exception):
    """A program ended with an error, or ended at all, or said nothing."""


class Program:
    """One process. `async with` starts it, and ends it in order: SIGTERM, and after a while SIGKILL."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: what is set beside this process's own."""
        self.name = name
        self.log = logs / f"{name.replace(' ', '-')}.log"
        self._command = [str(part) for part in command]
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Program:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            # A session of its own, or the terminal's Ctrl-C would reach all programs at once, in no order.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOPS_WITHIN_SECONDS):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def says(self, beginning: str, timeout_seconds: float) -> str:
        """Wait until it prints a line that begins so, and give the line. Raises ProgramFailed."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    for line in self._lines():
                        if line.startswith(beginning):
                            return line
                    self.must_run()
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise ProgramFailed(
                f"{self._last()}\nthe {self.name} is not ready after {timeout_seconds:g} s"
            ) from None

    def must_run(self) -> None:
        """Raises ProgramFailed where it has ended."""
        if not self.running:
            raise ProgramFailed(f"{self._last()}\nthe {self.name} has ended with {self._process.returncode}")

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        return await self._process.wait()

    async def done(self) -> None:
        """Wait for its end. Raises ProgramFailed where the exit code is not 0."""
        if await self.ended():
            self.must_run()

    def printed(self) -> str:
        """All that it printed so far."""
        return self.log.read_text(errors="replace")

    def _lines(self) -> list[str]:
        return self.printed().splitlines()

    def _last(self) -> str:
        return "\n".join([f"{self.log}:", *self._lines()[-_TAIL_LINES:]])


def _end_with_parent() -> None:
    """Let Linux end a program whose parent was killed without a chance to do so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def memory_bytes(pid: int) -> int:
    """What a process has of its own, without the files that it maps; 0 where that cannot be told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:")), 0
    )
