"""The job as processes: its driver is a Python program and a JVM, and has Python workers."""

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
    """What of the driver is killed."""

    PROGRAM = "the Python program"
    JVM = "the JVM"
    BOTH = "both at once"


class JobEnded(AssertionError):
    """By itself, and before it was to."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"the job ended with {code}: {log}")
        self.code = code


class SparkJob:
    """`tests.spark.kill.job`, started again and again on the same folder."""

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
        """True; JobEnded where it has ended by itself."""
        code = self.process.exit_code
        if code is not None:
            raise JobEnded(code, self.process.log_tail())
        return True

    async def kill_worker(self, mark: ReadMark) -> bool:
        """SIGKILL to the worker that reads; whether that was in the middle, or its read was over before."""
        # A process id may become somebody else's.
        if mark.pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(mark.pid, signal.SIGKILL)
            await until(lambda: mark.pid not in self._pids(), _END_SECONDS)
        return mark.exists

    async def kill_driver(self, victim: Victim) -> None:
        """SIGKILL to it; what is left of the job ends by itself then, which is waited for."""
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
        """Until it has ended; AssertionError where not well."""
        code = await self.process.wait(_END_SECONDS)
        if code != 0:
            raise JobEnded(code, self.process.log_tail())

    async def stop(self) -> None:
        """Have it end by itself."""
        self.files.stop.touch()
        await self.wait()

    def close(self) -> None:
        """Kill all of it that is still there."""
        if self._process is not None:
            for pid in self._pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.kill()

    def _pids(self) -> dict[int, str]:
        """Of all its processes, workers included: they share the session that was made for it."""
        found = [_Stat.read(path) for path in Path("/proc").glob("[0-9]*/stat")]
        return {
            stat.pid: stat.name
            for stat in found
            if stat is not None and stat.session == self.process.pid and stat.state not in "ZX"
        }


@dataclass(frozen=True, slots=True)
class _Stat:
    """Of /proc/PID/stat (Linux)."""

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
