"""The metadata of a replica follows that of its master (Apache RocketMQ 5.3.3, SlaveSynchronize).

Apache's slave takes over everything each minute, and the timer's checkpoint every 3 s. Here most parts are
taken over every 10 s. Besides, a master of this version tells in the figures of request 28 when its topics,
groups or request modes have changed. The replica asks for these figures each second. Apache's master does not
tell, and is asked for the end of its log only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.errors import BodyError, HeaderError, RequestError

from .master import Master, MetadataError

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

    from ...clock import ClockMs
    from .log_barrier import LogBarrier
    from .part import Part

log = logging.getLogger("rmq.broker.replication")

# The pause between two rounds: is a part due, has the master changed, can held answers be applied?
_TICK_SECONDS: Final = 1.0
_EXPECTED: Final = (RequestError, MetadataError, BodyError, HeaderError, OSError)
_CONNECTION: Final = "connection"
_STATE: Final = "state of the master"


@dataclass(slots=True)
class PartState:
    """The state of one part, for logs and metrics."""

    failures: int = 0
    is_failing: bool = False
    synced_ms: int | None = None  # by the steady clock
    due_ms: int = 0


class MetadataSync:
    """Takes over the parts of the metadata, each apart; belongs to the loop's thread."""

    def __init__(
        self,
        client: RemotingClient,
        master_address: Callable[[], str | None],
        parts: Sequence[Part],
        barrier: LogBarrier,
        steady_ms: ClockMs,
        on_away: Callable[[], None],
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`master_address` returns the address that clients of the master connect to; None without a master.

        `client` signs its requests if the master checks users. `on_away` is called in each round without the
        master; it may raise OSError. While it `is_paused`, nothing is taken over: this broker acts as the
        master, or the master has not taken over its progress yet.
        """
        self._is_paused = is_paused
        self._client = client
        self._master_address = master_address
        self._parts = parts
        self._barrier = barrier
        self._steady_ms = steady_ms
        self._on_away = on_away
        names = (_CONNECTION, _STATE, *[part.name for part in parts])
        self.states = {name: PartState() for name in names}
        self._wake = asyncio.Event()
        self.one_at_a_time = asyncio.Lock()
        self._master: Master | None = None
        self._metadata_version = ""

    # --- for the broker ---

    async def run(self) -> None:
        """Follow the master until cancelled."""
        while True:
            self._wake.clear()
            await self._round(everything=False)
            await self._pause()

    async def sync_all(self) -> None:
        """Take over every part now; answers that have to wait for the log are applied by `run`, later."""
        await self._round(everything=True)

    @property
    def waiting(self) -> int:
        """The number of answers that wait for the log."""
        return len(self._barrier)

    def wake(self) -> None:
        """Take over every part soon: the master's address has changed, or the log is replicated again."""
        self._everything_due()
        self._wake.set()

    # --- a round ---

    async def _round(self, *, everything: bool) -> None:
        """Take over the parts that are due, and apply the answers that the log allows."""
        async with self.one_at_a_time:
            if self._is_paused():
                if self._master_address() is None:
                    self._without_master()
                return
            master = self._current_master()
            if master is None or not await self._is_reachable(master):
                self._without_master()
                return
            if self._metadata_version:
                await self._look_at_master(master)
            now_ms = self._steady_ms()
            for part in self._parts:
                state = self.states[part.name]
                if everything or now_ms >= state.due_ms:
                    state.due_ms = now_ms + int(part.period_seconds * 1000)
                    await self._guarded(part.name, part.sync(master))
            if self._barrier.needs_end:
                await self._look_at_master(master)
            for name, apply in self._barrier.take_reached():
                await self._guarded(name, apply())

    def _without_master(self) -> None:
        try:
            self._on_away()
        except OSError as error:
            log.warning(
                "queues not read, so topics that are new to this replica stay unknown cause=%s", error
            )

    def _current_master(self) -> Master | None:
        address = self._master_address()
        if address != (None if self._master is None else self._master.address):
            log.info(
                "metadata is taken from another master master=%s before=%s",
                address or "none",
                "none" if self._master is None else self._master.address,
            )
            self._master = None if address is None else Master(self._client, address)
            self._metadata_version = ""
            self._barrier.clear()
            for part in self._parts:
                part.master_changed()
            self._everything_due()
        return self._master

    async def _is_reachable(self, master: Master) -> bool:
        """Connect to the master; everything is due after it was away."""
        was_away = self.states[_CONNECTION].is_failing
        await self._guarded(_CONNECTION, master.connect())
        is_away = self.states[_CONNECTION].is_failing
        if was_away and not is_away:
            self._everything_due()
        return not is_away

    async def _look_at_master(self, master: Master) -> None:
        """Ask for the end of the master's log, and whether its metadata has changed."""
        before = self._metadata_version

        async def look() -> None:
            state = await master.state()
            self._barrier.master_ends_at(state.log_end)
            self._metadata_version = state.metadata_version

        await self._guarded(_STATE, look())
        if before != self._metadata_version:
            for part in self._parts:
                if part.is_versioned:
                    self.states[part.name].due_ms = 0

    async def _guarded(self, name: str, work: Awaitable[None]) -> None:
        """Do a part's work; its failure does not stop the other parts, and is logged once."""
        state = self.states.setdefault(name, PartState())  # answers held for the log have names of their own
        try:
            await work
        except Exception as error:
            state.failures += 1
            if not state.is_failing:
                log.warning(
                    "metadata not taken from the master, retrying part=%s master=%s cause=%s",
                    name,
                    "none" if self._master is None else self._master.address,
                    error,
                    exc_info=not isinstance(error, _EXPECTED),
                )
            state.is_failing = True
        else:
            if state.is_failing:
                log.info("metadata taken from the master again part=%s", name)
            state.is_failing = False
            state.synced_ms = self._steady_ms()

    def _everything_due(self) -> None:
        for state in self.states.values():
            state.due_ms = 0

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_TICK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass
