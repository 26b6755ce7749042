"""Processes of tests and benchmarks: time limits, resource usage, and no process that outlives its test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import until_in_thread

_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 4000
_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a process has used so far (Linux: read from /proc).

    `cpu_seconds` is user and system time of all threads; `rss_bytes` counts mapped files such as a
    broker's commit log, `anonymous_bytes` does not.
    """

    cpu_seconds: float
    rss_bytes: int
    anonymous_bytes: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read the usage of process `pid`; OSError if there is none."""
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        return cls(
            cpu_seconds=cpu_seconds(Path(f"/proc/{pid}/stat")),
            rss_bytes=_kilobytes(status["VmRSS"]),
            anonymous_bytes=_kilobytes(status["RssAnon"]),
        )


def cpu_seconds(stat: Path) -> float:
    """Return user and system time by the file `stat` of a process, or of one of its threads (Linux)."""
    # The command name in parentheses may hold anything; after its last ')' comes field 3.
    fields = stat.read_text().rpartition(")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / _CLOCK_TICKS_PER_SECOND


def _kilobytes(text: str) -> int:
    return int(text.split(maxsplit=1)[0]) * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ran to its end."""

    command: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{' '.join(self.command[-12:])}\nexit code {self.exit_code} after {self.seconds:.1f} s\n"
            f"--- stdout\n{self.stdout[-_LOG_TAIL_BYTES:]}\n--- stderr\n{self.stderr[-_LOG_TAIL_BYTES:]}"
        )


async def run_command(
    command: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end; TimeoutError, with its output, after `timeout_s`.

    After a time-out or a cancellation its process group is killed.
    """
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    output = asyncio.ensure_future(process.communicate())
    try:
        done, _ = await asyncio.wait([output], timeout=timeout_s)
    finally:
        if process.returncode is None:
            kill_group(process.pid)
        stdout, stderr = await output
    finished = Finished(
        command=tuple(command),
        exit_code=await process.wait(),
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
        seconds=time.monotonic() - started,
    )
    if not done:
        raise TimeoutError(f"not finished after {timeout_s:g} s: {finished}")
    return finished


def kill_group(leader_pid: int) -> None:
    """SIGKILL the process group of a leader that was not waited for yet, so that its id is still its own."""
    with suppress(ProcessLookupError):
        os.killpg(leader_pid, signal.SIGKILL)


def interrupt(process: subprocess.Popen[str], timeout_seconds: float = 20) -> None:
    """Send SIGINT to a program of asyncio once it waits for events.

    `asyncio.run` notices a SIGINT late that arrives just before the loop waits: with its next event.
    """
    status = Path(f"/proc/{process.pid}/stat")
    until_in_thread(lambda: status.read_text().rpartition(") ")[2][0] == "S", timeout_seconds)
    process.send_signal(signal.SIGINT)


class ServerProcess:
    """A process that runs until it is stopped, its output in a file. Not bound to an event loop."""

    def __init__(
        self, command: Sequence[str], *, log_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = tuple(command)
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def usage(self) -> Usage:
        return Usage.of(self.pid)

    def log_tail(self) -> str:
        """The last lines of its output."""
        return self.log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    @property
    def says_ready(self) -> bool:
        """Whether it is a daemon of this project, of any version, that has printed its ready line."""
        return "\nready " in f"\n{self.log_tail()}"

    async def wait(self, timeout_s: float) -> int:
        """Wait for its end and return the exit code. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while (code := self._process.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.command[-4:]} still runs after {timeout_s:g} s: {self.log_tail()}")
            await asyncio.sleep(_POLL_SECONDS)
        return code

    async def stop(self, timeout_s: float = 30) -> int:
        """Send SIGTERM, and wait; after the time-out kill the group and raise TimeoutError."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return await self.wait(timeout_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL its process group, and wait for its end."""
        if self._process.poll() is None:
            kill_group(self.pid)
            self._process.wait()
