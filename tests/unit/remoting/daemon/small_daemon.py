"""A daemon for the tests of the life cycle; `--fault` selects its fault."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from rmq_remoting.daemon.command_line import command_parser, load_from, print_config
from rmq_remoting.daemon.lifecycle import StartError, run_command, run_daemon
from rmq_remoting.daemon.logs import configure_logs
from rmq_remoting.daemon.ready import Ready
from rmq_remoting.daemon.tasks import DaemonRestart, OnDeath, TaskSupervisor

from .sample_settings import HouseSettings, known_keys

log = logging.getLogger("rmq.test")


class SmallDaemon:
    def __init__(self, supervisor: TaskSupervisor, fault: str) -> None:
        self._supervisor = supervisor
        self._fault = fault

    async def start(self) -> Ready:
        if self._fault == "cannot start":
            raise StartError("cannot listen on 0.0.0.0:80: it is in use")
        if self._fault == "crashes at start":
            raise ZeroDivisionError
        if self._fault == "starts slowly":
            log.info("starting")
            await asyncio.Event().wait()
        if self._fault == "task dies":
            self._supervisor.start("flush", self._die, on_death=OnDeath.STOP_DAEMON)
        if self._fault == "restarts" and "SMALL_DAEMON_RESTARTED" not in os.environ:
            self._supervisor.start("flush", self._restart, on_death=OnDeath.STOP_DAEMON)
        if self._fault == "page is gone":
            _touch_missing_page()
        if self._fault == "thread stays":
            threading.Thread(target=time.sleep, args=(60,)).start()
        return Ready(name="small", address="127.0.0.1:80")

    async def stop(self) -> None:
        log.info("graceful shutdown begins")
        if self._fault == "stop hangs":
            await asyncio.Event().wait()
        if self._fault == "loop hangs":
            time.sleep(60)  # noqa: ASYNC251 (that is the fault)
        if self._fault == "stop fails":
            raise ZeroDivisionError

    async def _restart(self) -> None:
        os.environ["SMALL_DAEMON_RESTARTED"] = "yes"
        raise DaemonRestart("its log is truncated")

    async def _die(self) -> None:
        raise OSError("no disk")


def _touch_missing_page() -> None:
    """Access a mapped page that the file does not have; one that the disk cannot read has the same effect."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapped:
            file.truncate(0)
            mapped[0]


def command(arguments: Sequence[str]) -> int:
    parser = command_parser("small", "A small daemon.")
    parser.add_argument("--fault", default="")
    parser.add_argument("--door", type=int)
    options = parser.parse_args(arguments)
    configuration = load_from(options, HouseSettings, known_keys, {"--door": ("door", options.door)})
    if options.print_config:
        print_config(configuration)
        return 0
    configure_logs()

    async def build(supervisor: TaskSupervisor) -> SmallDaemon:
        if options.fault == "cannot be built":
            raise StartError("brokerIP1=nowhere cannot be resolved")
        if options.fault == "is built slowly":
            log.info("building")
            await asyncio.Event().wait()
        return SmallDaemon(supervisor, options.fault)

    # Times that no test waits for are longer than a busy machine takes.
    hangs, is_killed = options.fault == "stop hangs", options.fault in ("thread stays", "loop hangs")
    return run_daemon(
        build,
        ready_file=options.ready_file,
        stop_timeout_seconds=0.3 if hangs or is_killed else 20.0,
        watchdog_seconds=0.2 if is_killed else 20.0,
    )


if __name__ == "__main__":
    sys.exit(run_command(command))
