"""Writes the offsets to disk from time to time."""

from __future__ import annotations

from ..persistence.config_file import ConfigFile
from ..settings.topics import TopicSettings
from .table import ConsumerOffsetTable


class OffsetFlusher:
    """Has `consumerOffset.json` written every `flushConsumerOffsetInterval`, where there is something new."""

    def __init__(self, offsets: ConsumerOffsetTable, file: ConfigFile, settings: TopicSettings) -> None:
        self._offsets = offsets
        self._file = file
        self._settings = settings
        self._flushed_revision = offsets.revision

    def period_seconds(self) -> float:
        """How often `flush` is to be called, by the setting in force."""
        return self._settings.flush_consumer_offset_interval_ms / 1000

    def flush(self) -> None:
        """Have the file written if anything was committed since it was written last."""
        revision = self._offsets.revision
        if revision != self._flushed_revision:
            self._flushed_revision = revision
            self._file.changed()

    async def save(self) -> None:
        """Write what is new at once, and wait for it. Raises OSError where it cannot be written."""
        self.flush()
        await self._file.save()

    async def close(self) -> None:
        """Write the last offsets. Raises OSError where they cannot be written."""
        self.flush()
        await self._file.close()
