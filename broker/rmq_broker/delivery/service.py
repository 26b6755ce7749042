"""The delivery service: stores the broker's own messages, and delivers delayed ones and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq_remoting.daemon.config_file import ConfigFile

from .delay_offsets import LOOK_SECONDS, DelayOffsetKeeper, DelayOffsets
from .delayed_messages import DelayedMessages
from .message_writer import MessageWriter
from .retries import Retries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq_remoting.bodies.offsets import DelayOffsetSerializeWrapper
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs
    from ..groups.table import SubscriptionGroupTable
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicTable
    from .elsewhere import Elsewhere
    from .timer_admission import TimerAdmission


class DeliveryService:
    """Delayed delivery and redelivery of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        store: MessageStore,
        statistics: BrokerStatistics,
        timers: TimerAdmission,
        is_locked: Callable[[str], bool],
        now_ms: ClockMs,
        elsewhere: Elsewhere,
    ) -> None:
        """`is_locked` returns whether a member of a group has locked queues, to consume them in order.

        `elsewhere` stores due messages if this broker is a replica.
        """
        levels = settings.delay_levels
        self.writer = MessageWriter(
            store, statistics, levels, timers, append_crc=settings.append_properties_crc
        )
        self.retries = Retries(groups, topics, levels, statistics, is_locked)
        self.delay_offsets = DelayOffsets(now_ms)
        self.delayed = DelayedMessages(store, self.writer, self.delay_offsets, statistics, now_ms, elsewhere)
        self.is_delivering = False
        self._file = ConfigFile(settings.config_dir / "delayOffset.json", self.delay_offsets)
        self._keeper = DelayOffsetKeeper(self.delay_offsets, store, self._file, settings)

    def load(self) -> None:
        """Read `delayOffset.json`; the store has to be open. Raises ConfigFileError; blocks."""
        self._file.load()
        self.delayed.correct_offsets()

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start writing the delivery offsets, which a replica takes over from its master."""
        supervisor.every("delay offsets", LOOK_SECONDS, self._keeper.look)
        supervisor.every("write delay offsets", self._keeper.period_seconds, self._keeper.write)

    def start_delivering(self, supervisor: TaskSupervisor) -> None:
        """Deliver due messages from the current offsets on."""
        self.is_delivering = True
        self.delayed.correct_offsets()
        supervisor.every("delayed messages", self.delayed.pause_seconds, self.delayed.deliver_due)

    async def stop_delivering(self, supervisor: TaskSupervisor) -> None:
        """Stop delivering after the message under way."""
        await supervisor.cancel("delayed messages")
        self.is_delivering = False

    def follow_offsets(self, offsets: DelayOffsetSerializeWrapper) -> None:
        """Take over a master's offsets on its replica (ScheduleMessageService.loadWhenSyncDelayOffset).

        A replica that acts as the master keeps its own.
        """
        if self.is_delivering:
            return
        self.delay_offsets.follow(offsets)
        self._keeper.write()

    def catch_up(self, offsets: Mapping[int, int]) -> None:
        """Continue at these offsets by level where they are higher: a replica has delivered up to them."""
        for level, offset in offsets.items():
            if offset > self.delay_offsets.get(level):
                self.delay_offsets.advance(level, offset)

    async def save_offsets(self) -> None:
        """Write the current offsets; the log has to be flushed. Raises OSError."""
        self.delay_offsets.all_is_flushed()
        self.delay_offsets.outdate_others()
        self._keeper.write()
        await self._file.save()

    async def close(self, *, all_is_flushed: bool) -> None:
        """Write the last offsets: the current ones if the whole log has been flushed. Raises OSError."""
        await self._keeper.close(all_is_flushed=all_is_flushed)
