"""The topic service: the topic table with its files `topics.json` and `topicQueueMapping.json`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from .table import TopicsChanged, TopicTable

if TYPE_CHECKING:
    from rmq_remoting.daemon.configuration import Change

    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings


class TopicService:
    """Topics of one broker. Everything except `load` belongs to the loop."""

    def __init__(self, settings: BrokerSettings, now_ms: ClockMs) -> None:
        self.table = TopicTable(settings, settings.broker_cluster_name, settings.broker_name, now_ms)
        self.file = ConfigFile(settings.config_dir / "topics.json", self.table, prepare=self.table.prepare)
        mappings = self.table.mappings
        self.mappings_file = ConfigFile(
            settings.config_dir / "topicQueueMapping.json", mappings, prepare=mappings.prepare
        )

    def load(self) -> None:
        """Read the files. Raises ConfigFileError; blocks."""
        self.file.load()
        self.mappings_file.load()

    def start(self) -> None:
        """Write the files after each change from now on, and create the system topics that are missing."""
        self.table.on_change(self._table_changed)
        self.table.mappings.on_change(self.mappings_file.changed)
        self.table.drop_mappings_without_topics()
        self.table.ensure_system_topics()

    @property
    def are_saved(self) -> bool:
        """Whether all changes so far are in both files."""
        return self.file.is_saved and self.mappings_file.is_saved

    async def save(self) -> None:
        """Wait until the changes so far are in both files. Raises OSError."""
        await asyncio.gather(self.file.save(), self.mappings_file.save())

    def settings_changed(self, change: Change) -> None:
        """Follow the settings that topics depend on."""
        if "brokerPermission" in change:
            self.table.next_data_version()
        if "autoCreateTopicEnable" in change:
            self.table.ensure_system_topics()

    def _table_changed(self, change: TopicsChanged) -> None:
        self.file.changed()
