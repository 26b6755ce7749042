"""The transaction service: builds the parts of transactions, loads their state, and keeps them running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from ..clock import Clocks
from .check_requests import CheckRequests
from .checks import Checks
from .ending import Ending
from .half_messages import HalfMessages
from .metrics_file import HalfCounts, HalfCountsKeeper
from .op_messages import OpMessages
from .preparing import Preparing
from .progress import LOOK_SECONDS, Progress
from .recovery import Recovery
from .resumption import Resumption

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clients.producers import ProducerTable
    from ..delivery.elsewhere import Elsewhere
    from ..delivery.message_writer import MessageWriter
    from ..offsets.table import ConsumerOffsetTable
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable


class TransactionService:
    """Transactions of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        producers: ProducerTable,
        offsets: ConsumerOffsetTable,
        store: MessageStore,
        writer: MessageWriter,
        store_host: bytes,
        clocks: Clocks,
        elsewhere: Elsewhere,
    ) -> None:
        """`store_host`: this broker's address as records hold it. `elsewhere`: as of `Checks`."""
        now_ms = clocks.now_ms
        self._store = store
        self.halves = HalfMessages()
        self.ops = OpMessages(settings, writer, store, store_host, now_ms)
        self.progress = Progress(offsets, self.halves, self.ops, store)
        self.preparing = Preparing(settings, writer, self.halves, clocks)
        self.ending = Ending(settings, topics, writer, self.halves, self.ops, clocks)
        self.check_requests = CheckRequests(producers, settings.broker_name)
        self.checks = Checks(
            settings, topics, store, writer, self.halves, self.ops, self.check_requests, clocks, elsewhere
        )
        self.resumption = Resumption(writer, self.halves, now_ms)
        counts = HalfCounts(self.halves, now_ms)
        self._counts_file = ConfigFile(settings.config_dir / "transactionMetrics", counts)
        self._counts_keeper = HalfCountsKeeper(counts, self._counts_file, settings)

    async def load(self) -> None:
        """Recover the open transactions. Raises ConfigFileError, OSError."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._counts_file.load)
        recovery = Recovery(self._store, self.halves, self.ops)
        superseded = await loop.run_in_executor(None, recovery.run, *self.progress.begins())
        if not self._store.is_replica:
            for offset in superseded:
                self.ops.add(offset)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks; those of a replica write no messages."""
        supervisor.every("transaction checks", self.checks.period_seconds, self.checks.run)
        supervisor.every("transaction progress", LOOK_SECONDS, self.progress.look)
        if self._store.is_replica:
            return
        supervisor.every("transaction ends", self.ops.period_seconds, self.ops.write, demand=self.ops.demand)
        supervisor.every("transaction counts", self._counts_keeper.period_seconds, self._counts_keeper.write)

    async def stop_tasks(self, supervisor: TaskSupervisor) -> None:
        """Stop checking transactions and committing progress after the check under way; `stop` follows."""
        for name in ("transaction checks", "transaction ends", "transaction progress", "transaction counts"):
            await supervisor.cancel(name)

    async def stop(self) -> None:
        """Write the collected ends and the counts while the store is open. Raises OSError.

        `finish` follows once the log is flushed.
        """
        if not self._store.is_replica:
            self.ops.write()
        self.progress.stop()
        await self._counts_keeper.save()

    def forget(self) -> None:
        """Forget the transactions in progress, after `stop` and `finish`; `load` may follow."""
        self.halves.clear()
        self.ops.clear()

    async def close(self) -> None:
        """Write the file a last time. Raises OSError."""
        await self._counts_file.close()

    def finish(self, *, all_is_flushed: bool) -> bool:
        """Commit the progress once the whole log is flushed, as after the store was closed.

        Otherwise the noted ends of transactions may be lost, and with progress committed past them these
        transactions would not be checked again. Returns whether offsets changed, which their owner writes.
        """
        return all_is_flushed and self.progress.finish()
