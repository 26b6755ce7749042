"""What a broker is made of before it has an address: what it knows, its store, who delivers its messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .clients.consumers import ConsumerTable
from .clients.first_subscriptions import FirstSubscriptions
from .clients.housekeeping import ClientHousekeeping
from .clients.notifications import MemberChangeNotifier
from .clients.producers import ProducerTable
from .clients.queue_locks import QueueLocks
from .clock import now_ms
from .delivery.arrivals import Arrivals
from .delivery.delay_offsets import DelayOffsetKeeper, DelayOffsets
from .delivery.delayed_messages import DelayedMessages
from .delivery.held_pulls import HeldPulls
from .delivery.message_writer import MessageWriter
from .delivery.retries import Retries
from .filtering.bit_maps import BitMaps
from .filtering.expressions import Expressions
from .filtering.filter_table import ConsumerFilterTable
from .filtering.message_filters import MessageFilters
from .groups.table import SubscriptionGroupTable
from .offsets.broadcast import BroadcastOffsets
from .offsets.flusher import OffsetFlusher
from .offsets.table import ConsumerOffsetTable
from .persistence.config_file import ConfigFile
from .statistics.broker_statistics import BrokerStatistics
from .store.api import Cleaner, DiskSpace, MessageStore
from .timers.backlog import TimerBacklog
from .timers.timed_messages import TimedMessages
from .topics.table import TopicTable

if TYPE_CHECKING:
    from .settings.broker import BrokerSettings


class BrokerParts:
    """The parts, told of each other; nothing is opened yet. What takes an address: `wiring.py`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings

        # What the broker knows.
        self.topics = TopicTable(settings, settings.broker_cluster_name, settings.broker_name, now_ms)
        self.groups = SubscriptionGroupTable(settings, now_ms)
        self.offsets = ConsumerOffsetTable(now_ms)
        self.consumers = ConsumerTable()
        self.producers = ProducerTable()
        expressions = Expressions(settings)
        self.consumer_filters = ConsumerFilterTable(settings, expressions, now_ms)
        self.filters = MessageFilters(
            settings, expressions, self.consumer_filters, self.consumers.find_subscription
        )
        self.queue_locks = QueueLocks(time.monotonic, settings.rebalance_lock_max_live_time_ms / 1000)
        self.statistics = BrokerStatistics(self.topics.system_topics, now_ms)
        self.files = {
            name: ConfigFile(settings.config_dir / file_name, state)
            for name, file_name, state in (
                ("topics", "topics.json", self.topics),
                ("groups", "subscriptionGroup.json", self.groups),
                ("offsets", "consumerOffset.json", self.offsets),
                ("filters", "consumerFilter.json", self.consumer_filters),
            )
        }
        self.offset_flusher = OffsetFlusher(self.offsets, self.files["offsets"], settings)

        # Where messages are.
        self.store = MessageStore(settings, settings, settings, is_batch=self.topics.stores_batches)
        self.store.judge.bit_map_of = BitMaps(settings, self.consumer_filters).of
        self.disk = DiskSpace(settings, self.store.health)
        self.cleaner = Cleaner(
            self.store.commit_log, self.store.queues, (self.store.index,), self.disk, settings
        )

        # Who delivers them.
        levels = settings.delay_levels
        self.timers = TimerBacklog(settings, settings, self.store, now_ms)
        self.writer = MessageWriter(
            self.store,
            self.statistics,
            levels,
            self.timers.admission,
            append_crc=settings.append_properties_crc,
        )
        self.timed = TimedMessages(settings, self.store, self.timers, self.writer, now_ms)
        self.topics.on_change(self.timers.topics_changed)
        self.retries = Retries(self.groups, self.topics, levels, self.statistics, self.queue_locks.has_holder)
        self.delay_offsets = DelayOffsets(now_ms)
        self.delayed = DelayedMessages(self.store, self.writer, self.delay_offsets, self.statistics, now_ms)
        self.delay_file = ConfigFile(settings.config_dir / "delayOffset.json", self.delay_offsets)
        self.delay_keeper = DelayOffsetKeeper(
            self.delay_offsets, self.store.commit_log, self.delay_file, settings
        )
        self.held_pulls = HeldPulls(time.monotonic)
        self.arrivals = Arrivals(self.store.appender, self.held_pulls.arrived)
        self.broadcast_offsets = BroadcastOffsets(self.offsets, self.consumers, self.store, settings, now_ms)

        # Who looks after the clients.
        self.housekeeping = ClientHousekeeping(self.consumers, self.producers, settings, now_ms)
        self.first_subscriptions = FirstSubscriptions(self.store.max_phy_offset)
        self.consumers.on_subscriptions(self.first_subscriptions.heard)
        self.offsets.on_group_removed(self.first_subscriptions.group_removed)
        self.consumers.on_subscriptions(self.consumer_filters.register)
        self.consumers.on_change(self.consumer_filters.members_changed)
        self.consumers.on_change(MemberChangeNotifier(self.groups, settings).changed)
        self.topics.on_change(lambda change: self.held_pulls.topics_removed(change.removed))
        self.topics.on_change(lambda change: self.broadcast_offsets.topics_removed(change.removed))

    def look_again(self, topic: str, queue_id: int) -> None:
        """Have the pulls that are held for a queue looked at: there is news besides messages."""
        queue = self.store.queues.get(topic, queue_id)
        if queue is not None:
            self.held_pulls.arrived(queue)
