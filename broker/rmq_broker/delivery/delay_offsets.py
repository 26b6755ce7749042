"""How far the messages of each delay level have been delivered: one owner, and its file `delayOffset.json`.

Source: Apache RocketMQ 5.3.3, ScheduleMessageService. Apache writes how far it has come, whether what it has
delivered is on the disk or not, so that a power cut can take messages that were safe for hours. Here the file
says up to where everything delivered is on the disk: after a crash what follows is delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
from rmq_remoting.bodies.topic import DataVersion

if TYPE_CHECKING:
    from ..clock import ClockMs
    from ..persistence.config_file import ConfigFile
    from ..store.api import CommitLog, StoreSettings

# How often it is looked at how much of the log is on the disk.
LOOK_SECONDS: Final = 1.0
# delayOffsetUpdateVersionStep of Apache.
_DELIVERIES_PER_VERSION: Final = 200


class DelayOffsets:
    """By level, the next offset of its queue that is to be delivered."""

    def __init__(self, now_ms: ClockMs) -> None:
        self._now_ms = now_ms
        self._data_version = DataVersion(timestamp=now_ms())
        self._offsets: dict[int, int] = {}
        self._deliveries = 0
        # As of some moment, and where the log ended then: good for the file when the log is flushed to there.
        self._noted: tuple[dict[int, int], int] | None = None
        self._noted_deliveries = 0
        self._durable: dict[int, int] = {}
        self._has_news = False

    def get(self, level: int) -> int:
        """The next offset of a level's queue, 0 where nothing has been delivered yet."""
        return self._offsets.get(level, 0)

    def advance(self, level: int, next_offset: int) -> None:
        """All before `next_offset` has been delivered, or is not there."""
        self._offsets[level] = next_offset
        self._deliveries += 1
        if self._deliveries % _DELIVERIES_PER_VERSION == 0:
            self._data_version = self._data_version.next(self._now_ms())

    def current(self) -> dict[int, int]:
        """All offsets by level."""
        return dict(self._offsets)

    # --- what may be written ---

    def log_is(self, end: int, flushed: int) -> None:
        """Where the log ends and up to where it is on the disk; to be called every second or so."""
        if self._noted is not None and self._noted[1] <= flushed:
            self._durable, self._noted, self._has_news = self._noted[0], None, True
        if self._noted is None and self._deliveries != self._noted_deliveries:
            self._noted, self._noted_deliveries = (dict(self._offsets), end), self._deliveries

    def all_is_flushed(self) -> None:
        """Everything delivered is on the disk: the store has been closed in good order."""
        if self._durable != self._offsets:
            self._durable, self._noted, self._has_news = dict(self._offsets), None, True

    def take_news(self) -> bool:
        """Whether there is something to write since this was asked last."""
        had, self._has_news = self._has_news, False
        return had

    # --- persistence ---

    def encode(self) -> bytes:
        """The content of `delayOffset.json`, also for slaves that ask for it."""
        return DelayOffsetSerializeWrapper(
            data_version=self._data_version, offset_table=dict(sorted(self._durable.items()))
        ).encode()

    def decode(self, content: bytes) -> None:
        """Take over what `delayOffset.json` holds; raises BodyError."""
        wrapper = DelayOffsetSerializeWrapper.decode(content)
        self._offsets = dict(wrapper.offset_table)
        self._durable = dict(wrapper.offset_table)
        self._data_version = wrapper.data_version or self._data_version


class DelayOffsetKeeper:
    """Has `delayOffset.json` written every `flushDelayOffsetInterval`, where there is something new."""

    def __init__(
        self, offsets: DelayOffsets, commit_log: CommitLog, file: ConfigFile, settings: StoreSettings
    ) -> None:
        self._offsets = offsets
        self._log = commit_log
        self._file = file
        self._settings = settings

    def period_seconds(self) -> float:
        """How often `write` is to be called, by the setting in force."""
        return self._settings.flush_delay_offset_interval_ms / 1000

    def look(self) -> None:
        """See what has come to the disk; to be called every `LOOK_SECONDS`."""
        self._offsets.log_is(self._log.max_offset, self._log.flushed_offset)

    def write(self) -> None:
        """Have the file written."""
        if self._offsets.take_news():
            self._file.changed()

    async def close(self, *, all_is_flushed: bool) -> None:
        """Write the last offsets: those of now, if all of the log is on the disk. Raises OSError."""
        if all_is_flushed:
            self._offsets.all_is_flushed()
        self.write()
        await self._file.close()
