"""The POP service: builds the parts of POP, loads their state, and keeps them running."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.config_file import ConfigFile
from rmq_remoting.daemon.demand import Demand

from ..clock import Clocks
from ..delivery.waiting_requests import TICK_SECONDS
from ..store.api import MessageRejected, StoreUnavailable
from ..topics.names import revive_topic
from .acknowledging import Acknowledging
from .check_point import CheckPoint, QueueKey
from .closed_pops import ClosedPops, close_open
from .held_pops import HeldPops
from .in_flight import InFlight
from .journal import Acked, Journal, Reset, handed_over_at
from .journal_reader import JournalReader
from .orders import OrderTable
from .popping import Popping
from .positions import Positions
from .recovery import Recovered, Recovery
from .redelivery import Redelivery
from .request_modes import RequestModes
from .revival import PERIOD_SECONDS, Revival
from .state import PopState

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..delivery.arrivals import Arrivals
    from ..delivery.elsewhere import Elsewhere
    from ..delivery.message_writer import MessageWriter
    from ..delivery.timer_entry import TimerEntry
    from ..groups.table import SubscriptionGroupTable
    from ..offsets.table import ConsumerOffsetTable
    from ..settings.broker import BrokerSettings
    from ..statistics.broker_statistics import BrokerStatistics
    from ..store.api import MessageStore
    from ..topics.table import TopicsChanged, TopicTable

log = logging.getLogger("rmq.broker.pop")

# The period in which an acting replica, whose journal is in memory alone, commits offsets.
_VOLATILE_COMMIT_SECONDS: Final = 1.0
# Period in which the marks of the journal follow entries that are no pops.
_LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class PopDependencies:
    """The parts of other domains that POP reads and writes.

    `tell_timer` is called with each entry of the journal, which stands in the queue of timed messages.
    `elsewhere` stores redelivered messages if this broker is a replica.
    """

    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    store: MessageStore
    statistics: BrokerStatistics
    writer: MessageWriter
    arrivals: Arrivals
    tell_timer: Callable[[TimerEntry], None]
    elsewhere: Elsewhere


class PopService:
    """POP of one broker. Everything except `load` belongs to the loop."""

    def __init__(
        self, settings: BrokerSettings, dependencies: PopDependencies, store_host: bytes, clocks: Clocks
    ) -> None:
        """`store_host`: this broker's address as records hold it."""
        topics, groups, now_ms = dependencies.topics, dependencies.groups, clocks.now_ms
        offsets, store = dependencies.offsets, dependencies.store
        self._settings = settings
        self._store = store
        self._offsets = offsets
        self._revive_topic = revive_topic(settings.broker_cluster_name)
        self.held_pops = HeldPops(settings, dependencies.arrivals, time.monotonic)
        self.held_notifications = HeldPops(settings, dependencies.arrivals, time.monotonic, newest_first=True)
        self.in_flight = InFlight(self.held_pops.fewer_in_flight, clocks)
        self._ticks = Demand(self._has_work)
        self.positions = Positions(offsets, self._reset_applied, self._ticks.arise)
        self.closed = ClosedPops()  # on a replica that acts as the master
        self._closed_by_replicas: list[Acked] = []
        self.orders = OrderTable(topics, groups, clocks, self._ticks.arise)
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
        self.redelivery = Redelivery(settings, topics, offsets, dependencies.writer, store_host)
        self.revival = Revival(
            self.in_flight,
            self.journal,
            self.redelivery,
            store,
            topics,
            groups,
            dependencies.elsewhere,
            self.closed,
        )
        self.popping = Popping(settings, state, topics, store, offsets, dependencies.statistics, now_ms)
        self.acknowledging = Acknowledging(
            state, offsets, store, dependencies.statistics, self._unblocked, now_ms, self.closed
        )
        self.orders_file = ConfigFile(
            settings.config_dir / "consumerOrderInfo.json", self.orders, prepare=self.orders.prepare
        )
        self.modes_file = ConfigFile(settings.config_dir / "messageRequestMode.json", self.modes)
        self._written_revision = 0
        # The marks of the journal that `commit_flushed` sets once the log is flushed up to `_next_commit_at`.
        self._outstanding_from: int | None = None
        self._included_end: int | None = None
        self._next_commit_at = 0
        # Offsets up to which Apache's revive queues are taken over, once the log is flushed so far.
        self._handed_over: dict[int, int] = {}
        self._handed_over_until = 0
        self._stopped_at = 0
        self._is_waking = False
        topics.on_change(self._topics_changed)
        offsets.on_reset(self._reset_requested)
        offsets.on_group_removed(self._group_removed)

    # --- life ---

    async def load(self) -> None:
        """Recover the messages in flight. Raises ConfigFileError, OSError."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.orders_file.load)
        self._written_revision = self.orders.revision
        recovery = Recovery(
            JournalReader(self._store, self._revive_topic, self._settings.broker_name),
            self.positions,
            self._offsets,
            self.orders,
            self._store,
        )
        timer_check = self._settings.config_dir / "timercheck"
        recovered = await loop.run_in_executor(
            None, recovery.run, self._revive_topic, self._settings.revive_queue_nums, timer_check
        )
        recovery.apply()
        self._take_over(recovered)

    def forget(self) -> None:
        """Forget the messages in flight, after `stop` and `finish`; `load` may follow."""
        self.in_flight.clear()
        self.positions.clear()
        self.orders.clear_all()
        self._outstanding_from = self._included_end = None
        self._next_commit_at = 0
        self._handed_over = {}

    def _take_over(self, recovered: Recovered) -> None:
        if self._store.is_replica:
            self._follow(recovered)
            return
        self._close_by_replicas(recovered.points)
        for point in recovered.points:
            if not point.is_complete:
                self.in_flight.add(point)
        for key in recovered.pending_resets:
            if not self._offsets.has_reset(key.group, key.topic, key.queue_id):
                self._reset_applied(key, self.positions.get(key))
        for point in recovered.from_revive_topic:
            # They stand in the revive topic alone: from now on they are in the journal, too.
            self.journal.check_point(point)
            acked = [offset for offset in point.offsets if offset not in point.open_offsets()]
            if acked:
                self.journal.ack(point, acked)
            self.in_flight.add(point)
        for queue_id in range(self._settings.revive_queue_nums):
            end = self._store.max_offset(self._revive_topic, queue_id)
            if end:
                self._handed_over[queue_id] = end - 1
        self._handed_over_until = self._store.max_phy_offset()
        self.positions.started(self.journal.end, self.in_flight.oldest_journal_offset)
        if recovered.points or recovered.from_revive_topic:
            log.info(
                "pops recovered in_flight=%d journal_entries_read=%d",
                len(self.in_flight),
                recovered.entries_read,
            )

    def take_closed(self, closed: Iterable[Acked]) -> None:
        """Let the next `load` take over messages that an acting replica has closed."""
        self._closed_by_replicas += closed

    def _close_by_replicas(self, points: Iterable[CheckPoint]) -> None:
        """Close messages of check points in the journal that a replica has closed while it acted."""
        known = {point.key: point for point in points}
        closed, self._closed_by_replicas = self._closed_by_replicas, []
        count = 0
        for each in closed:
            point = known.get(each.key)
            if point is not None and (offsets := close_open(point, each)):
                self.journal.ack(point, offsets)
                count += len(offsets)
        if closed:
            log.info("pops closed by replicas taken over messages=%d told=%d", count, len(closed))

    def _follow(self, recovered: Recovered) -> None:
        """Take over the messages in flight on a replica, which does not write the journal."""
        for point in self.closed.follow([*recovered.points, *recovered.from_revive_topic]):
            self.in_flight.add(point)
        log.info("pops of the master taken over in_flight=%d", len(self.in_flight))

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start answering held requests whose time has ended; every broker does."""
        held, notifications = self.held_pops, self.held_notifications
        supervisor.every("held pops", TICK_SECONDS, held.expire, demand=held.demand)
        supervisor.every(
            "held notifications", TICK_SECONDS, notifications.expire, demand=notifications.demand
        )

    def start_reviving(self, supervisor: TaskSupervisor) -> None:
        """Redeliver unacknowledged messages and commit progress, after `load`.

        A replica serves pops from here on, with messages in flight in memory alone.
        """
        supervisor.every("pop revival", PERIOD_SECONDS, self.revival.revive_due, demand=self.in_flight.demand)
        supervisor.every("pops", TICK_SECONDS, self.tick, demand=self._ticks)
        supervisor.every("look for work of pops", _LOOK_SECONDS, self._ticks.arise)
        if self._store.is_replica:
            self.journal.is_volatile = True
            supervisor.every("pop progress", _VOLATILE_COMMIT_SECONDS, self.commit_closed)
            return
        supervisor.every("pop order", self._flush_orders_seconds, self.flush_orders)

    async def stop_reviving(self, supervisor: TaskSupervisor) -> None:
        """Stop redelivering and committing after the message under way; `stop` follows.

        A tick while the store closes would commit offsets that `finish` does not see as changed, so that
        they would not be written.
        """
        await supervisor.cancel("pop revival")
        await supervisor.cancel("pops")
        await supervisor.cancel("look for work of pops")
        await supervisor.cancel("pop order")
        await supervisor.cancel("pop progress")

    async def stop(self) -> None:
        """Commit the offsets that are flushed, and write the order; `finish` follows. Raises OSError."""
        if self.journal.is_volatile:
            self.commit_closed()
            self.journal.is_volatile = False
            return
        self.commit_flushed(self._store.flushed_offset)
        self._stopped_at = self.journal.end
        await self.save_orders()

    def finish(self, *, all_is_flushed: bool) -> bool:
        """Commit the remaining offsets once the whole log is flushed, as after the store was closed.

        Otherwise check points may be lost, and offsets committed behind them would lose their messages. Tells
        whether there are new offsets to write.
        """
        if not all_is_flushed or self._store.is_replica:
            return False
        before = self._offsets.revision
        self._commit_handed_over(sys.maxsize)
        oldest = self.in_flight.oldest_journal_offset
        self.positions.commit_flushed(sys.maxsize)
        self.positions.set_outstanding_from(self._stopped_at if oldest is None else oldest)
        self.positions.include(self._stopped_at)
        return self._offsets.revision != before

    async def close(self) -> None:
        """Write the files a last time. Raises OSError."""
        await asyncio.gather(self.orders_file.close(), self.modes_file.close())

    async def save_modes(self) -> None:
        """Write the request modes. Raises OSError."""
        self.modes_file.changed()
        await self.modes_file.save()

    # --- periodic work ---

    def tick(self) -> None:
        """Wake unblocked queues, and commit offsets; called every tenth of a second while there is work."""
        if not self._is_waking:
            self._wake_unblocked()
        if not self.journal.is_volatile:
            self.commit_flushed(self._store.flushed_offset)

    def _has_work(self) -> bool:
        """Tell whether `tick` has work: later, it will have something to wake or to commit."""
        if self._is_waking or self.orders.is_any_blocked:
            return True
        if self.journal.is_volatile:
            return False
        positions, end = self.positions, self.journal.end
        return (
            bool(self.in_flight)
            or not positions.is_committed
            or bool(self._handed_over)
            # The journal is a queue that timed messages share, so it also grows without pops.
            or positions.outstanding_from != end
            or positions.included_up_to < end
        )

    def commit_closed(self) -> None:
        """Commit on an acting replica: each queue up to its first message in flight."""
        first_open: dict[QueueKey, int] = {}
        for point in self.in_flight:
            key, offsets = point.queue_key, point.open_offsets()
            # The messages of its master's pops lie before the committed offset.
            if offsets and offsets[-1] >= self._offsets.query(key.group, key.topic, key.queue_id):
                first_open[key] = min(offsets[0], first_open.get(key, offsets[0]))
        self.positions.commit_before(first_open)

    def _wake_unblocked(self) -> None:
        """Wake the queues that ordered pops may read again, some in each iteration of the loop."""
        self._is_waking = False
        if self.orders.wake_unblocked(self._unblocked):
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_unblocked)

    def commit_flushed(self, flushed_offset: int) -> None:
        """Commit the offsets whose check points are flushed, and the marks of the journal.

        The marks may follow only once the log is flushed as it is now: it holds the acknowledgements and
        redeliveries that they rest on.
        """
        positions = self.positions
        positions.commit_flushed(flushed_offset)
        self._commit_handed_over(flushed_offset)
        if flushed_offset < self._next_commit_at:
            return
        if self._outstanding_from is not None:
            positions.set_outstanding_from(self._outstanding_from)
        if self._included_end is not None:
            positions.include(self._included_end)
        end = self.journal.end
        oldest = self.in_flight.oldest_journal_offset
        self._outstanding_from = end if oldest is None else oldest
        self._included_end = end if positions.is_committed else None
        self._next_commit_at = self._store.max_phy_offset()

    def _commit_handed_over(self, flushed_offset: int) -> None:
        """Commit the revive topic: its check points are in the journal, and the journal is flushed."""
        if self._handed_over and flushed_offset >= self._handed_over_until:
            for queue_id, offset in self._handed_over.items():
                self.positions.mark_handed_over_done(self._revive_topic, queue_id, offset)
            self._handed_over = {}

    def held_from_ms(self) -> int | None:
        """Return when the timer of Apache's broker has to deliver the next check point, in ms since 1970 UTC.

        None if no message is in flight.
        """
        earliest = self.in_flight.earliest_revive_time
        return None if earliest is None else handed_over_at(earliest)

    def _flush_orders_seconds(self) -> float:
        return self._settings.flush_consumer_offset_interval_ms / 1000

    def flush_orders(self) -> None:
        """Let `consumerOrderInfo.json` be written if it has changed."""
        if self.orders.revision != self._written_revision:
            self._written_revision = self.orders.revision
            self.orders_file.changed()

    async def save_orders(self) -> None:
        """Write `consumerOrderInfo.json` if it has changed. Raises OSError."""
        self.flush_orders()
        await self.orders_file.save()

    # --- events of other domains ---

    def connection_closed(self, connection: Connection) -> None:
        """Drop the held requests of a client that has disconnected."""
        self.held_pops.connection_closed(connection)
        self.held_notifications.connection_closed(connection)

    def release_all(self) -> None:
        """Answer all held requests."""
        self.held_pops.release_all()
        self.held_notifications.release_all()

    def _unblocked(self, key: QueueKey) -> None:
        """Wake requests: a queue can be popped in order again."""
        self.held_pops.wake_queue(key)
        self.held_notifications.wake_queue(key)

    def _reset_requested(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Journal a requested reset, so that a recovery does not move the offset on."""
        key = QueueKey(topic, group, queue_id)
        self.positions.forget(key)
        if self.positions.is_journaled(key):
            self._note_reset(Reset(*key, offset, is_pending=True))

    def _reset_applied(self, key: QueueKey, offset: int) -> None:
        """Journal an applied reset, or a position that was out of the queue's range."""
        self._note_reset(Reset(*key, offset))
        self.positions.note_journaled(key)

    def _note_reset(self, reset: Reset) -> None:
        try:
            self.journal.reset(reset, self._settings.broker_name)
        except (StoreUnavailable, MessageRejected) as error:
            log.warning("reset not journaled reset=%s cause=%s; a crash now would undo it", reset, error)

    def _group_removed(self, group: str) -> None:
        """Forget a deleted group, so that a recreated one begins without its state."""
        points = [point for point in self.in_flight if point.key.group == group]
        for point in points:
            self.in_flight.drop(point)
        self.orders.forget_group(group)
        if self.modes.forget_group(group):
            self.modes_file.changed()
        if self.positions.forget_group(group) or points:
            try:
                self.journal.group_deleted(group, self._settings.broker_name)
            except (StoreUnavailable, MessageRejected) as error:
                log.warning(
                    "deletion of group not journaled group=%s cause=%s; a crash now would undo it",
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
        self.held_pops.topics_removed(removed)
        self.held_notifications.topics_removed(removed)
        if self.modes.forget_topics(removed):
            self.modes_file.changed()
