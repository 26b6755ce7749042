"""Child programs that end with this one; their output goes to files."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

_STOPS_WITHIN_SECONDS: Final = 40.0
_LOOK_SECONDS: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1
_TAIL_LINES: Final = 15

_T = TypeVar("_T")


class ProgramFailed(Exception):
    """A program failed, ended too early, or printed nothing."""


class Program:
    """One process. `async with` starts it and ends it gracefully: SIGTERM, and after a while SIGKILL."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: variables to set in addition to this process's own."""
        self.name = name
        self.log = logs / f"{name.replace(' ', '-')}.log"
        self._command = [str(part) for part in command]
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            # In a session of its own: Ctrl-C in the terminal would stop all programs at once, in no order.
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
        await self.stop()

    async def kill(self) -> None:
        """End the program and its children at once, and wait for the end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """End the program gracefully, and wait for the end."""
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
        """Wait for a printed line with this beginning, and return the line. Raises ProgramFailed."""
        return await self._until(
            lambda: next((line for line in self._lines() if line.startswith(beginning)), None),
            timeout_seconds,
        )

    async def _until(self, look: Callable[[], _T | None], timeout_seconds: float) -> _T:
        try:
            async with asyncio.timeout(timeout_seconds):
                while (found := look()) is None:
                    self.must_run()
                    await asyncio.sleep(_LOOK_SECONDS)
                return found
        except TimeoutError:
            raise ProgramFailed(
                f"{self._last()}\n{self.name} was not ready within {timeout_seconds:g} s"
            ) from None

    def must_run(self) -> None:
        """Raise ProgramFailed if the program has ended."""
        if not self.running:
            raise ProgramFailed(
                f"{self._last()}\n{self.name} ended with exit code {self._process.returncode}"
            )

    async def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return await self._process.wait()

    async def done(self) -> None:
        """Wait for the end. Raises ProgramFailed for an exit code other than 0."""
        if await self.ended():
            self.must_run()

    def printed(self) -> str:
        """Return the output so far."""
        return self.log.read_text(errors="replace")

    def _lines(self) -> list[str]:
        return self.printed().splitlines()

    def _last(self) -> str:
        return "\n".join([f"{self.log}:", *self._lines()[-_TAIL_LINES:]])


class Daemon(Program):
    """A daemon of this project: `serves` waits for its `--ready-file`. Each start needs a name of its own."""

    def __init__(self, name: str, command: Sequence[str | Path], logs: Path) -> None:
        self._ready_file = logs / f"{name.replace(' ', '-')}.ready.json"
        super().__init__(name, [*command, "--ready-file", self._ready_file], logs)

    async def serves(self, timeout_seconds: float) -> Mapping[str, Any]:
        """Wait until the daemon serves; return its name and addresses. Raises ProgramFailed."""
        await self._until(lambda: self._ready_file.exists() or None, timeout_seconds)
        facts: dict[str, Any] = json.loads(self._ready_file.read_text())
        return facts


def _end_with_parent() -> None:
    """Let Linux end a program whose parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def memory_bytes(pid: int) -> int:
    """Return the private memory of a process in bytes, without mapped files; 0 if unknown."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:")), 0
    )
