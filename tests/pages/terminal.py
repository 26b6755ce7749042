"""A person at a terminal in a checkout, who types the commands of a page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.support.code_blocks import ROOT
from tests.support.waiting import until_in_thread

_ENDS_WITHIN_SECONDS: Final = 60.0
# What `make` and the programs write, and the environment of this Python, which the checkout gets otherwise.
_OWN: Final = (".git", ".venv", "build", "data", "dist")

# Settings of this project, and those of the `make` that runs the tests.
_NOT_INHERITED: Final = ("RMQ_", "NAMESRV_", "MAKE", "MFLAGS")


def inherited() -> dict[str, str]:
    """Return the environment without settings of this project and of the `make` that runs the tests."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_NOT_INHERITED)}


class Terminal:
    """`with Terminal(folder, network) as terminal`: the folder becomes a checkout with everything installed.

    `network`: words before a command that runs it in the network of the test.
    """

    def __init__(self, folder: Path, network: Sequence[str]) -> None:
        self.folder = folder
        self._network = network
        self._session: list[str] = []
        self._programs: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}

    def __enter__(self) -> Self:
        for path in ROOT.iterdir():
            if path.name not in _OWN:
                (self.folder / path.name).symlink_to(path)
        environment = self.folder / ".venv"
        environment.mkdir()
        for path in Path(sys.prefix).iterdir():
            if not path.name.startswith("."):
                (environment / path.name).symlink_to(path)
        (self.folder / "home").mkdir()
        # Everything that `make run` and `make pipeline` need counts as installed.
        self.run("make --touch run install")
        return self

    def __exit__(self, *_: object) -> None:
        for process, _log in self._programs.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def keep(self, command: str) -> None:
        """Let a command precede all further ones, as in the same shell."""
        self._session.append(command)

    def run(self, command: str, stdin: str = "") -> tuple[int, str]:
        """Run a command to its end; return exit code and output."""
        done = subprocess.run(
            self._words(command),
            cwd=self.folder,
            env=self._environment(),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_ENDS_WITHIN_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def start(self, name: str, command: str, shows: str) -> None:
        """Start a command that runs until `interrupt(name)`, and wait until it shows a text."""
        log = self.folder / f"{len(self._programs)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self._words(command),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._programs[name] = (process, log)
        with suppress(TimeoutError):
            until_in_thread(
                lambda: shows in log.read_text() or process.poll() is not None, _ENDS_WITHIN_SECONDS
            )
        assert shows in log.read_text(), f"{command} does not show {shows!r}:\n{log.read_text()}"

    def interrupt(self, name: str) -> None:
        """Press Ctrl-C in the terminal of a started command, and wait for its end."""
        process, log = self._programs[name]
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(_ENDS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} does not end after Ctrl-C:\n{log.read_text()}") from None
        assert "Traceback" not in log.read_text(), f"{name}:\n{log.read_text()}"

    def _words(self, command: str) -> list[str]:
        return [*self._network, "sh", "-c", "\n".join(["set -e", *self._session, command])]

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**inherited(), "HOME": str(self.folder / "home"), "PATH": path, "COLUMNS": "200"}
