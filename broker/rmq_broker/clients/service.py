"""The client service: the connected producers and consumers, and the queues that consumers have locked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .consumers import ConsumerTable
from .housekeeping import SCAN_SECONDS, ClientHousekeeping
from .notifications import MemberChangeNotifier
from .producers import ProducerTable
from .queue_locks import SWEEP_SECONDS, QueueLocks

if TYPE_CHECKING:
    from rmq_remoting.daemon.tasks import TaskSupervisor

    from ..clock import ClockMs
    from ..groups.table import SubscriptionGroupTable
    from ..settings.broker import BrokerSettings


class ClientService:
    """Clients of one broker; belongs to the loop."""

    def __init__(self, settings: BrokerSettings, groups: SubscriptionGroupTable, steady_ms: ClockMs) -> None:
        self.consumers = ConsumerTable()
        self.producers = ProducerTable()
        self.queue_locks = QueueLocks(time.monotonic, settings.rebalance_lock_max_live_time_ms / 1000)
        self.housekeeping = ClientHousekeeping(self.consumers, self.producers, settings, steady_ms)
        self.consumers.on_change(MemberChangeNotifier(groups, settings).changed)

    def start_tasks(self, supervisor: TaskSupervisor) -> None:
        """Start the background tasks."""
        supervisor.every("client expiry", SCAN_SECONDS, self.housekeeping.scan)
        supervisor.every("queue locks", SWEEP_SECONDS, self.queue_locks.forget_expired)
