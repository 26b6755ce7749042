"""`rmq-broker` over a disk that a test controls: `broker_process OPTIONS -- ARGUMENTS OF RMQ-BROKER`.

Before each flush the file given by `--faults` is read, so that a test can change it meanwhile. Its JSON keys:

    delay_seconds   duration of the flush
    error           if true, the flush fails with EIO. Its data is lost for good: as on Linux, later flushes
                    succeed without the pages that could not be written
    only            restricts the fault to files with this text in their path

Each flush that a fault concerned adds a byte to a file beside it, `met`.

`--clock` names a file with an int64 in native order: the ms by which the wall clock is ahead.

With `--memory`, flushed data is kept for a power cut (`tests/support/power_loss.py`). With `--strict-names`,
a file whose folder was not flushed is then gone, or has its old name. With `--no-flush`, no flush is made and
the broker is not told: tests must notice.
"""

from __future__ import annotations

import argparse
import errno
import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rmq_broker import build
from rmq_broker.clock import Clocks, SteadyClock
from rmq_broker.main import main as broker_main
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.power_loss import SyncedMemory


def main() -> int:
    own, arguments = _split(sys.argv[1:])
    options = _parser().parse_args(own)
    memory = None
    if options.memory:
        memory = SyncedMemory(options.root, options.memory, strict_names=options.strict_names)
    if options.clock:
        _set_clock(options.clock)
    sys.argv = ["rmq-broker", *arguments]
    seen = (None, None) if memory is None else (memory.pin, memory.written)
    with intercepted_flushes(_handler(options, memory), *seen):
        return broker_main()


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--strict-names", action="store_true")
    parser.add_argument("--faults", type=Path)
    parser.add_argument("--no-flush", action="store_true")
    parser.add_argument("--clock", type=Path)
    return parser


def _set_clock(path: Path) -> None:
    with path.open("r+b") as file:
        ahead = mmap.mmap(file.fileno(), 8)

    def now_seconds() -> float:
        (ahead_ms,) = struct.unpack("q", ahead[:])
        return time.time() + float(ahead_ms) / 1000

    def now_ms() -> int:
        return int(now_seconds() * 1000)

    clocks = Clocks(now_ms, now_seconds, SteadyClock(now_ms))
    setattr(build, "system_clocks", lambda: clocks)  # noqa: B010 (mypy: it is not for others)


def _handler(options: argparse.Namespace, memory: SyncedMemory | None) -> Callable[[FlushCall], bool]:
    def handle(call: FlushCall) -> bool:
        if options.no_flush:
            return False
        faults = json.loads(options.faults.read_text()) if options.faults else {}
        concerned = bool(faults) and faults.get("only", "") in call.path
        if concerned:
            with options.faults.with_name("met").open("ab") as met:
                met.write(b".")
        if concerned and faults.get("error"):
            if memory is not None:
                memory.lost(call)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if memory is not None:
            memory.flushed(call)
        if concerned:
            # Later writes are not part of this flush.
            time.sleep(faults.get("delay_seconds", 0))
        return memory is None  # otherwise the memory is the disk

    return handle


if __name__ == "__main__":
    sys.exit(main())
