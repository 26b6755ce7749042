"""`rmq-broker` with a probe in its event loop, which measures pauses at a roll-over of the log.

python -m benchmarks.loop_probe RESULT.json BROKER-OPTIONS...

The probe checks the clock every half millisecond; a late check is a pause. Time in which the thread was
runnable without a core is subtracted, because the load shares the machine. The probe wraps the broker and
is no part of it. It writes the file when the broker stops.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections import deque
from pathlib import Path

from rmq_broker import main as broker_main
from rmq_broker.broker import Broker
from rmq_broker.store.log.commit_log import CommitLog
from rmq_remoting.daemon.ready import Ready

_TICK_SECONDS = 0.0005
# Ticks before and after a roll-over that belong to it.
_AROUND = 20


class LoopProbe:
    """Ticks in the running loop; records pauses at roll-overs, and the longest other pause, in seconds."""

    def __init__(self, commit_log: CommitLog, file_bytes: int) -> None:
        self._log = commit_log
        self._file_bytes = file_bytes
        self._loop = asyncio.get_running_loop()
        self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._file = self._current_file()
        self._last = time.perf_counter()
        self._waited = self._waited_for_core()
        self._recent: deque[float] = deque(maxlen=_AROUND)
        self._still_at_roll = 0
        self._at_roll: list[float] = []
        self._elsewhere = 0.0
        self._tick()

    def _current_file(self) -> int:
        return self._log.max_offset // self._file_bytes

    def _waited_for_core(self) -> float:
        """Return the seconds in which this thread was runnable without running, since its start."""
        return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9

    def _tick(self) -> None:
        now, waited = time.perf_counter(), self._waited_for_core()
        pause = max(0.0, now - self._last - _TICK_SECONDS - (waited - self._waited))
        self._last, self._waited = now, waited
        self._note(pause)
        self._loop.call_later(_TICK_SECONDS, self._tick)

    def _note(self, pause: float) -> None:
        file = self._current_file()
        if file != self._file:
            self._file = file
            self._at_roll.append(max([pause, *self._recent]))
            self._still_at_roll = _AROUND
            self._recent.clear()
        elif self._still_at_roll:
            self._still_at_roll -= 1
            self._at_roll[-1] = max(self._at_roll[-1], pause)
        else:
            if len(self._recent) == _AROUND:
                self._elsewhere = max(self._elsewhere, self._recent[0])
            self._recent.append(pause)

    def write(self, path: Path) -> None:
        """Return the pauses in seconds."""
        path.write_text(json.dumps({"at_roll_over": self._at_roll, "longest_elsewhere": self._elsewhere}))


def main() -> int:
    """Run the broker with the probe."""
    result = Path(sys.argv.pop(1))
    start, stop = Broker.start, Broker.stop
    probes: list[LoopProbe] = []

    async def start_with_probe(broker: Broker) -> Ready:
        ready = await start(broker)
        probes.append(
            LoopProbe(broker.services.storage.store.commit_log, broker.settings.mapped_file_size_commit_log)
        )
        return ready

    async def stop_with_probe(broker: Broker) -> None:
        for probe in probes:
            probe.write(result)
        await stop(broker)

    # mypy refuses replaced methods with reason; here the replacement is the purpose.
    setattr(Broker, "start", start_with_probe)  # noqa: B010
    setattr(Broker, "stop", stop_with_probe)  # noqa: B010
    return broker_main.main()


if __name__ == "__main__":
    sys.exit(main())
