"""Delivery offsets of delayed messages by level, and their file `delayOffset.json`.

Source: Apache RocketMQ 5.3.3, ScheduleMessageService. Apache's broker writes its current offsets although the
delivered messages may not be flushed, so that a power cut can lose messages that were durable for hours. Here
the file holds offsets up to which all delivered messages are flushed: after a crash the messages behind them
are delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion

if TYPE_CHECKING:
    from rmq_remoting.daemon.config_file import ConfigFile

    from ..clock import ClockMs
    from ..store.api import MessageStore, StoreSettings

# The pause between two checks of how far the log is flushed.
LOOK_SECONDS: Final = 1.0
# Apache's delayOffsetUpdateVersionStep.
_DELIVERIES_PER_VERSION: Final = 200


class DelayOffsets:
    """The next offset to be delivered, by level."""

    def __init__(self, now_ms: ClockMs) -> None:
        self._now_ms = now_ms
        self._data_version = DataVersion(timestamp=now_ms())
        self._offsets: dict[int, int] = {}
        self._deliveries = 0
        # A copy of the offsets, and the log's end at that moment. Once the log is flushed up to there the
        # copy may be written to the file.
        self._noted: tuple[dict[int, int], int] | None = None
        self._noted_deliveries = 0
        self._durable: dict[int, int] = {}
        self._has_news = False

    def get(self, level: int) -> int:
        """Return the next offset of a level's queue, 0 before the first delivery."""
        return self._offsets.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """Note that all messages before `next_offset` were delivered or skipped."""
        self._offsets[level] = next_offset
        self._deliveries += 1
        if self._deliveries % _DELIVERIES_PER_VERSION == 0:
            self._data_version = self._data_version.next(self._now_ms())

    def current(self) -> dict[int, int]:
        """Return a copy of the offsets by level."""
        return dict(self._offsets)

    # --- durable offsets ---

    def log_is(self, end: int, flushed: int) -> None:
        """Take note of the log's end and of its flushed offset; to be called about once a second."""
        if self._noted is not None and self._noted[1] <= flushed:
            self._durable, self._noted, self._has_news = self._noted[0], None, True
        if self._noted is None and self._deliveries != self._noted_deliveries:
            self._noted, self._noted_deliveries = (dict(self._offsets), end), self._deliveries

    def all_is_flushed(self) -> None:
        """Note that all delivered messages are flushed, because the store was shut down gracefully."""
        if self._durable != self._offsets:
            self._durable, self._noted, self._has_news = dict(self._offsets), None, True

    def outdate_others(self) -> None:
        """Increase the version: Apache's master takes over offsets only with a version as high."""
        self._data_version = self._data_version.next(self._now_ms())
        self._has_news = True

    def take_news(self) -> bool:
        """Return whether the durable offsets have changed since the last call."""
        had, self._has_news = self._has_news, False
        return had

    # --- persistence ---

    def encode(self) -> bytes:
        """Encode the durable offsets for `delayOffset.json`, which slaves request, too."""
        return DelayOffsetSerializeWrapper(
            data_version=self._data_version, offset_table=dict(sorted(self._durable.items()))
        ).encode()

    def decode(self, content: bytes) -> None:
        """Replace all offsets by those of `delayOffset.json`. Raises BodyError."""
        self._take(DelayOffsetSerializeWrapper.decode(content))

    def follow(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """Take over a master's offsets on its replica, whose log is flushed as far as they refer to it."""
        self._take(wrapper)
        self._noted, self._has_news = None, True

    def _take(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        self._offsets = dict(wrapper.offset_table)
        self._durable = dict(wrapper.offset_table)
        self._data_version = wrapper.data_version or self._data_version


class DelayOffsetKeeper:
    """Writes `delayOffset.json` every `flushDelayOffsetInterval` if the durable offsets have changed."""

    def __init__(
        self, offsets: DelayOffsets, store: MessageStore, file: ConfigFile, settings: StoreSettings
    ) -> None:
        self._offsets = offsets
        self._store = store
        self._file = file
        self._settings = settings

    def period_seconds(self) -> float:
        """Return the pause between two calls of `write`, by the current setting."""
        return self._settings.flush_delay_offset_interval_ms / 1000

    def look(self) -> None:
        """Check how far the log is flushed; to be called every `LOOK_SECONDS`."""
        self._offsets.log_is(self._store.max_phy_offset(), self._store.flushed_offset)

    def write(self) -> None:
        """Have the file written if the durable offsets have changed."""
        if self._offsets.take_news():
            self._file.changed()

    async def close(self, *, all_is_flushed: bool) -> None:
        """Write the last offsets: the current ones if the whole log has been flushed. Raises OSError."""
        if all_is_flushed:
            self._offsets.all_is_flushed()
        self.write()
        await self._file.close()
