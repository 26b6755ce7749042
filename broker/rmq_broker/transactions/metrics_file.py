"""`transactionMetrics`: by topic, how many half messages wait, as Apache's broker keeps it on disk.

Apache counts up and down from what the file says (5.3.3, TransactionMetrics). Here the transactions
themselves are counted, and the file is written for an Apache broker that is given the directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rmq_remoting.bodies.base import Body
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.integers import Int64

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..persistence.config_file import ConfigFile
    from ..settings.transactions import TransactionSettings
    from .half_messages import HalfMessages


class _Count(Body):
    """Of one topic; `time_stamp` is when it changed last."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class _Content(Body):
    """TransactionMetricsSerializeWrapper."""

    data_version: DataVersion | None = None
    transaction_count: dict[str, _Count] = Field(default_factory=dict)


class HalfCounts:
    """The state of the file."""

    def __init__(self, halves: HalfMessages, now_ms: ClockMs) -> None:
        self._halves = halves
        self._now_ms = now_ms
        self._data_version = DataVersion(timestamp=now_ms())
        self._counts: dict[str, _Count] = {}

    def refresh(self) -> bool:
        """Take over how many there are now; whether that is news."""
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
        """The content of `transactionMetrics`."""
        return _Content(data_version=self._data_version, transaction_count=self._counts).encode()

    def decode(self, content: bytes) -> None:
        """Take over what the file holds; raises BodyError."""
        read = _Content.decode(content)
        self._counts = dict(read.transaction_count)
        self._data_version = read.data_version or self._data_version


class HalfCountsKeeper:
    """Has the file written every `transactionMetricFlushInterval`, where there is something new."""

    def __init__(self, counts: HalfCounts, file: ConfigFile, settings: TransactionSettings) -> None:
        self._counts = counts
        self._file = file
        self._settings = settings

    def period_seconds(self) -> float:
        """How often `write` is to be called, by the setting in force."""
        return self._settings.transaction_metric_flush_interval_ms / 1000

    def write(self) -> None:
        """Have the file written if a number has changed."""
        if self._counts.refresh():
            self._file.changed()

    async def close(self) -> None:
        """Write it a last time. Raises OSError."""
        self.write()
        await self._file.close()
