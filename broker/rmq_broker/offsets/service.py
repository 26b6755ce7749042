"""The offset service: the groups' committed offsets with their file `consumerOffset.json`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from ..clients.first_subscriptions import FirstSubscriptions
from .broadcast import SCAN_SECONDS, BroadcastOffsets
from .flusher import OffsetFlusher, encoded_ahead
from .table import ConsumerOffsetTable

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clients.consumers import ConsumerTable
    from ..clock import Clocks
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicsChanged, TopicTable


class OffsetService:
    """Consumer offsets of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        consumers: ConsumerTable,
        store: MessageStore,
        clocks: Clocks,
    ) -> None:
        self.table = ConsumerOffsetTable(clocks.now_ms, is_replica=settings.is_replica)
        self.broadcast = BroadcastOffsets(self.table, consumers, store, settings, clocks.steady_ms)
        self.file = ConfigFile(
            settings.config_dir / "consumerOffset.json",
            self.table,
            prepare=partial(encoded_ahead, self.table),
        )
        self.flusher = OffsetFlusher(self.table, self.file, settings)
        self.first_subscriptions = FirstSubscriptions(store.max_phy_offset)
        consumers.on_subscriptions(self.first_subscriptions.heard)
        self.table.on_group_removed(self.first_subscriptions.group_removed)
        topics.on_change(self._topics_changed)

    def load(self) -> None:
        """Read the file. Raises ConfigFileError; blocks."""
        self.file.load()

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks."""
        supervisor.every("consumer offsets", self.flusher.period_seconds, self.flusher.flush)
        supervisor.every("broadcast offsets", SCAN_SECONDS, self.broadcast.scan)

    def _topics_changed(self, change: TopicsChanged) -> None:
        self.broadcast.topics_removed(change.removed)
