"""The life of a daemon's process: from the command line to the exit code.

    0  a graceful shutdown            (SIGTERM or SIGINT)
    1  a failure: the daemon could not start or continue, or did not stop in time
    2  a bad command line or configuration: reported by a message without a stack trace

A daemon that is ready to serve prints one line, beginning with `ready`, to standard output. With
`--ready-file` it has written the same facts to that file before, and it removes the file when it begins to
stop. Everything else goes to standard error. The first signal begins a graceful shutdown, a second one ends
the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeVar

from ..allocator import keep_freed_memory
from ..build_form import IS_COMPILED, why_interpreted
from .configuration import SettingsError
from .descriptor_reserve import RESERVE
from .ready import Ready
from .tasks import DaemonRestart, TaskSupervisor

log = logging.getLogger("rmq.daemon")

EXIT_CLEAN: Final = 0
EXIT_FAILURE: Final = 1
EXIT_BAD_CONFIGURATION: Final = 2

# Packages that the daemons import and a plain install lacks, with their extras in pyproject.toml.
_EXTRAS: Final = {
    **dict.fromkeys(("crcmod", "cryptography", "structlog", "yaml"), "broker"),
    **dict.fromkeys(("google", "grpc", "grpc_health", "grpc_reflection"), "proxy"),
}
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A few of the largest pull responses; the memory of frames near the limit is returned to the system.
_KEPT_BYTES: Final = 8 * 1024 * 1024


class StartError(Exception):
    """A daemon cannot start for a reason that the operator can fix: shown without a stack trace."""


class Daemon(Protocol):
    """A name server or a broker, as `run_daemon` runs it."""

    async def start(self) -> Ready:
        """Start serving, and return the facts to announce. Raises StartError.

        `stop` is called even if this raises or is cancelled.
        """
        ...

    async def stop(self) -> None:
        """Shut down gracefully: accept nothing more, drain requests in flight, flush, unregister."""
        ...


# Builds a daemon in the running loop; its background tasks belong to the supervisor. Raises StartError.
# A build that raises or is cancelled must clean up itself: there is no daemon yet that could be stopped.
Build = Callable[[TaskSupervisor], Coroutine[Any, Any, Daemon]]

_T = TypeVar("_T")


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Bad settings become a message and exit code 2, a package
    that is not installed becomes a message and exit code 1.

    `command` gets the arguments (by default those of the process) and returns its exit code. It runs without
    cycle collections until `prepare_process`: modules leave few cycles, and collections among them take a
    tenth of the start.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        code = command(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return code
    except SettingsError as error:
        print(f"{_program_name()}: bad configuration", file=sys.stderr)
        for problem in error.problems:
            print(f"  {problem}", file=sys.stderr)
        return EXIT_BAD_CONFIGURATION
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        needs = "gRPC needs" if extra == "proxy" else "the daemons need"
        print(
            f"{_program_name()}: the package {error.name} is not installed: {needs} the extra `{extra}`, "
            f"pip install 'rmq[{extra}]'",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_FAILURE
    except BrokenPipeError:
        # `--print-config | head`: the reader has gone, and Python would report that at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    finally:
        if collects:
            gc.enable()


def run_daemon(
    build: Build,
    *,
    ready_file: Path | None = None,
    ready_text: Callable[[Ready], str] = Ready.line,
    stop_timeout_seconds: float = 30.0,
    watchdog_seconds: float = 5.0,
) -> int:
    """Run a daemon until a signal or a failure ends it, and return the exit code.

    `ready_file` exists while the daemon serves. `ready_text` returns the text after `ready ` of the printed
    line.

    If the graceful shutdown exceeds its time-out, the process ends at once with exit code 1. If the loop
    hangs or threads do not end, it ends `watchdog_seconds` later. After a `DaemonRestart` the process starts
    itself again. A fatal signal, as SIGBUS, ends it with the
    stacks of all threads on standard error.
    """
    with contextlib.suppress(RuntimeError):  # there is no standard error
        # A page of a mapped file that the disk cannot read ends the process by SIGBUS.
        faulthandler.enable()
    if not IS_COMPILED:
        log.info("hot path interpreted, at about twice the CPU per message cause=%s", why_interpreted())
    raise_file_limit()
    RESERVE.fill()
    keep_freed_memory(_KEPT_BYTES)
    threads_before = set(threading.enumerate())
    life = _Life(build, ready_file, ready_text, stop_timeout_seconds, watchdog_seconds)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(life.run())
            if life.overdue:
                _exit_now(EXIT_FAILURE)
        for thread in set(threading.enumerate()) - threads_before:
            if not thread.daemon:
                thread.join()  # as the interpreter does at exit, but within the watchdog's time
    except RuntimeError as error:
        # The loop's end starts a thread, which fails where memory is short.
        if not life.is_over:
            raise
        log.warning("threads not awaited at the end of the process cause=%s", error)
        _exit_now(EXIT_FAILURE if life.failed else EXIT_CLEAN)
    finally:
        life.watchdog.cancel()
    if life.restarts and not life.failed:
        _start_again()
    return EXIT_FAILURE if life.failed else EXIT_CLEAN


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's maximum; connections and queues need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            log.warning("limit of open files not raised limit=%d wanted=%d cause=%s", soft, hard, error)


class _Life:
    """One run of a daemon: start, announcement, wait for the end, stop."""

    def __init__(
        self,
        build: Build,
        ready_file: Path | None,
        ready_text: Callable[[Ready], str],
        stop_timeout_seconds: float,
        watchdog_seconds: float,
    ) -> None:
        self._build = build
        self._ready_file = ready_file
        self._ready_text = ready_text
        self._is_announced = False
        self._stop_timeout_seconds = stop_timeout_seconds
        self._end = asyncio.Event()
        self.failed = False
        self.overdue = False
        self.restarts = False
        self.is_over = False
        # Ends the process after the time-out if its loop hangs or its threads do not end.
        self.watchdog = threading.Timer(stop_timeout_seconds + watchdog_seconds, _give_up)
        self.watchdog.daemon = True

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_loop_error)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        supervisor = TaskSupervisor(self._task_died)
        daemon = await self._completed(self._build(supervisor))
        if daemon is None:
            self._start_watchdog()  # a DNS look-up that hangs may keep a thread alive
            return
        try:
            await self._completed(self._started(daemon))
            await self._end.wait()
        finally:
            await self._stop(daemon, supervisor)
            self.is_over = True

    async def _started(self, daemon: Daemon) -> None:
        ready = await daemon.start()
        if self._ready_file is not None:
            try:
                ready.write(self._ready_file)
            except OSError as error:
                raise StartError(f"the file of --ready-file cannot be written: {error}") from error
        self._is_announced = True
        print(f"ready {self._ready_text(ready)}", flush=True)

    def _withdraw(self) -> None:
        """Remove the ready file, unless it is that of another process: this one has not served then."""
        if self._ready_file is None or not self._is_announced:
            return
        try:
            self._ready_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("file of --ready-file not removed cause=%s", error)

    def _start_watchdog(self) -> None:
        try:
            self.watchdog.start()
        except RuntimeError as error:
            # Short of memory. A stop without a watchdog is better than none.
            log.error("watchdog of the shutdown not started cause=%s", error)

    async def _completed(self, step: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of a step of the start; None, once logged, if a signal or a failure ended it."""
        working = asyncio.ensure_future(step)
        ending = asyncio.ensure_future(self._end.wait())
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait((working,), timeout=self._stop_timeout_seconds)
        if not working.done():
            log.error("start not cancelled in time, ending the process")
            self.overdue = self.failed = True
            return None
        try:
            return await working
        except asyncio.CancelledError:
            log.info("stopped before the daemon was ready")
        except StartError as error:
            self._fail("cannot start: %s", error)
        except Exception:
            self._fail("cannot start", exc_info=True)
        return None

    async def _stop(self, daemon: Daemon, supervisor: TaskSupervisor) -> None:
        self._start_watchdog()
        self._withdraw()
        try:
            async with asyncio.timeout(self._stop_timeout_seconds):
                await daemon.stop()
                await supervisor.stop()
        except TimeoutError:
            self.overdue = True
            limit = self._stop_timeout_seconds
            self._fail("graceful shutdown timed out, ending the process limit_s=%.1f", limit, exc_info=True)
        except Exception:
            self._fail("graceful shutdown failed", exc_info=True)
        else:
            log.info("stopped")

    def _signalled(self, number: signal.Signals) -> None:
        log.info("stopping signal=%s", number.name)
        # The next signal is handled by the system itself, so it works even if the interpreter hangs.
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        self._end.set()

    def _task_died(self, name: str, error: BaseException) -> None:
        if isinstance(error, DaemonRestart):
            self.restarts = not self._end.is_set()  # a signal that came before counts
            self._end.set()
            return
        self._fail("stopping, a task failed task=%s cause=%s", name, error)

    def _fail(self, message: str, *arguments: object, exc_info: bool = False) -> None:
        log.error(message, *arguments, exc_info=exc_info)
        self.failed = True
        self._end.set()


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of a callback or a connection; if memory is short, with advice instead of a traceback."""
    if not isinstance(context.get("exception"), MemoryError):
        loop.default_exception_handler(context)
        return
    connection = context.get("protocol")
    log.error(
        "out of memory connection=%s; it is closed. Allow more memory, or fewer and smaller requests",
        getattr(connection, "peer", "none"),
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, which doubles the throughput, or None for asyncio's own if it is missing."""
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 (not available on every platform)

        return uvloop.new_event_loop
    return None


def _start_again() -> NoReturn:
    """Replace this process by a new one with the same command line."""
    logging.shutdown()
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)


def _give_up() -> None:
    log.error("process does not end, killing it; stacks of its threads follow")
    faulthandler.dump_traceback(all_threads=True)
    _exit_now(EXIT_FAILURE)


def _exit_now(code: int) -> NoReturn:
    """Exit without waiting for threads or tasks that hang."""
    logging.shutdown()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _program_name() -> str:
    return os.path.basename(sys.argv[0]) or "daemon"  # noqa: PTH119 (a name, not a file)
