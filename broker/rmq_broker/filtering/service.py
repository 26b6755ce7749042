"""The filter service: the filters that groups subscribed with, and their file `consumerFilter.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from .bit_maps import BitMaps
from .expressions import Expressions
from .filter_table import SWEEP_FILTERS_SECONDS, ConsumerFilterTable
from .message_filters import MessageFilters

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clients.consumers import ConsumerTable
    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings


class FilterService:
    """Filters of one broker. Everything except `load` belongs to the loop."""

    def __init__(self, settings: BrokerSettings, consumers: ConsumerTable, now_ms: ClockMs) -> None:
        expressions = Expressions(settings)
        self.table = ConsumerFilterTable(settings, expressions, now_ms)
        self.filters = MessageFilters(settings, expressions, self.table, consumers.find_subscription)
        self.bit_maps = BitMaps(settings, self.table)
        self.file = ConfigFile(settings.config_dir / "consumerFilter.json", self.table)
        consumers.on_subscriptions(self.table.register)
        consumers.on_change(self.table.members_changed)

    def load(self) -> None:
        """Read the file. Raises ConfigFileError; blocks."""
        self.file.load()

    def start(self, newest_stored_ms: int, *, after_clean_stop: bool) -> None:
        """Write the file after each change from now on.

        `newest_stored_ms`: store time of the newest message. After a crash the bit maps of older messages
        may have been made by other filters than the file holds, so they are not used.
        """
        self.table.on_change(self.file.changed)
        self.table.stored_until(newest_stored_ms)
        if not after_clean_stop:
            self.table.invalidate_bit_maps()

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks."""
        supervisor.every("consumer filters", SWEEP_FILTERS_SECONDS, self.table.forget_dead)
