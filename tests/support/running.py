"""A running foreign program: its events as it prints them, and lines for its standard input."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from tests.support.outcome import Event, ForeignProgramFailed, Outcome, outcome_of
from tests.support.processes import Finished, kill_group

_POLL_SECONDS = 0.01


class RunningProgram:
    """`with RunningProgram(command, stderr_path) as program`: killed at the end if it still runs.

    Not bound to an event loop: tests with a loop each may share it by a fixture of the session.
    """

    def __init__(
        self, command: Sequence[str], stderr_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = tuple(command)
        self._stderr_path = stderr_path
        self._lines: list[str] = []
        self._events: list[Event] = []
        self._started = time.monotonic()
        with stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        self._stdin, stdout = _pipes(self._process)
        self._reader = threading.Thread(target=self._read, args=(stdout,), name="foreign-program-reader")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._reader.is_alive()

    @property
    def events(self) -> list[Event]:
        """All events so far."""
        return list(self._events)

    def named(self, name: str) -> list[Event]:
        """The events of that name so far."""
        return [event for event in self.events if event["event"] == name]

    async def wait_for(self, name: str, count: int = 1, timeout_s: float = 30) -> list[Event]:
        """Wait for `count` events of a name; return all of them. Raises ForeignProgramFailed at its end."""
        await self._wait_until(lambda: len(self.named(name)) >= count, f"{count} x {name!r}", timeout_s)
        return self.named(name)

    async def shows(self, pattern: str, timeout_s: float = 30) -> str:
        """Wait for a line that matches a regular expression, and return it. For programs without events.

        Raises ForeignProgramFailed if the program ends before.
        """
        found: list[str] = []

        def find() -> bool:
            found.extend(line for line in self._lines if re.search(pattern, line))
            return bool(found)

        await self._wait_until(find, f"line like {pattern!r}", timeout_s)
        return found[0]

    def write_line(self, line: str) -> None:
        """Write a line to its standard input. Raises ForeignProgramFailed if it has ended."""
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise ForeignProgramFailed(f"has ended, cannot read {line!r}: {self._story()}") from error

    async def stop(self, timeout_s: float = 30) -> Outcome:
        """Ask it to shut its client down and end; return its outcome."""
        with suppress(ForeignProgramFailed):  # it has ended by itself; its outcome says why
            self.write_line("stop")
        return await self.outcome(timeout_s)

    async def outcome(self, timeout_s: float) -> Outcome:
        """Wait until it ends by itself; return its outcome."""
        await self._wait_until(lambda: not self._reader.is_alive(), "its end", timeout_s)
        seconds = time.monotonic() - self._started
        exit_code = self._process.wait()
        return outcome_of(
            Finished(self._command, exit_code, "".join(self._lines), self._stderr(), seconds=seconds)
        )

    def kill(self) -> None:
        """SIGKILL its process group, so that no server gets an unregistration."""
        if self._process.poll() is None:
            kill_group(self._process.pid)
            self._process.wait()
        self._reader.join()
        with suppress(BrokenPipeError):  # a line that was not read before the kill
            self._stdin.close()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                text = line.decode(errors="replace")
                self._lines.append(text)
                with suppress(ValueError):  # outcome() parses the lines again and reports it
                    self._events.append(json.loads(text))

    async def _wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            # The condition is checked once more after the end is known.
            if not self._reader.is_alive() and not condition():
                raise ForeignProgramFailed(f"ended before {what}: {self._story()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} in {timeout_s:g} s: {self._story()}")
            await asyncio.sleep(_POLL_SECONDS)

    def _story(self) -> str:
        said = "".join(self._lines[-20:])
        return f"{' '.join(self._command[-12:])}\n{said}\n--- stderr\n{self._stderr()}"

    def _stderr(self) -> str:
        return self._stderr_path.read_text(errors="replace")[-4000:]


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout
