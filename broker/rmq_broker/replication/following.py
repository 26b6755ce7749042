"""The replica's end: it follows its master's log, and truncates its own where the two differ.

Source: Apache RocketMQ 5.3.3, DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rmq_remoting.backoff import Backoff
from rmq_remoting.daemon.file_errors import advice_for
from rmq_remoting.daemon.tasks import DaemonRestart

from ..registration.master_address import MasterAddress
from ..store.api import Durability, StoreUnavailable
from .comparison import Unrelated, common_end
from .master import MasterConnection, MasterUnavailable, connected, log_extent
from .protocol import ReplicationProtocolError, Transfer

if TYPE_CHECKING:
    from rmq_remoting.client import RemotingClient

    from ..settings.replication import HaSettings
    from ..store.api import MessageStore
    from .lookup import MasterLookup

log = logging.getLogger("rmq.broker.replication")

_FIRST_PAUSE_SECONDS: Final = 0.2
_LONGEST_PAUSE_SECONDS: Final = 5.0
# How often a replica without a master looks for one.
_LOOK_SECONDS: Final = 1.0


@dataclass(slots=True)
class FollowerStatus:
    """The state of following, for status requests and metrics; times in ms since the epoch, 0: never."""

    master: MasterAddress | None = None
    is_connected: bool = False
    master_end: int = 0  # the end of the master's log, as far as it is known
    last_read_ms: int = 0
    last_write_ms: int = 0
    received_bytes: int = 0
    bytes_per_second: int = 0  # in the last whole second
    master_flushed: int = 0  # the end of what the master has flushed, as code 908 sets it
    agreed: MasterAddress | None = None  # the master whose log is, or was when it was followed, also this one
    problem: str = ""  # why the replica does not follow; empty while it does


class Follower:
    """Follows the master until cancelled; belongs to the event loop's thread."""

    def __init__(
        self,
        settings: HaSettings,
        store: MessageStore,
        client: RemotingClient,
        lookup: MasterLookup,
        now_ms: Callable[[], int],
        on_following: Callable[[], None],
    ) -> None:
        """`lookup` finds the master, `client` sends it requests; `on_following`: a connection is there."""
        self._on_following = on_following
        self._settings = settings
        self._store = store
        self._client = client
        self._lookup = lookup
        self._now_ms = now_ms
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="replication-compare")
        self._backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        self._second = 0  # the one that is counted
        self._received_before = 0  # before this second
        self._received_here = 0  # over the present connection
        self._connection: MasterConnection | None = None
        self._master_changed = asyncio.Event()
        self.status = FollowerStatus()

    async def run(self) -> None:
        """Follow the master. Raises DaemonRestart once a truncation of the log is requested."""
        failures = 0
        while True:
            self._master_changed.clear()
            master = self.status.master = await self._lookup.find()
            if master is None:
                self._failed(self._lookup.unknown)
                await self._pause(_LOOK_SECONDS)
                continue
            began = time.monotonic()
            try:
                await self._follow(master)
                failures = 0
            except Unrelated as error:
                self.status.agreed = None
                self._failed(str(error))
            except (MasterUnavailable, ReplicationProtocolError) as error:
                self._failed(str(error))
            except StoreUnavailable as error:
                self._failed(f"the store takes nothing: {error}")
            except OSError as error:
                self._failed(f"{error}{advice_for(error)}")
            except ValueError as error:
                self._failed(f"the master's bytes are refused: {error}")
            finally:
                self.status.is_connected = False
            failures = 1 if time.monotonic() - began > _LONGEST_PAUSE_SECONDS else failures + 1
            await self._pause(self._backoff.pause(failures))

    def master_changed(self) -> None:
        """Leave the present master: there is another one."""
        self._master_changed.set()
        if self._connection is not None:
            self._connection.abort()

    def close(self) -> None:
        """End the threads; after `run` has ended."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # --- inside ---

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._master_changed.wait()
        except TimeoutError:
            pass

    def _failed(self, problem: str) -> None:
        if problem != self.status.problem:
            log.warning("not following a master cause=%s; retried", problem)
        self.status.problem = problem

    async def _follow(self, master: MasterAddress) -> None:
        """Follow one master until the connection ends or another one is the master."""
        silence_seconds = self._settings.ha_housekeeping_interval_ms / 1000
        end = await self._agreed_end(master, silence_seconds)
        async with connected(master.ha, silence_seconds) as connection:
            await self._stay(master, connection, end)

    async def _agreed_end(self, master: MasterAddress, silence_seconds: float) -> int:
        """Return the end of this log once the master is known to have all of it, and the disk, too."""
        store = self._store
        end = store.max_phy_offset()
        if end:
            await self._compare(master, silence_seconds)
        # The master takes a reported offset for durable, and a crash might leave less than that.
        await asyncio.get_running_loop().run_in_executor(self._executor, store.flush_log)
        return end

    async def _stay(self, master: MasterAddress, connection: MasterConnection, end: int) -> None:
        """Take the master's log from `end`, that of this log, on."""
        connection.report(end)
        self._received_here = 0
        log.info("following the master address=%s from=%d", master.ha, end)
        self.status.problem, self.status.is_connected = "", True
        self.status.agreed = master
        self._on_following()
        self._connection = connection
        reporting = asyncio.get_running_loop().create_task(self._report_regularly(connection))
        try:
            await self._take_log(master, connection)
        finally:
            reporting.cancel()
            self._connection = None

    async def _compare(self, master: MasterAddress, silence_seconds: float) -> None:
        """Make sure that the master has this log. Raises DaemonRestart if its end has to be cut off."""
        store = self._store
        end = store.max_phy_offset()
        extent = await log_extent(self._client, master)
        self.status.master_end = extent.end
        common = await common_end(
            store, extent, self._executor, lambda: connected(master.ha, silence_seconds)
        )
        if common != end:
            await self._truncate(master, common, end)

    async def _truncate(self, master: MasterAddress, common: int, end: int) -> None:
        """Have a restart end this log, whose end is `end`, at `common`. Raises DaemonRestart."""
        log.error(
            "this log differs from the master's from offset %d on; its last %d bytes are cut off and kept in "
            "the folder `diverged` of the store: the master does not have their messages master=%s",
            common,
            end - common,
            master.ha,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._store.request_truncation, common)
        raise DaemonRestart(f"the log is truncated to {common}, where it differs from the master's")

    async def _take_log(self, master: MasterAddress, connection: MasterConnection) -> None:
        """Append what the master sends, until the connection ends or another one is the master."""
        await connection.deliver(partial(self._take, master, connection))

    def _take(self, master: MasterAddress, connection: MasterConnection, transfer: Transfer) -> None:
        """Append a transfer. Raises StoreUnavailable, ValueError, OSError."""
        if self._lookup.known != master:
            connection.leave()
            return
        store, status = self._store, self.status
        status.last_read_ms = self._now_ms()
        self._count(connection.received_bytes)
        offset, data = transfer
        status.master_end = max(status.master_end, offset + len(data))
        if data:
            store.append_data(offset, data)
            # Producers wait for the report, and nobody for the entries.
            self._report(connection)
            asyncio.get_running_loop().call_soon(self._enter, connection)

    def _enter(self, connection: MasterConnection) -> None:
        """Show consumers the messages that were appended."""
        try:
            self._store.enter_data()
        except Exception as error:  # the connection ends with it
            connection.fail(error)

    def _count(self, received_bytes: int) -> None:
        """Note the bytes of the present connection, and how many the last second had."""
        status, second = self.status, int(time.monotonic())
        if second != self._second:
            in_second = status.received_bytes - self._received_before
            status.bytes_per_second = in_second if second == self._second + 1 else 0
            self._second, self._received_before = second, status.received_bytes
        status.received_bytes += received_bytes - self._received_here
        self._received_here = received_bytes

    def _report(self, connection: MasterConnection) -> None:
        """Tell the master how far this log is, once that much of it is as durable as the settings ask."""
        store = self._store
        if not store.flushes_synchronously:
            self._send_report(connection, store.max_phy_offset())
            return
        store.when_flushed(partial(self._flushed, connection, store.max_phy_offset()))

    def _flushed(self, connection: MasterConnection, offset: int, durability: Durability) -> None:
        if durability is Durability.DURABLE:
            self._send_report(connection, offset)

    def _send_report(self, connection: MasterConnection, offset: int) -> None:
        connection.report(offset)
        self.status.last_write_ms = self._now_ms()

    async def _report_regularly(self, connection: MasterConnection) -> None:
        """Report while nothing is received, so that the master does not close the connection."""
        while True:
            await asyncio.sleep(self._settings.ha_send_heartbeat_interval_ms / 1000)
            self._report(connection)
