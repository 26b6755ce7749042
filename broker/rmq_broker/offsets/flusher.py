"""Periodic writes of the consumer offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmq_remoting.daemon.config_file import ConfigFile

from ..settings.topics import TopicSettings
from .table import ConsumerOffsetTable

# Offsets that are encoded in one step: 0.3 ms. An entry of a topic with many queues is a step of its own.
_OFFSETS_PER_STEP: Final = 1024


def encoded_ahead(offsets: ConsumerOffsetTable) -> Iterator[None]:
    """Encode the entries that have changed, some in each step."""
    count = 0
    for key in offsets.changed_keys():
        count += 1 + offsets.encode_entry(key)
        if count >= _OFFSETS_PER_STEP:
            count = 0
            yield


class OffsetFlusher:
    """Writes `consumerOffset.json` every `flushConsumerOffsetInterval` if offsets have changed."""

    def __init__(self, offsets: ConsumerOffsetTable, file: ConfigFile, settings: TopicSettings) -> None:
        self._offsets = offsets
        self._file = file
        self._settings = settings
        self._flushed_revision = offsets.revision

    def period_seconds(self) -> float:
        """Interval of `flush` by the current setting, in seconds."""
        return self._settings.flush_consumer_offset_interval_ms / 1000

    def flush(self) -> None:
        """Schedule a write if offsets were committed since the last one."""
        revision = self._offsets.revision
        if revision != self._flushed_revision:
            self._flushed_revision = revision
            self._file.changed()

    async def save(self) -> None:
        """Write changed offsets now and wait for the write. Raises OSError."""
        self.flush()
        await self._file.save()

    async def close(self) -> None:
        """Write the last offsets. Raises OSError."""
        self.flush()
        await self._file.close()
