"""Files through which the job and the test that kills it communicate."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# Workers find the folder through this variable: they inherit the environment of the job.
HOME_VARIABLE = "RMQ_KILL_JOB_HOME"


@dataclass(frozen=True, slots=True)
class ReadMark:
    """A file that exists while a worker reads a task. It remains if the worker is killed."""

    path: Path

    @classmethod
    def of(cls, folder: Path, pid: int, brokers: set[str]) -> Self:
        return cls(folder / f"{pid}@{'+'.join(sorted(brokers))}")

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return int(self.path.name.partition("@")[0])

    @property
    def brokers(self) -> list[str]:
        """Names of the brokers that the worker reads from."""
        return self.path.name.partition("@")[2].split("+")

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Create the file until the block ends."""
        self.path.touch()
        try:
            yield
        finally:
            self.path.unlink(missing_ok=True)


class JobFiles:
    """The folder of one job. Its checkpoint and its output outlive the job's processes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.output = home / "output"
        self.checkpoint = Checkpoint(home / "checkpoint")
        self.marks_folder = home / "marks"
        # While this file exists, a written batch waits before Spark may commit it.
        self.hold = home / "hold"
        self.stop = home / "stop"
        self._batches = home / "batches"

    @classmethod
    def of_environment(cls) -> Self:
        """Return the files of the job that a worker belongs to."""
        return cls(Path(os.environ[HOME_VARIABLE]))

    def make(self) -> None:
        self.marks_folder.mkdir(parents=True, exist_ok=True)

    def marks(self) -> list[ReadMark]:
        """Return the marks of reads in progress, and of reads whose worker was killed."""
        return [ReadMark(path) for path in self.marks_folder.iterdir()]

    def note(self, what: str, batch: int) -> None:
        """Append `begin` or `written` with the number of a batch."""
        with self._batches.open("a") as file:
            file.write(f"{what} {batch}\n")

    def notes(self) -> list[tuple[str, int]]:
        """Return the notes of all runs of the job."""
        if not self._batches.exists():
            return []
        lines = self._batches.read_text().split("\n")[:-1]  # the last line may be incomplete
        return [(what, int(batch)) for what, _, batch in (line.partition(" ") for line in lines)]


class Checkpoint:
    """Spark's checkpoint: `offsets` has the planned batches, `commits` the finished ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._planned = _Numbered(path / "offsets")
        self._committed = _Numbered(path / "commits")
        self._parsed: tuple[int, dict[str, dict[int, int]]] = (-1, {})

    @property
    def planned(self) -> int:
        """The newest planned batch; -1 for none."""
        return self._planned.newest()

    @property
    def committed(self) -> int:
        """The newest committed batch; -1 for none."""
        return self._committed.newest()

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return the end offsets of the committed batches by broker and queue, for a single topic."""
        batch = self.committed
        if batch != self._parsed[0]:
            text = (self.path / "offsets" / str(batch)).read_text()
            # The file has a version, the batch's metadata, and an offset for each source.
            (nested,) = json.loads(text.splitlines()[2]).values()
            by_broker = {
                broker: {int(queue): at for queue, at in queues.items()} for broker, queues in nested.items()
            }
            self._parsed = batch, by_broker
        return self._parsed[1]

    def count(self, broker: str) -> int:
        """Return the number of committed messages of a broker whose queues begin at 0."""
        return sum(self.offsets().get(broker, {}).values())


class _Numbered:
    """A folder of files 0, 1, 2 …, of which Spark deletes the old ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest = -1

    def newest(self) -> int:
        """Return the newest number without listing the folder: it is called very often."""
        while (self._folder / str(self._newest + 1)).exists():
            self._newest += 1
        return self._newest
