"""The group service: the table of consumer groups with its file `subscriptionGroup.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from .table import GroupsChanged, SubscriptionGroupTable

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..settings.broker import BrokerSettings


class GroupService:
    """Consumer groups of one broker. Everything except `load` belongs to the loop."""

    def __init__(self, settings: BrokerSettings, now_ms: ClockMs) -> None:
        self.table = SubscriptionGroupTable(settings, now_ms)
        self.file = ConfigFile(settings.config_dir / "subscriptionGroup.json", self.table)

    def load(self) -> None:
        """Read the file. Raises ConfigFileError; blocks."""
        self.file.load()

    def start(self) -> None:
        """Write the file after each change from now on."""
        self.table.on_change(self._table_changed)

    def _table_changed(self, change: GroupsChanged) -> None:
        self.file.changed()
