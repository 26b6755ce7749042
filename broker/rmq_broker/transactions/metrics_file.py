"""The file `transactionMetrics`: the number of half messages by topic, in the form of Apache's broker.

Apache's broker counts up and down from the numbers in the file (5.3.3, TransactionMetrics). Here the
transactions themselves are counted, and the file is written for an Apache broker that takes over the
directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rmq_remoting.bodies.base import Body
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.integers import Int64

if TYPE_CHECKING:
    from rmq_remoting.daemon.config_file import ConfigFile

    from ..clock import ClockMs
    from ..settings.transactions import TransactionSettings
    from .half_messages import HalfMessages


class _Count(Body):
    """The count of one topic; `time_stamp` is the time of its last change."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class _Content(Body):
    """The content of the file (Apache's TransactionMetricsSerializeWrapper)."""

    data_version: DataVersion | None = None
    transaction_count: dict[str, _Count] = Field(default_factory=dict)


class HalfCounts:
    """The counts that the file holds."""

    def __init__(self, halves: HalfMessages, now_ms: ClockMs) -> None:
        self._halves = halves
        self._now_ms = now_ms
        self._data_version = DataVersion(timestamp=now_ms())
        self._counts: dict[str, _Count] = {}

    def refresh(self) -> bool:
        """Count the half messages; return whether a count has changed."""
        now = self._halves.counts
        if {topic: entry.count for topic, entry in self._counts.items() if entry.count} == now:
            return False
        now_ms = self._now_ms()
        before = self._counts
        self._counts = {
            topic: entry
            if (entry := before.get(topic)) is not None and entry.count == now[topic]
            else _Count(count=now[topic], time_stamp=now_ms)
            for topic in sorted(now)
        }
        self._data_version = self._data_version.next(now_ms)
        return True

    def encode(self) -> bytes:
        """Encode `transactionMetrics`."""
        return _Content(data_version=self._data_version, transaction_count=self._counts).encode()

    def decode(self, content: bytes) -> None:
        """Replace the counts by those of the file. Raises BodyError."""
        read = _Content.decode(content)
        self._counts = dict(read.transaction_count)
        self._data_version = read.data_version or self._data_version


class HalfCountsKeeper:
    """Writes the file every `transactionMetricFlushInterval` if a count has changed."""

    def __init__(self, counts: HalfCounts, file: ConfigFile, settings: TransactionSettings) -> None:
        self._counts = counts
        self._file = file
        self._settings = settings

    def period_seconds(self) -> float:
        """Return the pause between two calls of `write`, by the current setting."""
        return self._settings.transaction_metric_flush_interval_ms / 1000

    def write(self) -> None:
        """Have the file written if a count has changed."""
        if self._counts.refresh():
            self._file.changed()

    async def save(self) -> None:
        """Write the file now. Raises OSError."""
        self.write()
        await self._file.save()
