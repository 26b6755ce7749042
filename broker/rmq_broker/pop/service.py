"""The POP service: builds the parts of POP, loads their state, and keeps them running."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_remoting.daemon.tasks import OnDeath

from ..clock import ClockMs
from ..delivery.waiting_requests import TICK_SECONDS
from ..persistence.config_file import ConfigFile
from ..store.api import MessageRejected, StoreUnavailable
from ..topics.names import revive_topic
from .acknowledging import Acknowledging
from .check_point import QueueKey
from .in_flight import InFlight
from .journal import Journal, Reset, handed_over_at
from .orders import OrderTable
from .polls import Polls
from .popping import Popping
from .positions import Positions
from .recovery import Recovered, Recovery
from .request_modes import RequestModes
from .returns import Returns
from .revival import Revival
from .state import PopState

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..delivery.arrivals import Arrivals
    from ..delivery.message_writer import MessageWriter
    from ..delivery.timer_entry import TimerEntry
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicsChanged, TopicTable

log = logging.getLogger("rmq.broker.pop")


@dataclass(frozen=True, slots=True)
class PopDependencies:
    """The parts of other domains that POP reads and writes.

    `tell_timer` is called with each entry of the journal, which stands in the queue of timed messages.
    """

    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    store: MessageStore
    statistics: BrokerStatistics
    writer: MessageWriter
    arrivals: Arrivals
    tell_timer: Callable[[TimerEntry], None]


class PopService:
    """POP of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self, settings: BrokerSettings, dependencies: PopDependencies, store_host: bytes, now_ms: ClockMs
    ) -> None:
        """`store_host`: this broker's address as records hold it."""
        topics, groups = dependencies.topics, dependencies.groups
        offsets, store = dependencies.offsets, dependencies.store
        self._settings = settings
        self._store = store
        self._offsets = offsets
        self._revive_topic = revive_topic(settings.broker_cluster_name)
        self.polls = Polls(settings, dependencies.arrivals, time.monotonic)
        self.notifications = Polls(settings, dependencies.arrivals, time.monotonic, newest_first=True)
        self.in_flight = InFlight(self.polls.fewer_in_flight)
        self.positions = Positions(offsets)
        self.orders = OrderTable(topics, groups, now_ms)
        self.modes = RequestModes(settings)
        self.journal = Journal(
            store,
            self._revive_topic,
            store_host,
            now_ms,
            dependencies.tell_timer,
            append_crc=settings.append_properties_crc,
        )
        state = PopState(self.journal, self.in_flight, self.positions, self.orders)
        self.returns = Returns(settings, topics, offsets, dependencies.writer, store_host)
        self.revival = Revival(self.in_flight, self.journal, self.returns, store, topics, groups, now_ms)
        self.popping = Popping(settings, state, topics, store, offsets, dependencies.statistics, now_ms)
        self.acknowledging = Acknowledging(state, offsets, store, dependencies.statistics, self._free, now_ms)
        self.orders_file = ConfigFile(settings.config_dir / "consumerOrderInfo.json", self.orders)
        self.modes_file = ConfigFile(settings.config_dir / "messageRequestMode.json", self.modes)
        self._written_revision = 0
        # Noted by `settle`, and in force once the log is flushed to `_settled_when_flushed_to`.
        self._outstanding_from: int | None = None
        self._included_end: int | None = None
        self._settled_when_flushed_to = 0
        # Last offsets of Apache's revive queues that were taken over, in force once the log is flushed to
        # `_handed_over_until`.
        self._handed_over: dict[int, int] = {}
        self._handed_over_until = 0
        self._stopped_at = 0
        topics.on_change(self._topics_changed)
        offsets.on_reset(self._was_reset)
        offsets.on_group_removed(self._group_removed)
        self.positions.on_reset(self._went_elsewhere)

    # --- life ---

    async def load(self) -> None:
        """Recover messages in flight, their order and request modes. Raises ConfigFileError, OSError."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.orders_file.load)
        await loop.run_in_executor(None, self.modes_file.load)
        self._written_revision = self.orders.revision
        recovery = Recovery(
            self.journal,
            self.positions,
            self._offsets,
            self.orders,
            self._store,
            self._settings.broker_name,
        )
        timer_check = self._settings.config_dir / "timercheck"
        recovered = await loop.run_in_executor(
            None, recovery.run, self._revive_topic, self._settings.revive_queue_nums, timer_check
        )
        self._take_over(recovered)

    def _take_over(self, recovered: Recovered) -> None:
        for point in recovered.points:
            self.in_flight.add(point)
        for key in recovered.set_back:
            if not self._offsets.has_reset(key.group, key.topic, key.queue_id):
                self._went_elsewhere(key, self.positions.get(key))
        for point in recovered.left_over:
            # From now on they are in the journal.
            self.journal.check_point(point)
            acked = [offset for offset in point.offsets if offset not in point.remaining()]
            if acked:
                self.journal.ack(point, acked)
            self.in_flight.add(point)
        for queue_id in range(self._settings.revive_queue_nums):
            end = self.journal.handed_over_end(queue_id)
            if end:
                self._handed_over[queue_id] = end - 1
        self._handed_over_until = self._store.max_phy_offset()
        self.positions.started(self.journal.end, self.in_flight.oldest_journal_offset)
        if recovered.points or recovered.left_over:
            log.info(
                "unacknowledged pops recovered pops=%d journal_entries_read=%d",
                len(self.in_flight),
                recovered.entries_read,
            )

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks."""
        supervisor.every("pops", TICK_SECONDS, self.tick)
        supervisor.start("pop revival", self.revival.run, on_death=OnDeath.RESTART)
        supervisor.every("pop order", self._flush_orders_seconds, self.flush_orders)

    async def stop_tasks(self, supervisor: TaskSupervisor) -> None:
        """Stop redelivering and committing; `stop` follows.

        A tick while the store closes would commit offsets that `finish` does not see as changed, so that
        they would not be written.
        """
        await supervisor.cancel("pop revival")
        await supervisor.cancel("pops")

    async def stop(self) -> None:
        """Commit offsets up to the flushed part of the log, and write the files. Raises OSError.

        `finish` follows once the store has been closed.
        """
        self.settle(self._store.commit_log.flushed_offset)
        self._stopped_at = self.journal.end
        self.flush_orders()
        await asyncio.gather(self.orders_file.close(), self.modes_file.close())

    def finish(self, *, all_is_flushed: bool) -> bool:
        """Commit the remaining offsets after the store was closed, provided that the log is flushed.

        Otherwise check points may be lost, and with offsets committed past them their messages would not be
        redelivered. Returns whether offsets changed, which their owner then writes.
        """
        if not all_is_flushed:
            return False
        before = self._offsets.revision
        self._settle_handed_over(sys.maxsize)
        oldest = self.in_flight.oldest_journal_offset
        self.positions.settle(sys.maxsize)
        self.positions.keep_outstanding_from(self._stopped_at if oldest is None else oldest)
        self.positions.include(self._stopped_at)
        return self._offsets.revision != before

    async def modes_saved(self) -> None:
        """Write the request modes and wait until they are on disk. Raises OSError."""
        self.modes_file.changed()
        await self.modes_file.save()

    # --- periodic work ---

    def tick(self) -> None:
        """Expire waiting pops, wake those whose queue was released, commit offsets: every 0.1 s."""
        self.polls.expire()
        self.notifications.expire()
        self.orders.freed(self._free)
        self.settle(self._store.commit_log.flushed_offset)

    def settle(self, flushed_offset: int) -> None:
        """Commit the offsets whose check points are flushed, and the offset that recovery starts at.

        That offset, too, is committed only once the log is flushed up to its present end: the log holds the
        acknowledgements and redeliveries since the oldest check point.
        """
        positions = self.positions
        positions.settle(flushed_offset)
        self._settle_handed_over(flushed_offset)
        if flushed_offset < self._settled_when_flushed_to:
            return
        if self._outstanding_from is not None:
            positions.keep_outstanding_from(self._outstanding_from)
        if self._included_end is not None:
            positions.include(self._included_end)
        end = self.journal.end
        oldest = self.in_flight.oldest_journal_offset
        self._outstanding_from = end if oldest is None else oldest
        self._included_end = end if positions.is_settled else None
        self._settled_when_flushed_to = self._store.max_phy_offset()

    def _settle_handed_over(self, flushed_offset: int) -> None:
        """Note that the entries of Apache's revive topic are in the journal, once that is flushed."""
        if self._handed_over and flushed_offset >= self._handed_over_until:
            for queue_id, offset in self._handed_over.items():
                self.positions.mark_handed_over_done(self._revive_topic, queue_id, offset)
            self._handed_over = {}

    def held_from_ms(self) -> int | None:
        """Return the timer's time from which on Apache's broker would have to hand over check points.

        None if no message is in flight.
        """
        earliest = self.in_flight.earliest_revive_time
        return None if earliest is None else handed_over_at(earliest)

    def _flush_orders_seconds(self) -> float:
        return self._settings.flush_consumer_offset_interval_ms / 1000

    def flush_orders(self) -> None:
        """Write `consumerOrderInfo.json` soon if the order has changed."""
        if self.orders.revision != self._written_revision:
            self._written_revision = self.orders.revision
            self.orders_file.changed()

    async def orders_saved(self) -> None:
        """Write the order if it has changed, and wait until it is on disk. Raises OSError."""
        self.flush_orders()
        await self.orders_file.save()

    # --- events ---

    def connection_closed(self, connection: Connection) -> None:
        """Drop the waiting requests of a closed connection."""
        self.polls.connection_closed(connection)
        self.notifications.connection_closed(connection)

    def release_all(self) -> None:
        """Answer all waiting requests."""
        self.polls.release_all()
        self.notifications.release_all()

    def _free(self, key: QueueKey) -> None:
        """Wake the requests for a queue that can be popped in order again."""
        self.polls.wake_queue(key)
        self.notifications.wake_queue(key)

    def _was_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that a group's offset was reset, so that recovery from the journal does not move it on."""
        key = QueueKey(topic, group, queue_id)
        self.positions.forget(key)
        if self.positions.is_journaled(key):
            self._note_reset(Reset(*key, offset, is_pending=True))

    def _went_elsewhere(self, key: QueueKey, offset: int) -> None:
        """Note that a group applied a reset, or found no message at its offset and went on elsewhere."""
        self._note_reset(Reset(*key, offset))
        self.positions.note_journaled(key)

    def _note_reset(self, reset: Reset) -> None:
        try:
            self.journal.reset(reset, self._settings.broker_name)
        except (StoreUnavailable, MessageRejected) as error:
            log.warning(
                "reset of an offset not persisted reset=%s cause=%s; a crash now would undo it", reset, error
            )

    def _group_removed(self, group: str) -> None:
        """Forget a group that was deleted with its offsets; one of the same name starts anew."""
        points = [point for point in self.in_flight if point.key.group == group]
        for point in points:
            self.in_flight.drop(point)
        self.orders.forget_group(group)
        if self.modes.forget_group(group):
            self.modes_file.changed()
        if self.positions.forget_group(group) or points:
            try:
                self.journal.group_forgotten(group, self._settings.broker_name)
            except (StoreUnavailable, MessageRejected) as error:
                log.warning(
                    "deletion of group not persisted group=%s cause=%s; a crash now would undo it",
                    group,
                    error,
                )

    def _topics_changed(self, change: TopicsChanged) -> None:
        removed: Collection[str] = change.removed
        if not removed:
            return
        self.in_flight.forget_topics(removed)
        self.positions.forget_topics(removed)
        self.orders.forget_topics(removed)
        self.polls.topics_removed(removed)
        self.notifications.topics_removed(removed)
        if self.modes.forget_topics(removed):
            self.modes_file.changed()
