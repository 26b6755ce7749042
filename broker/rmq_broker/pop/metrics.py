"""Metrics of POP, with Apache's names where it has one (PopMetricsManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq_remoting.daemon.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from .service import PopService


class PopCollector:
    """What consumers have in their hands, who waits, and what comes back."""

    def __init__(self, pops: PopService) -> None:
        self._pops = pops

    def collect(self) -> Iterable[Family]:
        """All families of POP."""
        pops = self._pops
        in_flight = pops.in_flight
        yield gauge("rocketmq_pop_checkpoint_buffer_size", "Pops that are not settled yet.", len(in_flight))
        yield gauge(
            "rocketmq_pop_offset_buffer_size",
            "Offsets that wait for their check points to be on the disk.",
            len(pops.positions),
        )
        yield gauge("rmq_pop_messages_in_flight", "Messages in consumers' hands.", in_flight.messages)
        yield gauge("rmq_pop_held", "Pops that wait for a message.", pops.polls.count)
        yield gauge(
            "rmq_pop_notifications_held",
            "Requests that wait to hear that there is something to pop.",
            pops.notifications.count,
        )
        yield counter(
            "rmq_pop_returned_total", "Messages that came back unacknowledged.", pops.returns.returned
        )
        yield counter("rmq_pop_dead_letters_total", "Those that came back once too often.", pops.returns.dead)
        yield counter(
            "rmq_pop_gone_total",
            "Messages that could not come back: they are not in the log any more.",
            pops.revival.messages_gone,
        )
