"""Metrics of POP, under the names of Apache RocketMQ 5.3.3 where it has one (PopMetricsManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq_remoting.daemon.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from .service import PopService


class PopCollector:
    """Messages in flight, held requests, and redeliveries."""

    def __init__(self, pops: PopService) -> None:
        self._pops = pops

    def collect(self) -> Iterable[Family]:
        """Return all families of POP."""
        pops = self._pops
        in_flight, redelivery = pops.in_flight, pops.redelivery
        yield gauge("rocketmq_pop_checkpoint_buffer_size", "Pops with messages in flight.", len(in_flight))
        yield gauge(
            "rocketmq_pop_offset_buffer_size",
            "Offsets that are committed once their check points are flushed.",
            len(pops.positions),
        )
        yield gauge(
            "rmq_pop_messages_in_flight", "Popped messages, not acknowledged yet.", in_flight.messages
        )
        yield gauge("rmq_pop_held", "Held pops: they wait for a message.", pops.held_pops.count)
        yield gauge(
            "rmq_pop_notifications_held",
            "Held notification requests: they wait until there is a message to pop.",
            pops.held_notifications.count,
        )
        yield counter(
            "rmq_pop_held_refused_total",
            "Pops and notification requests refused, because too many wait, in all or of one connection.",
            pops.held_pops.refused + pops.held_notifications.refused,
        )
        yield counter(
            "rmq_pop_returned_total",
            "Messages redelivered because they were not acknowledged in time.",
            redelivery.redelivered,
        )
        yield counter(
            "rmq_pop_dead_letters_total",
            "Messages that became dead letters after too many deliveries.",
            redelivery.dead_letters,
        )
        yield counter(
            "rmq_pop_gone_total",
            "Messages that could not be redelivered: they are not in the log any more.",
            pops.revival.messages_gone,
        )
