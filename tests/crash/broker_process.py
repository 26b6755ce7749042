"""`rmq-broker` over a disk that a test decides about: `broker_process OPTIONS -- ARGUMENTS OF RMQ-BROKER`.

What a flush does is asked for at every flush, in the file of `--faults`, so that it can change meanwhile:

    delay_seconds   how long it takes
    error           it fails with EIO, and what it was to bring to the disk is lost for good: as with Linux,
                    where the next flush succeeds without the pages that this one could not write
    only            it concerns files with this in their path

With `--memory` what was flushed is kept for a power cut (`tests/support/power_loss.py`). With `--no-flush`
nothing is ever flushed, and nobody is told: the tests have to notice.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rmq_broker.main import main as broker_main
from tests.support.flush_calls import FlushCall, intercepted_flushes
from tests.support.power_loss import SyncedMemory


def main() -> int:
    own, arguments = _split(sys.argv[1:])
    options = _parser().parse_args(own)
    memory = SyncedMemory(options.root, options.memory) if options.memory else None
    sys.argv = ["rmq-broker", *arguments]
    with intercepted_flushes(_handler(options, memory), None if memory is None else memory.pin):
        return broker_main()


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--faults", type=Path)
    parser.add_argument("--no-flush", action="store_true")
    return parser


def _handler(options: argparse.Namespace, memory: SyncedMemory | None) -> Callable[[FlushCall], bool]:
    def handle(call: FlushCall) -> bool:
        if options.no_flush:
            return False
        faults = json.loads(options.faults.read_text()) if options.faults else {}
        concerned = faults.get("only", "") in call.path
        if concerned and faults.get("error"):
            if memory is not None:
                memory.lost(call)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if memory is not None:
            memory.flushed(call)
        if concerned:
            # What is written from now on is not part of this flush.
            time.sleep(faults.get("delay_seconds", 0))
        return memory is None  # the memory is the disk: why wait for another one

    return handle


if __name__ == "__main__":
    sys.exit(main())
