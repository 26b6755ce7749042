"""The processors of POP requests, built together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..pop.peeking import Peeking
from .ack import AckProcessor
from .assignment import AssignmentProcessor, RequestModeProcessor
from .change_invisible import ChangeInvisibleProcessor
from .notification import NotificationProcessor
from .peek import PeekProcessor
from .pop import PopProcessor
from .pop_admission import PopAdmission
from .pop_walks import QueueWalks

if TYPE_CHECKING:
    from rmq_remoting.bounded_cache import BoundedCache

    from ..clock import ClockMs
    from ..pop.routes import QueueRoutes
    from ..services import Services
    from ..settings.broker import BrokerSettings


@dataclass(frozen=True, slots=True)
class PopProcessors:
    """One processor for each kind of request."""

    pop: PopProcessor
    peek: PeekProcessor
    ack: AckProcessor
    change_invisible: ChangeInvisibleProcessor
    notification: NotificationProcessor
    assignment: AssignmentProcessor
    request_mode: RequestModeProcessor
    caches: tuple[BoundedCache[Any, Any], ...]


def build_pop_processors(
    settings: BrokerSettings, services: Services, routes: QueueRoutes, now_ms: ClockMs
) -> PopProcessors:
    """Build the processors of POP; `routes` tell the queues of topics in the whole cluster."""
    pops, store = services.pops, services.storage.store
    topics, groups = services.topics.table, services.groups.table
    admission = PopAdmission(settings, topics, groups)
    acknowledging = pops.acknowledging
    walks = QueueWalks(store, services.pulls.cold_reads, services.pulls.slices)
    pop = PopProcessor(admission, pops, store, walks, services.filters.filters, now_ms)
    return PopProcessors(
        pop=pop,
        peek=PeekProcessor(admission, Peeking(settings, topics, store, pops.popping), walks),
        ack=AckProcessor(admission, acknowledging, store, settings.broker_name),
        change_invisible=ChangeInvisibleProcessor(admission, acknowledging, store),
        notification=NotificationProcessor(settings, admission, pops, topics, store, walks, now_ms),
        assignment=AssignmentProcessor(
            settings, services.clients.consumers, routes, pops.modes, services.pulls.slices
        ),
        request_mode=RequestModeProcessor(pops.modes, topics, groups, pops.save_modes),
        caches=(*pop.caches, *routes.caches),
    )
