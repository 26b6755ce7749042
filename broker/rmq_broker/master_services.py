"""The services that one broker of a group runs for all of them, and their switch.

They deliver delayed and timed messages, check transactions, and redeliver popped messages. Each of them moves
messages within the log, so the master runs them, and its replicas do not. (Apache RocketMQ 5.3.3,
BrokerController.changeSpecialServiceStatus.)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFileError

from .static_topics.cleaning import CLEANING_SECONDS
from .store.api import StoreError

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from .services import Services
    from .static_topics.cleaning import MappingCleaner

log = logging.getLogger("rmq.broker.master_services")

_UNREADABLE = (OSError, StoreError, ConfigFileError)


class MasterServicesError(Exception):
    """The state that the services continue from cannot be read."""


class MasterServices:
    """Owns whether these services run; belongs to the loop's thread.

    `start` continues from the progress that this broker has: its own, or the progress that it has taken over
    from its master as a replica. On a replica the services act for the absent master: they write nothing to
    the log, and store due messages with another master. A broker that changes its role calls `stop` before
    and `start` after the change.
    """

    def __init__(self, services: Services, cleaner: MappingCleaner, supervisor: TaskSupervisor) -> None:
        self._services = services
        self.mapping_cleaner = cleaner
        self._supervisor = supervisor
        self._one_change = asyncio.Lock()
        self.are_running = False

    async def start(self) -> None:
        """Load the state in flight, and start the services, unless they run. Raises MasterServicesError.

        The store accepts messages already. After an error no service runs, and `start` can be repeated.
        """
        async with self._one_change:
            if self.are_running:
                return
            try:
                await self._load()
            except MasterServicesError:
                self._forget()
                raise
            self._start_tasks()
            self.are_running = True
            log.info("services of a master started")

    async def stop(self) -> None:
        """Stop the services of a running broker: each finishes its message under way. Raises OSError.

        Their progress is flushed and written, so that `start`, here or on another broker that takes over the
        log and the files, repeats nothing. Requests of POP and transactions must be refused already.
        """
        async with self._one_change:
            if not self.are_running:
                return
            try:
                await self._stop_tasks()
                await self._save()
            finally:
                self._forget()
            log.info("services of a master stopped")

    # --- at the stop of the broker ---

    async def halt(self) -> None:
        """Stop the services while the store is open; `close` follows once it is closed. Raises OSError."""
        async with self._one_change:
            if self.are_running:
                await self._stop_tasks()

    async def close(self, *, ran: bool) -> None:
        """Write the last progress and close the files; the store is closed. Raises OSError.

        `ran`: the services ran until `halt`, so there is progress to write if the log is flushed.
        """
        services = self._services
        all_is_flushed = ran and services.storage.store.all_is_flushed
        await services.delivery.close(all_is_flushed=all_is_flushed)
        await services.timers.close(all_is_flushed=all_is_flushed)
        if ran and self._finish(all_is_flushed=all_is_flushed):
            await services.offsets.flusher.close()

    # --- inside ---

    async def _load(self) -> None:
        """Load popped messages and prepared transactions in flight."""
        services = self._services
        try:
            await services.pops.load()
            # With the first message, the offset in the journal that POP counts from must be on the disk.
            await services.offsets.flusher.save()
        except _UNREADABLE as error:
            raise MasterServicesError(f"unacknowledged popped messages cannot be read: {error}") from error
        try:
            await services.transactions.load()
        except _UNREADABLE as error:
            raise MasterServicesError(f"transactions under way cannot be read: {error}") from error

    def _start_tasks(self) -> None:
        services, supervisor = self._services, self._supervisor
        services.delivery.start_delivering(supervisor)
        services.timers.start_delivering(supervisor)
        services.pops.start_reviving(supervisor)
        services.transactions.start_tasks(supervisor)
        supervisor.every("clean mappings", CLEANING_SECONDS, self.mapping_cleaner.clean_in_time)

    async def _stop_tasks(self) -> None:
        """Stop the highest service first; the tasks end even if a file cannot be written. Raises OSError."""
        services, supervisor = self._services, self._supervisor
        self.are_running = False
        await supervisor.cancel("clean mappings")
        await services.pops.stop_reviving(supervisor)
        await services.transactions.stop_tasks(supervisor)
        await services.delivery.stop_delivering(supervisor)
        await services.timers.stop_delivering(supervisor)
        await services.pops.stop()
        await services.transactions.stop()

    async def _save(self) -> None:
        """Write the last progress, which the flushed log holds. Raises OSError."""
        services = self._services
        await asyncio.to_thread(services.storage.store.flush_log)
        self._finish(all_is_flushed=True)
        await services.delivery.save_offsets()
        await services.timers.save()
        await services.offsets.flusher.save()

    def _forget(self) -> None:
        self._services.pops.forget()
        self._services.transactions.forget()

    def _finish(self, *, all_is_flushed: bool) -> bool:
        """Commit the progress of POP and transactions; return whether there are offsets to write."""
        services = self._services
        pops_moved = services.pops.finish(all_is_flushed=all_is_flushed)
        transactions_moved = services.transactions.finish(all_is_flushed=all_is_flushed)
        return pops_moved or transactions_moved
