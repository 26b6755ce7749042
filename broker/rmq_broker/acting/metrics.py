"""Metrics of a replica that acts as the master."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rmq_remoting.daemon.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from ..escape.remote import RemoteEscape
    from ..transactions.checks import Checks
    from .smallest_broker import SmallestBroker

_BY_BROKER: Final = ("broker",)


class ActingCollector:
    """Whether this broker acts as the master, and the messages that it stored with other masters."""

    def __init__(self, smallest: SmallestBroker, escape: RemoteEscape, checks: Checks) -> None:
        self._smallest = smallest
        self._escape = escape
        self._checks = checks

    def collect(self) -> Iterable[Family]:
        """Return all families of a replica; none of a master."""
        if not self._escape.is_used:
            return
        yield gauge(
            "rmq_acting_master",
            "1: this replica acts as the master, which is away; 0: it does not.",
            int(self._smallest.acts),
        )
        yield Family(
            "rmq_escaped_messages_total",
            "counter",
            "Messages of this replica that another master has stored, by that master's name.",
            [((name,), count) for name, count in self._escape.sent.copy().items()],
            _BY_BROKER,
        )
        yield counter(
            "rmq_escape_failures_total",
            "Attempts to store a message with another master that failed; each is repeated.",
            self._escape.failures,
        )
        yield counter(
            "rmq_transactions_moved_total",
            "Half messages that another master has taken over.",
            self._checks.moved,
        )
