"""Keeps one shard running: starts its process, and restarts it after its end or when it does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from rmq_remoting.backoff import Backoff
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.errors import ConnectionClosed

from .child import CLEAN_END
from .liveness import SILENT_SECONDS, until_silent

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.ready import Ready

    from .child import Child
    from .plan import ShardPlan
    from .shard_link import ShardLink

log = logging.getLogger("rmq.shards")

_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 30.0
# After such a run an end counts as the first failure again.
_LONG_RUN_SECONDS: Final = 60.0

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


class ShardRunner:
    """One shard: its process, one after the other, and their connection to the supervisor."""

    def __init__(
        self,
        plan: ShardPlan,
        link: ShardLink,
        new_child: Callable[[], Child],
        *,
        sleep: Sleep = asyncio.sleep,
        clock: Clock,
        backoff: Backoff | None = None,
        until_silent: Callable[[Connection, Sleep], Awaitable[None]] = until_silent,
    ) -> None:
        """`clock` returns seconds. `until_silent` returns when a process does not answer any more."""
        self.plan = plan
        self.restarts = 0
        self.hangs = 0
        self.is_ready = False
        self._link = link
        self._new_child = new_child
        self._sleep = sleep
        self._clock = clock
        self._backoff = backoff or Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._until_silent = until_silent
        self._child: Child | None = None
        self._is_stopping = False
        self._first_ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._end_cause = CLEAN_END
        self._ended = asyncio.Event()
        self._ended.set()

    async def first_ready(self) -> Ready:
        """Return the facts of the first process. Raises StartError if it ends before it announces them."""
        return await asyncio.shield(self._first_ready)

    async def run(self) -> None:
        """Run the process until `stop` is called, or until its first start fails."""
        failures = 0
        while not self._is_stopping:
            began = self._clock()
            cause = await self._run_once()
            if self._is_stopping:
                return
            if not self._first_ready.done():
                self._first_ready.set_exception(
                    StartError(f"{self.plan.broker_name} has ended ({cause}); its log lines say why")
                )
                self._first_ready.exception()  # retrieved, even if another shard has failed before
                return
            failures = 1 if self._clock() - began > _LONG_RUN_SECONDS else failures + 1
            pause = self._backoff.pause(failures)
            log.error(
                "shard ended, restarting it shard=%s cause=%s restart_in_s=%.1f",
                self.plan.broker_name,
                cause,
                pause,
            )
            await self._sleep(pause)
            self.restarts += 1

    async def stop(self, timeout_seconds: float) -> bool:
        """Let the process shut down gracefully, and wait for its end; kill it after the time-out.

        Return whether the shutdown was a graceful one.
        """
        self._is_stopping = True
        if not self._first_ready.done():
            self._first_ready.cancel()
        if self._child is None:
            return True
        self._child.ask_to_stop()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ended.wait()
        except TimeoutError:
            log.error(
                "shard not stopped in time, killing it shard=%s limit_s=%.0f",
                self.plan.broker_name,
                timeout_seconds,
            )
            if self._child is not None:
                self._child.kill()
            await self._ended.wait()
        return self._end_cause == CLEAN_END

    # --- internals ---

    async def _run_once(self) -> str:
        """Start the process and wait for its end; return the cause."""
        child = self._new_child()
        self._child = child
        self._ended.clear()
        try:
            self._end_cause = await self._watch(child)
            return self._end_cause
        finally:
            # Not before the end of the process, unless this task is cancelled.
            self.is_ready = False
            self._child = None
            self._ended.set()

    async def _watch(self, child: Child) -> str:
        self._link.begin()
        try:
            connection = await child.start()
        except OSError as error:
            return f"its process cannot be started: {error}"
        if self._is_stopping:
            child.ask_to_stop()
        helpers = [
            asyncio.ensure_future(self._link.run(connection)),
            asyncio.ensure_future(self._look_after(child, connection)),
            asyncio.ensure_future(_stop_without(connection, child)),
        ]
        try:
            return await child.ended()
        except BaseException:
            child.kill()  # another process on the same ports and files would fail
            raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            connection.abort()

    async def _look_after(self, child: Child, connection: Connection) -> None:
        """Note when the process is ready, and kill it when it does not answer any more."""
        ready = await child.ready()
        if ready is None:
            return
        self.is_ready = True
        log.info("shard ready shard=%s restarts=%d", self.plan.broker_name, self.restarts)
        if not self._first_ready.done():
            self._first_ready.set_result(ready)
        try:
            await self._until_silent(connection, self._sleep)
        except ConnectionClosed:
            return
        if self._is_stopping:
            return
        self.hangs += 1
        log.error(
            "shard does not answer, killing it shard=%s silent_s=%.0f hangs=%d",
            self.plan.broker_name,
            SILENT_SECONDS,
            self.hangs,
        )
        child.kill()


async def _stop_without(connection: Connection, child: Child) -> None:
    """Stop a process whose connection has ended: it would no longer get the topics of the others."""
    await connection.wait_closed()
    child.ask_to_stop()
