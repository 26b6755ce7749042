"""How often the settings were changed while the broker runs, in the form that request 26 tells it."""

from __future__ import annotations

from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.daemon.configuration import Change

from ..clock import ClockMs


class SettingsVersion:
    """Grows with each change; to be registered with `Configuration.on_change`."""

    def __init__(self, now_ms: ClockMs) -> None:
        self._now_ms = now_ms
        self.current = DataVersion(timestamp=now_ms())

    def changed(self, change: Change) -> None:
        """Settings were changed."""
        self.current = self.current.next(self._now_ms())
