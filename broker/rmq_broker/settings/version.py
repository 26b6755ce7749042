"""The version of the settings: it grows with each change at run time, and request 26 returns it."""

from __future__ import annotations

from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.daemon.configuration import Change

from ..clock import ClockMs


class SettingsVersion:
    """Version of the settings. `changed` must be registered with `Configuration.on_change`."""

    def __init__(self, now_ms: ClockMs) -> None:
        self._now_ms = now_ms
        self.current = DataVersion(timestamp=now_ms())

    def changed(self, change: Change) -> None:
        """Count a change."""
        self.current = self.current.next(self._now_ms())
