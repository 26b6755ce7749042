"""One run of a broker, from its start to a graceful stop or a kill, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from rmq_broker.broker import Broker
from rmq_broker.build import build_broker
from rmq_broker.settings.broker import BrokerSettings
from rmq_client.loop_thread import LoopThread
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.tasks import TaskSupervisor
from rmq_remoting.dispatch import Dispatcher

from .clock import AdvanceableClock, AdvanceableLoop

log = logging.getLogger("rmq.testing")

T = TypeVar("T")

_STOP_SECONDS: Final = 30.0


class BrokerLife:
    """A broker that runs in this process. All methods may be called from the loop of any other thread."""

    def __init__(
        self,
        configuration: Configuration[BrokerSettings],
        clock: AdvanceableClock,
        prepare: Callable[[Dispatcher], None],
    ) -> None:
        """`prepare` gets the dispatcher of each port before the broker listens."""
        self._configuration = configuration
        self._clock = clock
        self._prepare = prepare
        self._supervisor: TaskSupervisor | None = None
        self._broker: Broker | None = None
        self._thread = LoopThread("rmq-testing-broker", partial(AdvanceableLoop, clock))

    async def start(self) -> None:
        """Start the broker. Raises StartError, with nothing left running."""
        try:
            await self.run(self._start())
        except BaseException:
            await self.stop()
            raise

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(self._thread.submit(coroutine))

    async def call(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the broker, on its loop."""

        async def there() -> T:
            return function(self.broker)

        return await self.run(there())

    @property
    def broker(self) -> Broker:
        """The broker; its parts belong to its loop."""
        assert self._broker is not None, "start comes first"
        return self._broker

    async def stop(self) -> None:
        """Shut the broker down gracefully."""
        try:
            await self.run(self._stop())
        finally:
            await self._thread.stop()

    async def kill(self) -> None:
        """End the broker as SIGKILL would: nothing more is answered, and nothing more is written.

        The files stay as they are: all messages are there, and offsets are some seconds old.
        """
        try:
            await self.run(self._kill())
        finally:
            await self._thread.stop()

    # --- on the broker's loop ---

    async def _start(self) -> None:
        supervisor = self._supervisor = TaskSupervisor(_task_failed)
        broker = await build_broker(self._configuration, supervisor, self._clock.clocks)
        self._broker = broker
        for listener in (broker.listeners.main, broker.listeners.fast):
            self._prepare(listener.dispatcher)
        await broker.start()

    async def _stop(self) -> None:
        async with asyncio.timeout(_STOP_SECONDS):
            if self._broker is not None:
                await self._broker.stop()
            if self._supervisor is not None:
                await self._supervisor.stop()

    async def _kill(self) -> None:
        broker, supervisor = self.broker, self._supervisor
        assert supervisor is not None
        broker.listeners.stop_accepting()
        cut_connections(broker)
        await supervisor.stop()
        # The name server notices the end of the connection, and removes the route.
        await broker.registrar.client.stop()
        # Writers of files are tasks, too. Their writes run in threads, which end before the next start.
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()
        await broker.listeners.stop()
        broker.services.pulls.cold_reads.stop()
        broker.services.storage.store.close()
        broker.services.timers.pending.timer_log.close()


def cut_connections(broker: Broker) -> None:
    """Abort all connections of clients, on the broker's loop."""
    for listener in (broker.listeners.main, broker.listeners.fast):
        for connection in list(listener.connections):
            connection.abort()


def _task_failed(name: str, error: BaseException) -> None:
    log.error("task of the broker failed task=%s cause=%r", name, error)
