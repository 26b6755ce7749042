"""A temporary copy of a commit, whose files mutations and probes change, and runs of its tests."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutations.mutations import Mutation, records

ROOT: Final = Path(__file__).resolve().parents[2]
_INJECTED: Final = Path(__file__).parent / "injected"
_POLL_S: Final = 0.5
# A run that uses more is killed. Its tests use about 0.3 GiB without a mutation.
_MEMORY_BYTES: Final = 4 << 30
# All processes of a run have this variable, with a value of its own.
_MARK: Final = "RMQ_MUTATION_RUN"
_PASSED, _NOTHING_COLLECTED = 0, 5
# Rows of tests and of the fixtures that they share; the table is a sparse file.
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run of tests.

    `collected` are the names of the tests to run, `tests` the records of the finished ones, and `places` the
    places that each row reached (tests/mutations/injected/recorder.py). `failure` says how the run failed, or
    is empty. `failed_test` is the test that failed, or that ran when the run was killed or broke off.
    """

    collected: Sequence[str]
    tests: Sequence[Mapping[str, Any]]
    places: Mapping[str, Sequence[int]]
    failure: str
    failed_test: str

    @property
    def finished(self) -> set[str]:
        """Return the names of the finished tests."""
        return {str(record["test"]) for record in self.tests}


def commit_of(name: str) -> str:
    """Return the hash of a commit of this repository."""
    return _git("rev-parse", "--short=12", f"{name}^{{commit}}").decode().strip()


def extract(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as archive:
        archive.extractall(folder, filter="data")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


class Stopped(Exception):
    """A run was killed because the program ends."""


class Checkout:
    """A copy of a commit in the subfolder `code` of a folder, for one test run at a time.

    Runs are killed when `stop` is set, and raise Stopped.
    """

    def __init__(self, folder: Path, stop: threading.Event) -> None:
        self._stop = stop
        self.root = folder / "code"
        self._side = folder / "side"
        self._temporary = folder / "tmp"
        self._output = folder / "output"
        self._changes = 0
        self._side.mkdir(parents=True)
        for name in ("probe", "recorder"):
            shutil.copy(_INJECTED / f"{name}.py", self._side / f"rmq_mutation_{name}.py")

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """Apply a mutation as long as the context lasts."""
        lines = (self.root / mutation.file).read_text().split("\n")
        assert lines[mutation.line - 1] == mutation.before, mutation.id
        lines[mutation.line - 1] = mutation.after
        with self.changed({mutation.file: "\n".join(lines)}):
            yield

    @contextmanager
    def changed(self, texts: Mapping[str, str]) -> Iterator[None]:
        """Give files other texts as long as the context lasts."""
        before = {name: (self.root / name).read_text() for name in texts}
        for name, text in texts.items():
            self._write(name, text)
        try:
            yield
        finally:
            for name, text in before.items():
                self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        """Write a file with a new time of modification, so that Python ignores its old bytecode."""
        path = self.root / name
        self._changes += 1
        path.write_text(text)
        seconds = int(path.stat().st_mtime) + self._changes
        os.utime(path, (seconds, seconds))

    def run(
        self,
        files: Sequence[str],
        *,
        options: Sequence[str] = (),
        selected: Sequence[str] | None = None,
        places: int = 0,
        limit_s: Callable[[str], float],
    ) -> Outcome:
        """Run the tests of files, or the selected ones of them; without probes, `places` is 0.

        A run is killed if one test takes longer than its limit or if the processes use too much memory.
        """
        self._prepare(selected, places)
        mark = uuid.uuid4().hex
        command = [sys.executable, "-m", "pytest", "-p", "rmq_mutation_recorder", "-n", "0", "-q"]
        command += ["-p", "no:cacheprovider", f"--basetemp={self._temporary / 'p'}", *options, *files]
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment(mark),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                killed_for = self._watch(process, limit_s)
            finally:
                _kill_marked(mark)
                process.wait()
        return self._outcome(process.returncode, killed_for)

    def output(self) -> str:
        """Return the end of what the last run printed."""
        return self._output.read_text(errors="replace")[-4000:]

    def _prepare(self, selected: Sequence[str] | None, places: int) -> None:
        for name in ("selected", "outcomes", "collected", "reached", "table"):
            (self._side / name).unlink(missing_ok=True)
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir()
        if selected is not None:
            (self._side / "selected").write_text(json.dumps(selected))
        with (self._side / "table").open("wb") as table:
            table.write(struct.pack("@qq", 0, places))
            table.truncate(16 + _ROWS * places)

    def _environment(self, mark: str) -> dict[str, str]:
        settings = tomllib.loads((self.root / "pyproject.toml").read_text())
        packages = settings["tool"]["hatch"]["build"]["dev-mode-dirs"]
        folders = [self.root, *(self.root / package for package in packages), self._side]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "TMPDIR": str(self._temporary),
            "RMQ_COMPILE": "0",  # modules run from their sources
            _MARK: mark,
        }

    def _watch(self, process: subprocess.Popen[bytes], limit_s: Callable[[str], float]) -> str:
        """Wait for the end of a run. Return why it has to be killed, or an empty text."""
        finished, since = -1, time.monotonic()
        while True:
            try:
                process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return ""
            if self._stop.is_set():
                raise Stopped
            if (now_finished := self._size_of_outcomes()) != finished:
                finished, since = now_finished, time.monotonic()
            if time.monotonic() - since > limit_s(self._running()):
                return "time-out"
            if _memory_of_session(process.pid) > _MEMORY_BYTES:
                return "memory"

    def _size_of_outcomes(self) -> int:
        path = self._side / "outcomes"
        return path.stat().st_size if path.exists() else 0

    def _collected(self) -> list[str]:
        path = self._side / "collected"
        return list(json.loads(path.read_text())) if path.exists() else []

    def _running(self) -> str:
        """Return the test that runs, or an empty text while there is none."""
        collected, done = self._collected(), len(records(self._side / "outcomes"))
        return collected[done] if done < len(collected) else ""

    def _outcome(self, status: int, killed_for: str) -> Outcome:
        tests = records(self._side / "outcomes")
        reached = self._side / "reached"
        places = json.loads(reached.read_text()) if reached.exists() else {}
        failed = next((str(record["test"]) for record in tests if record["outcome"] == "failed"), "")
        reason = ""
        if failed:
            reason = "failed"
        elif killed_for or status not in (_PASSED, _NOTHING_COLLECTED):
            failed, reason = self._running(), killed_for or f"pytest ended with {status}"
        return Outcome(self._collected(), tests, places, reason, failed)


def _kill_marked(mark: str) -> None:
    """Kill the processes of a run, also those that left its session."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{_MARK}={mark}".encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue


def _memory_of_session(session: int) -> int:
    """Return the resident memory of the processes of a session, in bytes."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(values[3]) == session:
            pages += int(values[21])
    return pages * os.sysconf("SC_PAGE_SIZE")
