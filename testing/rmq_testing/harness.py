"""A name server and a broker for tests: their life, faults, time and topics.

Its coroutines run on a loop of its own, which also serves the name server. The broker has another loop, whose
time a test can advance, and which ends with the broker.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from . import linux  # noqa: F401  # isort: skip  # before the broker's modules
from rmq_broker.broker import Broker
from rmq_namesrv.namesrv import Namesrv
from rmq_remoting.daemon.configuration import Configuration
from rmq_remoting.daemon.lifecycle import StartError
from rmq_remoting.message_ids import UniqueKeyGenerator

from .arguments import DEFAULT_QUEUES, folder_path, queues_by_topic, seconds_of, settings_by_key
from .broker_life import BrokerLife, cut_connections
from .clock import AdvanceableClock
from .due import wait_delivered
from .faults import Faults
from .messages import create_topic, wait_announced
from .ports import LOOPBACK, free_broker_port
from .settings import application_configuration, namesrv_configuration

T = TypeVar("T")

# Two parallel test runs may choose the same port.
_START_ATTEMPTS: Final = 5


@contextmanager
def _open_access_unmentioned() -> Iterator[None]:
    """Suppress the warning that everyone may connect: only this machine can."""

    def is_other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("access is open")

    logger = logging.getLogger("rmq.audit")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


class Harness:
    """A name server and a broker in this process. Coroutines belong to one loop, that of the name server."""

    def __init__(
        self,
        *,
        topics: str | Iterable[str] | Mapping[str, int] = (),
        settings: Mapping[str, object] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Prepare both. `topics`: a name, names, or numbers of queues by name; `settings`: by Apache's keys.

        Without `folder` the files are in a temporary directory, which `stop` removes.
        """
        self.faults = Faults()
        self.clock = AdvanceableClock()
        self._topics = queues_by_topic(topics)
        self._settings = settings_by_key(settings)
        self._given_folder = folder_path(folder)
        self._namesrv: Namesrv | None = None
        self._life: BrokerLife | None = None
        self._port = 0
        self._exits = AsyncExitStack()
        self.unique_keys = UniqueKeyGenerator(
            LOOPBACK, os.getpid(), random.getrandbits(32), self.clock.now_ms
        )

    # --- life ---

    async def start(self) -> None:
        """Start the name server and the broker, and create the topics. Raises StartError, SettingsError."""
        async with AsyncExitStack() as stack:
            self.folder = self._make_folder(stack)
            self._namesrv = Namesrv(namesrv_configuration(self.folder))
            with _open_access_unmentioned():
                await self._namesrv.start()
            stack.push_async_callback(self._namesrv.stop)
            self.faults.install(self._namesrv.dispatcher)
            await self._start_somewhere()
            stack.push_async_callback(self._stop_broker)
            await self.create_topics(self._topics)
            self._exits = stack.pop_all()

    async def stop(self) -> None:
        """Shut the broker and the name server down gracefully."""
        await self._exits.aclose()

    async def kill(self) -> None:
        """End the broker as SIGKILL would; `restart` starts it again on the same files and port.

        Clients get no answer, and committed offsets of the last seconds are lost.
        """
        life, self._life = self.life, None
        await life.kill()

    async def restart(self) -> None:
        """Start the broker again on the same files and port; one that runs is shut down gracefully before."""
        await self._stop_broker()
        await self._start_broker(self._configuration(self._port))

    async def cut_connections(self) -> None:
        """Cut all connections of clients to the broker. Clients connect again."""
        await self.call(cut_connections)

    @property
    def is_running(self) -> bool:
        """Whether the broker runs: it was not killed, or was started again."""
        return self._life is not None

    @property
    def namesrv_address(self) -> str:
        """The address of the name server."""
        if self._namesrv is None:
            raise RuntimeError("the broker was not started: use `with` or `async with`")
        return self._namesrv.address

    @property
    def broker_address(self) -> str:
        """The address of the broker."""
        return f"{LOOPBACK}:{self._port}"

    # --- time ---

    async def advance(self, seconds: float | timedelta) -> None:
        """Let time pass for the broker: delays, timers, redelivery, transaction checks, expiry.

        Messages that become due are in their topics when this returns. Transaction checks have only begun.
        Consumers and producers keep the time of the machine. Raises ValueError for a negative time.
        """
        self.clock.advance(seconds_of("seconds", seconds))
        if self._life is not None:
            # The call also wakes the loop, which looks at its timers again.
            await self.life.run(wait_delivered(self.life.broker, self.clock.now_ms()))

    # --- topics ---

    async def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics with these numbers of queues, and wait until the name server knows them."""
        if not topics:
            return

        def create(broker: Broker) -> None:
            for topic, queues in topics.items():
                create_topic(broker, topic, queues)

        await self.call(create)
        await self.life.run(wait_announced(self.life.broker))

    async def create_topic(self, topic: str, queues: int = DEFAULT_QUEUES) -> None:
        """Create a topic, or change its number of queues."""
        await self.create_topics({topic: queues})

    # --- for views ---

    @property
    def life(self) -> BrokerLife:
        """The running broker. Raises RuntimeError after `kill`."""
        if self._life is None:
            raise RuntimeError("the broker does not run: call restart() after kill()")
        return self._life

    async def call(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the broker, on its loop. Raises RuntimeError after `kill`."""
        return await self.life.call(function)

    # --- start ---

    def _make_folder(self, stack: AsyncExitStack) -> Path:
        if self._given_folder is not None:
            self._given_folder.mkdir(parents=True, exist_ok=True)
            return self._given_folder
        folder = Path(tempfile.mkdtemp(prefix="rmq-testing-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    async def _start_somewhere(self) -> None:
        """Start the broker on free ports."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            self._port = free_broker_port()
            try:
                await self._start_broker(self._configuration(self._port))
                return
            except StartError:
                if attempt == _START_ATTEMPTS or "listenPort" in self._settings:
                    raise

    async def _start_broker(self, configuration: Configuration[Any]) -> None:
        life = BrokerLife(configuration, self.clock, self.faults.install)
        with _open_access_unmentioned():
            await life.start()
        self._life = life
        self._port = life.broker.port

    async def _stop_broker(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            await life.stop()

    def _configuration(self, port: int) -> Configuration[Any]:
        keys = {"listenPort": port, "namesrvAddr": self.namesrv_address, **self._settings}
        return application_configuration(self.folder / "store", keys)
