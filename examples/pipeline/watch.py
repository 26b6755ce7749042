"""Watches a run: prints the progress of replay and job on a line every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from examples.pipeline.check import Work
from examples.pipeline.programs import Program, ProgramFailed, memory_bytes
from examples.pipeline.records import Follower

_LOOK_SECONDS: Final = 0.1
_STANDSTILL_SECONDS: Final = 240.0
_MIB: Final = 1 << 20


class Watch:
    """Messages sent and read so far, from the progress records of replay and job."""

    def __init__(
        self,
        work: Work,
        programs: Sequence[Program],
        broker: Program | None,
        tell_every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`programs`: processes that must keep running; the list may change.

        `broker`: the process whose memory is reported.
        """
        self._replay = Follower(work.replay_progress)
        self._job = Follower(work.job_progress)
        self._programs = programs
        self._broker = broker
        self._clock = clock
        self.sent = 0
        self.read = 0
        self.ends: dict[tuple[str, int], int] = {}
        """Where the last batch ended in each queue, by broker and number of the queue."""
        self.last_batch = -1
        self.retired_queues = 0
        self.duplicates = 0
        self.batches = 0
        self.watermark: datetime | None = None
        self.most_memory_bytes = 0
        self._printer = _ProgressPrinter(tell_every_seconds, clock())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the condition. Raises ProgramFailed if a program ends, or no progress is made for too
        long.
        """
        before = (self.sent, self.read, self.batches)
        changed = self._clock()
        while not condition():
            for program in self._programs:
                program.must_run()
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()
            now = self._clock()
            self._printer.print_if_due(self, now)
            if (here := (self.sent, self.read, self.batches)) != before:
                before, changed = here, now
            elif now - changed > _STANDSTILL_SECONDS:
                logs = ", ".join(str(program.log) for program in self._programs)
                raise ProgramFailed(f"no message was sent or read for {_STANDSTILL_SECONDS:g} s: see {logs}")

    def look(self) -> None:
        """Read new progress records."""
        for record in self._replay.take():
            self.sent = record["sent"]
        for record in self._job.take():
            self.read = record["read"]
            self.ends = {(broker, queue): offset for broker, queue, offset in record["ends"]}
            self.last_batch = record["batch"]
            self.retired_queues = record["retired"]
            self.duplicates += record["duplicates"]
            self.batches += 1
            if record["watermark"]:
                self.watermark = datetime.fromisoformat(record["watermark"])
        if self._broker is not None:
            self.most_memory_bytes = max(self.most_memory_bytes, memory_bytes(self._broker.pid))

    def __str__(self) -> str:
        memory = f"  broker {self.most_memory_bytes // _MIB} MiB" if self.most_memory_bytes else ""
        repeated = f"  duplicates dropped {self.duplicates}" if self.duplicates else ""
        retired = f"  queues retired {self.retired_queues}" if self.retired_queues else ""
        closed = (
            f"  closed up to {self.watermark:%H:%M}" if self.watermark and self.watermark.year > 1970 else ""
        )
        lag = f"lag {max(0, self.sent - self.read):,}"
        return f"{lag}  batches {self.batches}{closed}{repeated}{retired}{memory}"


class _ProgressPrinter:
    """Prints the progress at intervals, with the rates since the last line."""

    def __init__(self, every_seconds: float, now: float) -> None:
        self._every_seconds = every_seconds
        self._began = self._last = now
        self._sent = self._read = 0

    def print_if_due(self, watch: Watch, now: float) -> None:
        passed = now - self._last
        if passed < self._every_seconds:
            return
        sending, reading = (watch.sent - self._sent) / passed, (watch.read - self._read) / passed
        self._last, self._sent, self._read = now, watch.sent, watch.read
        print(
            f"{now - self._began:5.0f} s  sent {watch.sent:,} ({sending:,.0f}/s)  "
            f"read {watch.read:,} ({reading:,.0f}/s)  {watch}",
            flush=True,
        )
