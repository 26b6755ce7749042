"""Everybody who answers requests of POP, built together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pop.peeking import Peeking
from .ack import AckProcessor
from .assignment import AssignmentProcessor, RequestModeProcessor
from .change_invisible import ChangeInvisibleProcessor
from .notification import NotificationProcessor
from .peek import PeekProcessor
from .pop import PopProcessor
from .pop_admission import PopAdmission
from .pop_walks import Walks

if TYPE_CHECKING:
    from ..clients.consumers import ConsumerTable
    from ..clock import ClockMs
    from ..delivery.cold_reads import ColdReads
    from ..filtering.message_filters import MessageFilters
    from ..groups.table import SubscriptionGroupTable
    from ..pop.routes import QueueRoutes
    from ..pop.service import PopService
    from ..settings.broker import BrokerSettings
    from ..store.api import MessageStore
    from ..topics.table import TopicTable


@dataclass(frozen=True, slots=True)
class PopProcessors:
    """One for each family of requests."""

    pop: PopProcessor
    peek: PeekProcessor
    ack: AckProcessor
    change_invisible: ChangeInvisibleProcessor
    notification: NotificationProcessor
    assignment: AssignmentProcessor
    request_mode: RequestModeProcessor

    @classmethod
    def of(
        cls,
        settings: BrokerSettings,
        pops: PopService,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        store: MessageStore,
        cold: ColdReads,
        filters: MessageFilters,
        routes: QueueRoutes,
        now_ms: ClockMs,
    ) -> PopProcessors:
        """Wire them."""
        admission = PopAdmission(settings, topics, groups)
        acknowledging = pops.acknowledging
        walks = Walks(store, cold)
        return cls(
            pop=PopProcessor(admission, pops, store, walks, filters, now_ms),
            peek=PeekProcessor(admission, Peeking(settings, topics, store, pops.popping), walks),
            ack=AckProcessor(admission, acknowledging, store, settings.broker_name),
            change_invisible=ChangeInvisibleProcessor(admission, acknowledging, store),
            notification=NotificationProcessor(settings, admission, pops, topics, store, now_ms),
            assignment=AssignmentProcessor(settings, consumers, routes, pops.modes),
            request_mode=RequestModeProcessor(pops.modes, topics, groups, pops.modes_saved),
        )
