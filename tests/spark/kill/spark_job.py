"""The processes of the Spark job: its driver is a Python program and a JVM, with Python workers."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.spark.kill.job_files import JobFiles, ReadMark
from tests.support.processes import ServerProcess
from tests.support.waiting import until

_PROJECT = Path(__file__).resolve().parents[3]
_END_SECONDS = 60.0


class Victim(Enum):
    """The processes of the driver that are killed."""

    PROGRAM = "the Python program"
    JVM = "the JVM"
    BOTH = "both at once"


class JobEnded(AssertionError):
    """The job ended by itself before it was stopped."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"the job ended with {code}: {log}")
        self.code = code


class SparkJob:
    """`tests.spark.kill.job`, started repeatedly on the same folder."""

    def __init__(self, kind: str, namesrv: str, topic: str, home: Path) -> None:
        self.files = JobFiles(home)
        self.files.make()
        self._command = [sys.executable, "-m", "tests.spark.kill.job", kind, namesrv, topic, str(home)]
        self._process: ServerProcess | None = None

    def start(self) -> None:
        path = os.pathsep.join([str(_PROJECT), os.environ.get("PYTHONPATH", "")])
        self._process = ServerProcess(
            self._command,
            log_path=self.files.home / "job.log",
            environment={**os.environ, "PYTHONPATH": path},
        )

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "the job was not started"
        return self._process

    def runs(self) -> bool:
        """Return True. Raises JobEnded if the job has ended by itself."""
        code = self.process.exit_code
        if code is not None:
            raise JobEnded(code, self.process.log_tail())
        return True

    async def kill_worker(self, mark: ReadMark) -> bool:
        """Send SIGKILL to the worker that reads. Return whether its read was still in progress."""
        # The process id may have been reused by another process.
        if mark.pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(mark.pid, signal.SIGKILL)
            await until(lambda: mark.pid not in self._pids(), _END_SECONDS)
        return mark.exists

    async def kill_driver(self, victim: Victim) -> None:
        """Send SIGKILL and wait until the other processes of the job have ended by themselves."""
        (jvm,) = [pid for pid, name in self._pids().items() if name == "java"]
        for pid in {
            Victim.PROGRAM: [self.process.pid],
            Victim.JVM: [jvm],
            Victim.BOTH: [self.process.pid, jvm],
        }[victim]:
            os.kill(pid, signal.SIGKILL)
        await self.process.wait(_END_SECONDS)
        await until(lambda: not self._pids(), _END_SECONDS)

    async def wait(self) -> None:
        """Wait for the end of the job. Raises JobEnded for an exit code other than 0."""
        code = await self.process.wait(_END_SECONDS)
        if code != 0:
            raise JobEnded(code, self.process.log_tail())

    async def stop(self) -> None:
        """Ask the job to stop, and wait for it."""
        self.files.stop.touch()
        await self.wait()

    def close(self) -> None:
        """Kill all remaining processes."""
        if self._process is not None:
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.kill()

    def _pids(self) -> dict[int, str]:
        """Return pid and name of all its processes, including workers: they share its session."""
        found = [_Stat.read(path) for path in Path("/proc").glob("[0-9]*/stat")]
        return {
            stat.pid: stat.name
            for stat in found
            if stat is not None and stat.session == self.process.pid and stat.state not in "ZX"
        }


@dataclass(frozen=True, slots=True)
class _Stat:
    """Fields of /proc/PID/stat (Linux)."""

    pid: int
    name: str
    state: str
    session: int

    @classmethod
    def read(cls, path: Path) -> _Stat | None:
        try:
            head, _, rest = path.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            return None
        pid, _, name = head.partition(" (")
        state, _parent, _group, session = rest.split()[:4]
        return cls(int(pid), name, state, int(session))
