"""Crash points: named places where a broker under test dies at once, as by `kill -9`; for crash tests only.

`RMQ_CRASH_POINT=name` or `name:count` in the environment, together with `RMQ_TEST_BUILD=1`, ends the process
when it reaches the crash point for the `count`-th time. Without the two variables this module is not
imported. A crash point is a function that is replaced at start: the broker's code has no calls for it.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

from rmq_remoting.daemon.configuration import Problem, ProblemKind, SettingsError

from .appending.appender import Appender
from .log import commit_log as commit_log_module
from .log.commit_log import CommitLog
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queues import ConsumeQueues
from .recovery.checkpoint import Checkpoint
from .recovery.fine_checkpoint import FineCheckpoint

log = logging.getLogger("rmq.broker")

VARIABLE: Final = "RMQ_CRASH_POINT"
PERMISSION: Final = "RMQ_TEST_BUILD"

_Function = Callable[..., Any]
_Reach = Callable[[], None]


def install(environment: Mapping[str, str]) -> None:
    """Set the crash point that the environment names. Raises SettingsError if there is no such point."""
    wanted = environment[VARIABLE]
    if environment.get(PERMISSION) != "1":
        log.warning("%s=%s is ignored: it is for tests, with %s=1", VARIABLE, wanted, PERMISSION)
        return
    name, _, count = wanted.partition(":")
    if name not in POINTS or not (count or "1").isdecimal():
        reason = f"must be one of {', '.join(POINTS)}; append :2 to crash at the second time"
        raise SettingsError([Problem(ProblemKind.BAD_VALUE, VARIABLE, wanted, "environment", reason)])
    POINTS[name](_reach_on(int(count or "1")))


def _reach_on(count: int) -> _Reach:
    """Return a function that ends the process when it is called for the `count`-th time."""
    calls = itertools.count(1)

    def reach() -> None:
        if next(calls) >= count:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


# --- how functions are replaced ---


def _before(owner: object, *names: str) -> Callable[[_Reach], None]:
    return partial(_wrap, owner, names, is_before=True)


def _after(owner: object, *names: str) -> Callable[[_Reach], None]:
    return partial(_wrap, owner, names, is_before=False)


def _wrap(owner: object, names: tuple[str, ...], reach: _Reach, *, is_before: bool) -> None:
    for name in names:
        _replace(owner, name, _with(getattr(owner, name), reach, is_before))


def _replace(owner: object, name: str, function: _Function) -> None:
    setattr(owner, name, function)


def _with(function: _Function, reach: _Reach, is_before: bool) -> _Function:
    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if is_before:
            reach()
        result = function(*arguments, **options)
        if not is_before:
            reach()
        return result

    return wrapped


def _after_blank(reach: _Reach) -> None:
    """After the blank that closes a file, before the next file takes messages."""
    blanks = []
    pack_blank: _Function = getattr(commit_log_module, "pack_blank")  # noqa: B009 (it is not exported)
    files_changed: _Function = CommitLog._files_changed

    def noted(size: int) -> bytes:
        blanks.append(size)
        packed: bytes = pack_blank(size)
        return packed

    def changed(self: CommitLog) -> None:
        if blanks:
            blanks.clear()
            reach()
        files_changed(self)

    _replace(commit_log_module, "pack_blank", noted)
    _replace(CommitLog, "_files_changed", changed)


def _around_rename(is_before: bool) -> Callable[[_Reach], None]:
    """At the rename that replaces a file of the folder `config` by a new one."""

    def replace_rename(reach: _Reach) -> None:
        rename = os.replace

        def seen(source: Any, target: Any, **options: Any) -> None:
            concerned = Path(target).parent.name == "config" and Path(target).suffix == ".json"
            if concerned and is_before:
                reach()
            rename(source, target, **options)
            if concerned and not is_before:
                reach()

        _replace(os, "replace", seen)

    return replace_rename


POINTS: Final[Mapping[str, Callable[[_Reach], None]]] = {
    # Each message or batch.
    "append.before": _before(Appender, "put", "put_batch"),
    "append.after": _after(Appender, "put", "put_batch"),
    "entry.before": _before(ConsumeQueue, "put", "put_many"),
    "entry.after": _after(ConsumeQueue, "put", "put_many"),
    # Each pass of flushing.
    "log-flush.before": _before(CommitLog, "flush"),
    "log-flush.after": _after(CommitLog, "flush"),
    "queue-write.before": _before(ConsumeQueues, "write_out", "flush"),
    "queue-write.after": _after(ConsumeQueues, "write_out", "flush"),
    "checkpoint.before": _before(Checkpoint, "save"),
    "checkpoint.after": _after(Checkpoint, "save"),
    "fine-checkpoint.before": _before(FineCheckpoint, "save"),
    "fine-checkpoint.after": _after(FineCheckpoint, "save"),
    # Each commit log file.
    "roll.next-file": _after(CommitLog, "_new_file"),
    "roll.before-blank": _before(commit_log_module, "pack_blank"),
    "roll.after-blank": _after_blank,
    "roll.after": _after(CommitLog, "_files_changed"),
    # Each file in the folder `config`.
    "config-rename.before": _around_rename(is_before=True),
    "config-rename.after": _around_rename(is_before=False),
}
"""By name, a function that sets the crash point, given the function that ends the process."""
