"""Background tasks of a daemon: started in one place, named, watched, cancelled on stop.

A task that fails is logged and counted. It is then restarted after a pause or, if the daemon is useless
without it, stops the daemon.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from .demand import Demand

log = logging.getLogger("rmq.tasks")

Sleep = Callable[[float], Awaitable[None]]
Work = Callable[[], Coroutine[Any, Any, None]]
# A period in seconds, or a function that returns it: a changed setting takes effect in the next round.
Period = float | Callable[[], float]

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0


class DaemonRestart(Exception):
    """Raised by a task with STOP_DAEMON: the daemon stops gracefully, and its process starts it again."""


class OnDeath(enum.Enum):
    """The consequence of a task's failure."""

    RESTART = "restart"
    STOP_DAEMON = "stop daemon"


@dataclass(slots=True)
class TaskStatistics:
    """Plain counters of one task, read by the metrics collector."""

    failures: int = 0
    running: bool = False


class TaskSupervisor:
    """Owns the background tasks of one daemon. All methods belong to the loop's thread.

    `on_fatal(name, error)` is called once when a task with STOP_DAEMON has failed. `sleep` is the clock.
    """

    def __init__(
        self, on_fatal: Callable[[str, BaseException], None], *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._on_fatal = on_fatal
        self._sleep = sleep
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self.statistics: dict[str, TaskStatistics] = {}

    def start(self, name: str, work: Work, *, on_death: OnDeath = OnDeath.RESTART) -> None:
        """Run `work` until it returns or `stop` is called; afterwards `name` is free again.

        Raises ValueError if a task of that name runs, RuntimeError after `stop`.
        """
        if self._stopping:
            raise RuntimeError(f"task {name!r} cannot start: the daemon is stopping")
        if name in self._tasks:
            raise ValueError(f"a task {name!r} is running already")
        statistics = self.statistics.setdefault(name, TaskStatistics())
        task = asyncio.get_running_loop().create_task(
            self._watch(name, work, on_death, statistics), name=name
        )
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    def every(
        self,
        name: str,
        period_seconds: Period,
        action: Callable[[], Awaitable[None] | None],
        *,
        first_after_seconds: float | None = None,
        demand: Demand | None = None,
    ) -> None:
        """Run `action` periodically, after a pause before each run (`first_after_seconds` before the first).

        An action that fails is logged and counted, and runs again after the next pause. With a `demand`, each
        pause begins only when there is work.
        """
        statistics = self.statistics.setdefault(name, TaskStatistics())

        async def rounds() -> None:
            pause = first_after_seconds
            while True:
                if demand is not None:
                    await demand.wait()
                await self._sleep(_seconds(period_seconds) if pause is None else pause)
                pause = None
                try:
                    outcome = action()
                    if outcome is not None:
                        await outcome
                except Exception:
                    statistics.failures += 1
                    log.exception("task round failed task=%s next_in_s=%.1f", name, _seconds(period_seconds))

        self.start(name, rounds)

    @property
    def names(self) -> list[str]:
        """Names of the tasks that run now."""
        return sorted(self._tasks)

    async def cancel(self, name: str) -> None:
        """Cancel one task, if it runs, and wait until it has ended."""
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self, timeout_seconds: float = 5.0) -> None:
        """Cancel all tasks and start no more; a task that does not end in time is logged and abandoned."""
        self._stopping = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_seconds)
            for task in late:
                log.error(
                    "task abandoned, not ended in time task=%s limit_s=%.1f", task.get_name(), timeout_seconds
                )

    async def _watch(self, name: str, work: Work, on_death: OnDeath, statistics: TaskStatistics) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            statistics.running = True
            began = asyncio.get_running_loop().time()
            try:
                await work()
                return
            except DaemonRestart as restart:
                log.warning("restarting the daemon task=%s cause=%s", name, restart)
                self._on_fatal(name, restart)
                return
            except Exception as error:
                statistics.failures += 1
                if on_death is OnDeath.STOP_DAEMON:
                    log.exception("task failed, stopping the daemon task=%s", name)
                    self._on_fatal(name, error)
                    return
                if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE_SECONDS:
                    pause = _FIRST_PAUSE_SECONDS  # it had run well for a while: another failure
                log.exception("task failed, restarting it task=%s restart_in_s=%.1f", name, pause)
            finally:
                statistics.running = False
            await self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _seconds(period: Period) -> float:
    return period if isinstance(period, (int, float)) else period()
