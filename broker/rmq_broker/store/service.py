"""The storage service: the message store, the space on its disks, and the deletion of old files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rmq_remoting.daemon.tasks import TaskSupervisor

from ..clock import Clocks
from .appending.bit_maps import BitMapOf
from .cleaning.cleaner import Cleaner
from .cleaning.disk_space import DiskSpace
from .message_store import MessageStore
from .settings import PullSettings, QuerySettings, ReplicationSettings, StoreSettings


class StorageService:
    """Storage of one broker, created in its running event loop."""

    def __init__(
        self,
        settings: StoreSettings,
        pull_settings: PullSettings,
        query_settings: QuerySettings,
        replication: ReplicationSettings,
        is_batch: Callable[[str], bool],
        bit_map_of: BitMapOf,
        clocks: Clocks,
    ) -> None:
        """`is_batch` returns whether a topic stores batches as wholes, `bit_map_of` which filters match."""
        self.store = MessageStore(
            settings,
            pull_settings,
            query_settings,
            clocks.now_seconds,
            replication=replication,
            is_batch=is_batch,
            bit_map_of=bit_map_of,
            call_soon=asyncio.get_running_loop().call_soon,
            may_wait=False,
        )
        self.disk = DiskSpace(settings, self.store.health)
        self.cleaner = Cleaner(
            self.store.commit_log, self.store.queues, (self.store.index,), self.disk, settings, clocks
        )
        self._opening_or_closing = asyncio.Lock()

    async def open(self) -> None:
        """Open the store and recover it after a crash. Raises StoreDamaged, OSError.

        Cancelling the caller does not end a recovery: `close` waits for it.
        """
        await asyncio.shield(self._open())

    async def _open(self) -> None:
        async with self._opening_or_closing:
            await asyncio.get_running_loop().run_in_executor(None, self.store.open)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the store's flushing, and the deletion of old files."""
        self.store.start()
        supervisor.start("cleaning", self.cleaner.run)

    async def close(self) -> None:
        """Flush and close the store; one that could not be opened stays as it was found. Raises OSError."""
        async with self._opening_or_closing:
            await self.cleaner.stop()
            await self.store.stop()
