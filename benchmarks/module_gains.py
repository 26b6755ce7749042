"""The gain of each compiled module: the bytecode instructions per request that its source executes.

The gain of a module is about proportional to its bytecode instructions, since compiling it removes their
interpretation. This program replays the loads of benchmarks.instructions against an interpreted broker, in
which a trace function counts. An interpreted broker executes up to twice the machine instructions of a
compiled one. So a module with one per cent of the bytecode saves at most about one per cent of a request.

Attributes of an object are faster to read if its module is compiled, which the counts do not show. So check a
shorter list of modules with benchmarks.instructions.

The table has the bytecode instructions per request by module and load. The last column is the module's
largest share of any load in per cent, and sorts the table. Modules that are not compiled have an asterisk.

python -m benchmarks.module_gains                        all loads, with binary headers
python -m benchmarks.module_gains --serialization JSON   all loads, with JSON headers
python -m benchmarks.module_gains --only send            one load; may be repeated
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from benchmarks.instructions import LOADS, SERIALIZATIONS, Broker, Requests, Subject, broker
from compiling.sources import compiled_modules
from rmq_broker import main as broker_main
from tests.support.waiting import until_in_thread

_ROOT: Final = Path(__file__).resolve().parents[1]
_MODULES: Final = frozenset(str(path) for path in _ROOT.glob("*/rmq_*/**/*.py"))
_COMPILED: Final = {str(path) for path in compiled_modules(_ROOT).values()}
_WRITTEN_WITHIN_SECONDS: Final = 30.0


class _Counts:
    """Counts the bytecode instructions of each module in this process, in all threads started later."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._counts: Counter[str] = Counter()

    def start(self) -> None:
        """Count from now on; a SIGUSR1 writes the counts into the file and resets them."""
        # A thread waits for the signal, since uvloop would not call a handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        threading.Thread(target=self._write, daemon=True).start()
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in _MODULES:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._count

    def _count(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self._counts[frame.f_code.co_filename] += 1
        return self._count

    def _write(self) -> None:
        while True:
            signal.sigwait({signal.SIGUSR1})
            counts, self._counts = self._counts, Counter()
            new = self._result.with_suffix(".new")
            new.write_text(json.dumps({str(Path(path).relative_to(_ROOT)): n for path, n in counts.items()}))
            new.rename(self._result)


async def _per_request(name: str, serialization: str) -> dict[str, float]:
    """Return the bytecode instructions per request of a load, by module."""
    load, files = LOADS[name], list[Path]()

    def command(subject: Subject, file: Path) -> list[str]:
        files.append(file)
        return [str(subject.python), "-m", "benchmarks.module_gains", "--count-into", str(file)]

    async with broker(Subject.interpreted(), load, command) as running:
        requests = Requests(serialization)
        await running.prepare(requests, load)
        _take_counts(running, files[0])
        await running.run(requests, load, load.rounds)
        counts = _take_counts(running, files[0])
    number = load.requests(load.rounds)
    return {path: count / number for path, count in counts.items()}


def _take_counts(running: Broker, file: Path) -> dict[str, int]:
    """Let the broker write its counts and return them. Blocks."""
    os.kill(running.pid, signal.SIGUSR1)
    until_in_thread(file.exists, _WRITTEN_WITHIN_SECONDS)
    counts: dict[str, int] = json.loads(file.read_text())
    file.unlink()
    return counts


def _table(results: dict[str, dict[str, float]]) -> str:
    """Return the counts by module and load in Markdown, the module with the largest share of a load first."""
    totals = {load: sum(counts.values()) for load, counts in results.items()}
    gains = dict.fromkeys(_COMPILED, 0.0)
    for load, counts in results.items():
        for path, count in counts.items():
            gains[path] = max(gains.get(path, 0), count / totals[load])
    lines = [f"| module | {' | '.join(results)} | largest share, % |", "|---" * (2 + len(results)) + "|"]
    lines.append(f"| all | {' | '.join(f'{total:,.0f}' for total in totals.values())} | |")
    for path, gain in sorted(gains.items(), key=lambda item: (-item[1], item[0])):
        cells = " | ".join(f"{counts.get(path, 0):,.1f}" for counts in results.values())
        mark = "" if path in _COMPILED else " *"
        lines.append(f"| {path}{mark} | {cells} | {100 * gain:.2f} |")
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:2] == ["--count-into"]:  # in the broker's process
        _Counts(Path(sys.argv[2])).start()
        del sys.argv[1:3]
        return broker_main.main()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=LOADS, help="a load; may be repeated")
    parser.add_argument("--serialization", choices=SERIALIZATIONS, default="ROCKETMQ", help="of the headers")
    chosen = parser.parse_args()
    names = chosen.only or list(LOADS)
    print(_table({name: asyncio.run(_per_request(name, chosen.serialization)) for name in names}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
