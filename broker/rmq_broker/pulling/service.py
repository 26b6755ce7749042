"""The pull service: the state that all pulls share, and its background tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ..delivery.arrivals import Arrivals
from ..delivery.cold_reads import ColdReads
from ..delivery.turns import LoopSlices
from ..delivery.waiting_requests import TICK_SECONDS
from .cold_flow_control import ColdFlowControl
from .cold_groups import PERIOD_SECONDS, ColdReadGroups
from .held_pulls import HeldPulls

if TYPE_CHECKING:
    from rmq_remoting.connection import Connection
    from rmq_remoting.daemon.tasks import TaskSupervisor
    from rmq_remoting.tiers import PoolTier

    from ..clients.consumers import ConsumerTable
    from ..clock import ClockMs
    from ..settings.cold_data import ColdDataSettings
    from ..store.api import MessageStore, PullSettings
    from ..topics.table import TopicsChanged, TopicTable

# Period in which held pulls are checked against their queues, for arrivals without a wake-up.
_CHECK_SECONDS: Final = 5.0


class PullService:
    """Held pulls, the arrivals that wake them, and reads from the disk; belongs to the loop."""

    def __init__(
        self,
        settings: PullSettings,
        cold_settings: ColdDataSettings,
        topics: TopicTable,
        consumers: ConsumerTable,
        store: MessageStore,
        cold_tier: PoolTier,
        now_ms: ClockMs,
    ) -> None:
        """`cold_tier`: its threads read messages that are not in memory."""
        self._store = store
        self._topics = topics
        self.held_pulls = HeldPulls(time.monotonic)
        self.arrivals = Arrivals(store, self.held_pulls.arrived)
        self.cold_reads = ColdReads(cold_tier)
        self._are_released = False  # the pulls that wait for replicas after a start
        self.cold_groups = ColdReadGroups(settings, cold_settings, now_ms)
        # Pulls of groups that read too many cold messages. Nothing wakes them before their time.
        self.slowed_pulls = HeldPulls(time.monotonic)
        self.cold_flow = ColdFlowControl(store, self.cold_groups, consumers, self.slowed_pulls)
        # Of pops and administration, too.
        self.slices = LoopSlices()
        topics.on_change(self._topics_changed)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks."""
        held, slowed = self.held_pulls, self.slowed_pulls
        supervisor.every("held pulls", TICK_SECONDS, self.tick, demand=held.demand)
        supervisor.every("slowed pulls", TICK_SECONDS, slowed.expire, demand=slowed.demand)
        supervisor.every("cold reads of groups", PERIOD_SECONDS, self.cold_groups.end_period)
        supervisor.every("check held pulls", _CHECK_SECONDS, held.check_all, demand=held.check_demand)

    def tick(self) -> None:
        """Answer held pulls whose time has ended; called every tenth of a second while there are some."""
        # The wait may end before the first tick: there are ticks only while a pull is held.
        if not self._are_released and self._store.has_released_reads:
            self._are_released = True
            self.held_pulls.wake_all()
        self.held_pulls.expire()

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a client that has disconnected."""
        self.held_pulls.connection_closed(connection)
        self.slowed_pulls.connection_closed(connection)

    def release_all(self) -> None:
        """Answer every held pull now, with or without a message, and hold no more."""
        self.slowed_pulls.release_all()
        self.held_pulls.release_all()

    def wake(self, topic: str, queue_id: int) -> None:
        """Wake the pulls that are held for a queue, for a reason other than a message."""
        queue = self._store.queues.get(topic, queue_id)
        if queue is not None:
            self.held_pulls.arrived(queue)

    def _topics_changed(self, change: TopicsChanged) -> None:
        self.held_pulls.topics_removed(change.removed)
        self.slowed_pulls.topics_removed(change.removed)
        for config in change.updated:
            mapping = self._topics.mappings.get(config.topic_name)
            if mapping is not None:
                led = {item.queue_id for item in mapping.leaders.values()}
                self.held_pulls.leaders_are(config.topic_name, led)
